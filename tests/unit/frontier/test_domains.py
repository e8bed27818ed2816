"""Which hosts belong together."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zcrawl.frontier.domains import (
    literal_address,
    plain_address,
    preferred_address,
    registered_domain,
)


@pytest.mark.parametrize(
    ("origin", "domain"),
    [
        ("https://www.example.co.uk:8443", "example.co.uk"),
        ("http://a.b.c.example.com", "example.com"),
        ("http://www.example.com.", "example.com"),
        ("https://one.github.io", "one.github.io"),  # the list's private part
        ("https://shop.xn--85x722f.com.cn", "xn--85x722f.com.cn"),
        ("http://a.made-up", "a.made-up"),  # a suffix that nobody knows is a suffix
        ("http://co.uk", "co.uk"),  # nobody can register it: it stands for itself
        ("http://localhost:8080", "localhost"),
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://[2001:db8::1]:8080", "2001:db8::1"),
    ],
)
def test_the_registered_domain_of_an_origin(origin: str, domain: str) -> None:
    """By the public suffix list; what nobody can register stands for itself."""
    assert registered_domain(origin) == domain


def test_an_address_has_one_spelling() -> None:
    """What is one machine is one group."""
    assert plain_address("2001:DB8:0::1") == "2001:db8::1"
    assert plain_address("::ffff:192.0.2.1") == "192.0.2.1"
    assert plain_address("example.com") == ""
    assert literal_address("http://[::1]:80") == "::1"
    assert literal_address("http://example.com") == ""


def test_the_same_addresses_in_any_order_prefer_the_same_one() -> None:
    """IPv4 first, then by number, not by spelling."""
    assert preferred_address(["2001:db8::1", "192.0.2.10", "192.0.2.9"]) == "192.0.2.9"
    assert preferred_address(["2001:db8::10", "2001:db8::9"]) == "2001:db8::9"


def test_the_list_is_read_by_nobody_who_does_not_ask() -> None:
    """It takes a tenth of a second: crawls without such limits do not pay for it."""
    code = "import sys, zcrawl.master.leader, zcrawl.worker.machine as _\n"
    code += "import zcrawl.dispatch.shared_limits\n"
    code += "assert 'publicsuffixlist' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
