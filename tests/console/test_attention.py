"""What needs a person is on the overview, the worst first, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from console.attention import attention
from console.state import Answered, ConsolePage, Place, View
from console.view import reduce
from tests.console.samples import heard, limit, run, snapshot, worker


def texts(view: View) -> list[str]:
    return [f"{matter.level}: {matter.text}" for matter in attention(view)]


def test_a_healthy_cluster_needs_nobody() -> None:
    """A few failures are part of every crawl."""
    assert texts(heard(snapshot(0), snapshot(1))) == []
    assert attention(View()) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"workers": [worker("w1"), worker("w2", state="lost")]}, "bad: w2 is lost"),
        (
            {"workers": [worker("w0"), *(worker(f"w{n}", state="suspect") for n in range(1, 5))]},
            "warn: w1, w2 and 2 more are suspect",
        ),
        ({"workers": []}, "bad: no worker for the running jobs: start one"),
        ({"workers": [worker(lag_ms=900.0)]}, "warn: w1 is overloaded: 900 ms behind"),
        (
            {"store": {"state": "failing", "error": "2003", "since_s": 4.0}},
            "bad: database fails for 4.0 s: 2003",
        ),
        (
            {"runs": [run(1, pages=60, failed=40)], "failed": {"1": {"dns": 3, "http_503": 37}}},
            "bad: docs fails: 40 % of 100 requests, mostly http_503",
        ),
        ({"runs": [run(1, waits="output_unwritable")]}, "bad: docs: output_unwritable"),
        (
            {"masters": [{"id": "m2", "healthy": False}, {"id": "m1"}]},
            "bad: master m2 is down",
        ),
    ],
)
def test_each_trouble_is_named(changes: dict[str, Any], text: str) -> None:
    """With what it is about."""
    assert texts(heard(snapshot(0, **changes))) == [text]


def test_a_few_failures_of_many_are_no_trouble() -> None:
    """A share means something only when enough has failed, and an ended run needs nobody."""
    few = run(1, pages=1, failed=9)
    rare = run(2, pages=900, failed=100)
    ended = run(3, state="completed", pages=0, failed=500)
    assert texts(heard(snapshot(0, runs=[few, rare, ended]))) == []


def test_hosts_that_are_down_or_throttled_are_counted() -> None:
    """As the leader counted why hosts wait; each leads to the hosts."""
    limits = [
        limit("away", hosts=1, queued=1),
        limit("throttled", hosts=2, queued=50),
        limit("pace", hosts=9, queued=900),
    ]
    view = reduce(heard(snapshot(0)), Answered("overview:", {"limits": limits}, 1.0))
    assert texts(view) == [
        "bad: 1 host is down, 1 URL waits",
        "warn: 2 hosts are throttled (429, 503 or slow), 50 URLs wait",
    ]
    assert {matter.place.page for matter in attention(view) if matter.place} == {ConsolePage.HOSTS}


@pytest.mark.parametrize(
    ("words", "hosts", "more"),
    [
        ("host down, retry in 39 s (3 failures in a row)", 1, []),
        ("host down", 2, ["bad: 1 more host is down"]),
        ("host down", 9, ["bad: 8 more hosts are down"]),
    ],
)
def test_a_host_that_is_down_stands_once(words: str, hosts: int, more: list[str]) -> None:
    """The line of the job that waits for it says more than a count: which one, and until when."""
    waits = "waiting: https://h1.test: host down, retry in 40 s (3 failures in a row)"
    view = heard(snapshot(0, runs=[run(1, waits=waits), run(2, waits=waits, name="shop")]))
    limits = [limit("away", text=words, hosts=hosts, queued=5)]
    view = reduce(view, Answered("overview:", {"limits": limits}, 1.0))
    assert texts(view) == [f"bad: docs: {waits}", f"bad: shop: {waits}", *more]


def test_the_worst_comes_first() -> None:
    """There is room for three on a small screen."""
    states = [worker("w1", state="suspect"), worker("w2", state="lost"), worker("w3")]
    levels = [matter.level for matter in attention(heard(snapshot(0, workers=states)))]
    assert levels == ["bad", "warn"]


@pytest.mark.parametrize("limits", [None, "x", {"away": 3}, ["x", {"code": 5, "hosts": "x"}]])
def test_what_a_leader_of_another_version_says_does_no_harm(limits: object) -> None:
    """Anything may come over the wire."""
    view = reduce(heard(snapshot(0)), Answered("overview:", {"limits": limits}, 1.0))
    assert isinstance(attention(view), list)


def listed(**changes: Any) -> dict[str, Any]:
    """The list of a standalone node, `n1`; all is well."""
    nodes = [{"id": f"n{n}", "alive": True, "fingerprint": "aa11"} for n in (1, 2, 3)]
    return {"node": "n1", "fingerprint": "aa11", "watched": True, "nodes": nodes, **changes}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{"id": "n1"}, {"id": "n2"}], []),
        (
            [{"id": "n1"}, {"id": "n2", "differs": True, "fingerprint": "bb22"}],
            [
                "bad: n2 has another list of nodes than this node (aa11): some resources have two "
                "owners or none"
            ],
        ),
        (
            [{"id": "n1"}, *({"id": f"n{n}", "alive": False} for n in range(2, 6))],
            ["bad: n2, n3 and 2 more are silent: the living nodes have their share"],
        ),
        ([{"id": "n2"}], ["warn: n1 is not in the list of nodes: it owns nothing"]),
    ],
)
def test_trouble_of_standalone_nodes_is_named(
    nodes: list[dict[str, Any]], expected: list[str]
) -> None:
    """Another list, silence, and a node that is not listed; each leads to the nodes."""
    view = heard(snapshot(0, standalone=listed(nodes=nodes)))
    assert texts(view) == expected
    assert all(matter.place == Place(ConsolePage.NODES) for matter in attention(view))


def test_a_list_on_which_all_agree_needs_nobody() -> None:
    """Nor does a snapshot of a version that had no list."""
    assert texts(heard(snapshot(0, standalone=listed()))) == []
    assert texts(heard(snapshot(0))) == []
