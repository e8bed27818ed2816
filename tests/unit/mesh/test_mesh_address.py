"""Endpoints' texts: what they mean, and who can reach them."""

from __future__ import annotations

import pytest

from zcrawl.errors import ConfigError
from zcrawl.mesh.address import TcpAddress, advertised, parse_endpoint
from zcrawl.mesh.ports import Endpoints


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:7000", "127.0.0.1", 7000),
        ("tcp://*:*", "*", 0),
        ("tcp://0.0.0.0:0", "0.0.0.0", 0),
        ("tcp://[::1]:65535", "::1", 65535),
        ("tcp://[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("tcp://master-1.example:7000", "master-1.example", 7000),
    ],
)
def test_a_tcp_endpoint_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    """Port * and 0 mean the same, and the text can be made again."""
    address = parse_endpoint(text)
    assert address == TcpAddress(host, port)
    assert parse_endpoint(str(address)) == address


@pytest.mark.parametrize("text", ["ipc:///tmp/x", "inproc://x"])
def test_local_endpoints_have_no_address(text: str) -> None:
    """Nobody reaches them from elsewhere."""
    assert parse_endpoint(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://",
        "tcp://host",
        "tcp://host:",
        "tcp://host:65536",
        "tcp://host:-1",
        "tcp://my host:7000",
        "tcp://[10.0.0.1:7000]:7000",
        "tcp://:7000",
        "tcp://::1:7000",
        "tcp://[::1]7000",
        "tcp://a;b:1/x",
        "http://host:80",
        "ipc://",
        "7000",
    ],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    """An IPv6 address needs its brackets: the last number would be taken for the port."""
    with pytest.raises(ConfigError) as caught:
        parse_endpoint(text)
    assert caught.value.code == "bad_endpoint"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::ffff:127.0.0.1", True),
        ("*", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost.example", False),
        ("eth0", False),
    ],
)
def test_only_certain_addresses_are_loopback(host: str, loopback: bool) -> None:
    """A name may resolve to anything, so it counts as open."""
    assert TcpAddress(host, 1).is_loopback is loopback


def test_a_wildcard_is_advertised_by_the_machine_s_name() -> None:
    """What is bound to one address is told as it is."""
    bound = Endpoints("m1", "tcp://0.0.0.0:7000", "tcp://[::]:7001", "tcp://10.0.0.7:7002")
    assert advertised(bound, "10.0.0.7") == Endpoints(
        "m1", "tcp://10.0.0.7:7000", "tcp://10.0.0.7:7001", "tcp://10.0.0.7:7002"
    )
    assert advertised(bound, "fd00::7").control == "tcp://[fd00::7]:7000"
    local = Endpoints("m1", "ipc:///a", "ipc:///b", "ipc:///c")
    assert advertised(local, "10.0.0.7") == local


@pytest.mark.parametrize("host", ["my host", "10.0.0.7:7000", "tcp://10.0.0.7", ""])
def test_what_cannot_be_reached_is_not_advertised(host: str) -> None:
    """Every worker of the cluster would try to connect there."""
    bound = Endpoints("m1", "tcp://0.0.0.0:7000", "tcp://0.0.0.0:7001", "tcp://0.0.0.0:7002")
    with pytest.raises(ConfigError, match=r"mesh\.advertise"):
        advertised(bound, host)
