"""Which links belong to a crawl."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.errors import JobError
from zcrawl.frontier.scope import ScopeFilter, has_binary_extension, validate_scope
from zcrawl.model.spec import Scope

SEEDS = frozenset({"example.com", "local.test:8080"})


@pytest.mark.parametrize(
    ("hosts", "url", "inside"),
    [
        ((), "http://example.com/", True),
        ((), "https://example.com:8443/", True),
        ((), "http://www.example.com/", False),
        ((), "http://local.test:8080/", True),
        ((), "http://local.test/", False),
        (("a.com",), "http://example.com/", False),
        (("A.com",), "https://a.com/", True),
        (("a.com:443",), "https://a.com/", True),
        (("a.com:443",), "http://a.com/", False),
        (("*.a.com",), "http://x.y.a.com/", True),
        (("*.a.com",), "http://a.com/", False),
        (("*.a.com",), "http://xa.com/", False),
        (("*.a.com:81",), "http://x.a.com:81/", True),
        (("*.a.com:81",), "http://x.a.com/", False),
        (("*",), "http://anything.example/", True),
        (("bücher.example",), "http://xn--bcher-kva.example/", True),
        (("[::1]:81",), "http://[::1]:81/", True),
        (("[::1]",), "http://[::1]/", True),
    ],
)
def test_hosts_match_by_name_port_or_wildcard(
    hosts: tuple[str, ...], url: str, inside: bool
) -> None:
    """Entries match as the module's docstring says; without entries the seeds' hosts do."""
    scope = ScopeFilter(Scope(hosts=hosts), SEEDS)
    for _ in range(2):
        assert scope.verdict(url, 0) == (None if inside else "out_of_scope_host")


def test_each_rule_gives_its_reason() -> None:
    """The first rule that says no names the reason."""
    scope = ScopeFilter(
        Scope(max_depth=2, include=("/docs/", "^http:"), exclude=(r"\?print", "/private/")), SEEDS
    )
    assert scope.verdict("https://example.com/docs/a", 2) is None
    assert scope.verdict("http://example.com/other", 2) is None
    assert scope.verdict("https://example.com/docs/a", 3) == "too_deep"
    assert scope.verdict("https://other.com/docs/a", 1) == "out_of_scope_host"
    assert scope.verdict("https://example.com/docs/a.png", 1) == "binary_extension"
    assert scope.verdict("https://example.com/docs/private/", 1) == "excluded"
    assert scope.verdict("https://example.com/docs/a?print", 1) == "excluded"
    assert scope.verdict("https://example.com/other", 1) == "not_included"


@pytest.mark.parametrize(
    ("url", "binary"),
    [
        ("http://h/a.PNG", True),
        ("http://h/a.tar.gz?x=1.html", True),
        ("http://h/style.css", True),
        ("http://h/a.html?f=x.pdf", False),
        ("http://h.zip/", False),
        ("http://h/v1.zip/index", False),
        ("http://h/feed.xml", False),
        ("http://h/data.json", False),
        ("http://h/png", False),
        ("http://h/a.", False),
        ("http://h/?x=/a.png", False),
    ],
)
def test_only_the_extension_of_the_last_segment_counts(url: str, binary: bool) -> None:
    """Query, directories and host name do not make a link binary."""
    assert has_binary_extension(url) is binary


def test_binary_links_are_kept_when_asked_for() -> None:
    """skip_binary = false lets everything through."""
    assert (
        ScopeFilter(Scope(skip_binary=False), SEEDS).verdict("http://example.com/a.pdf", 0) is None
    )


@pytest.mark.parametrize(
    ("scope", "named"),
    [
        (Scope(include=("ok", "(")), r"scope\.include\[2\]: '\('"),
        (Scope(exclude=("*x",)), r"scope\.exclude\[1\]: '\*x'"),
        (Scope(hosts=("https://a.com/",)), r"scope\.hosts: 'https://a\.com/'"),
        (Scope(hosts=("a.com:99999",)), "port"),
        (Scope(hosts=("a b",)), "scope.hosts"),
        (Scope(hosts=("a.*.com",)), "scope.hosts"),
        (Scope(hosts=("",)), "scope.hosts"),
        (Scope(max_depth=-1), "scope.max_depth"),
    ],
)
def test_a_wrong_scope_is_an_error_that_names_key_and_value(scope: Scope, named: str) -> None:
    """The user sees which key and which expression to correct."""
    with pytest.raises(JobError, match=named):
        validate_scope(scope)


def test_hosts_without_end_do_not_fill_the_memory() -> None:
    """The cache of host verdicts is bounded, and forgetting changes no verdict."""
    scope = ScopeFilter(Scope(), SEEDS)
    for n in range(10_100):
        assert scope.verdict(f"http://h{n}.example/", 0) == "out_of_scope_host"
    assert len(scope._host_verdicts) <= 10_000
    assert scope.verdict("http://example.com/", 0) is None


@pytest.mark.parametrize(
    ("key", "match_verdict", "not_found"),
    [("include", None, "not_included"), ("exclude", "excluded", None)],
)
def test_a_careless_expression_keeps_nobody_busy(
    key: str, match_verdict: str | None, not_found: str | None
) -> None:
    """Python's own would try more ways than there are seconds."""
    expressions: dict[str, Any] = {key: (r"^https://example\.com/(a+)+$",)}
    scope = ScopeFilter(Scope(**expressions), SEEDS)
    assert scope.verdict("https://example.com/" + "a" * 5_000, 1) == match_verdict
    assert scope.verdict("https://example.com/" + "a" * 5_000 + "!", 1) == not_found


def test_look_around_and_back_references_are_refused() -> None:
    """Nothing runs on Python's own engine, which one such expression could keep busy for years."""
    for text in (r"/(?!private)\w+$", r"/(\w+)/\1/", r"(?=(a+)+$)"):
        with pytest.raises(JobError) as caught:
            ScopeFilter(Scope(exclude=(text,)), SEEDS)
        assert caught.value.code == "bad_expression"
