"""The store keeps what a spider's request has beyond its URL. Runs on each backend."""

from __future__ import annotations

from tests.contract.store_world import World
from zcrawl.frontier.extra import Extra, encode, request_key
from zcrawl.frontier.url import DEFAULT, origin_of
from zcrawl.model.rows import LaneWant, NewLink, Refilled
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Applied
from zcrawl.store.queries import Refill

URL = "http://a.test/search"


def post_link(body: bytes, prio: int = 0) -> NewLink:
    extra = Extra("POST", body, {"X-One": "1"}, "parse_found", {"page": 2})
    return NewLink(
        URL, request_key(URL, extra, DEFAULT), origin_of(URL), 1, prio, extra=encode(extra)
    )


def test_requests_keep_their_extras_and_their_priority(world: World) -> None:
    """Two POSTs with different bodies are two requests, and both come back as they were asked."""
    row = world.submit("http://a.test/").admitted[0]
    first, second = post_link(b"q=1"), post_link(b"q=2", prio=-5)
    applied = world.finish(row, RequestState.DONE, links=(first, second, post_link(b"q=1")))
    assert isinstance(applied, Applied)
    assert [request.extra for request in applied.admitted] == [first.extra, second.extra]
    want = LaneWant(row.run, row.host, None, 10)
    ((_, rows, _),) = world.ask(Refill((want,)), Refilled).lanes
    assert [(request.extra, request.prio) for request in rows] == [
        (second.extra, -5),
        (first.extra, 0),
    ]


def test_found_links_have_no_extras(world: World) -> None:
    """A request without extras comes back without them, from the commit and from the table."""
    row = world.submit("http://a.test/").admitted[0]
    assert row.extra == b""
    want = LaneWant(row.run, row.host, None, 10)
    ((_, rows, _),) = world.ask(Refill((want,)), Refilled).lanes
    assert rows[0].extra == b""
