"""Events for many clients: one ring, places in it, gaps."""

import asyncio
from contextlib import AsyncExitStack

import msgspec

from zcrawl.gateway.changes import StateChange
from zcrawl.gateway.hub import EVENTS_KEPT, HEARTBEAT, STUCK_S, EventHub, Filter
from zcrawl.gateway.services import PublishedEvent, PublishedMessage, Services
from zcrawl.model.snapshot import LiveRunView, PublishedSnapshot


class QuietHub(EventHub):
    """A hub without its tasks: the test says what was heard, and when."""

    def __init__(self, boot: str = "b1") -> None:
        super().__init__(_NOBODY, boot=boot)

    def _start(self) -> None:
        pass


_NOBODY: Services = None  # type: ignore[assignment]  # a QuietHub never speaks to a cluster


def publish(hub: EventHub, count: int, job: int = 1) -> None:
    for n in range(count):
        hub.publish(StateChange("run", {"n": n}, job, 10 + job, f"job{job}"))


def ids(piece: bytes) -> list[str]:
    lines = piece.decode().split("\n")
    return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]


async def pieces(hub: EventHub, wanted_events: Filter, last_id: str) -> bytes:
    async with hub.reader(wanted_events, last_id) as reader:
        first = await reader.next_piece()
        if reader.number == hub.number:
            return first
        return first + await reader.next_piece()


def test_a_client_goes_on_after_the_event_that_it_names() -> None:
    """Reconnect with Last-Event-ID: the events since then, each once, and no gap."""
    hub = QuietHub()
    publish(hub, 5)
    piece = asyncio.run(pieces(hub, Filter(), "b1-3"))
    assert ids(piece) == ["b1-4", "b1-5"]
    assert b"event: gap" not in piece


def test_a_client_without_a_number_begins_now() -> None:
    """It gets no old events."""
    hub = QuietHub()
    publish(hub, 5)
    assert ids(asyncio.run(pieces(hub, Filter(), ""))) == []


def test_a_gap_is_told() -> None:
    """Events that have left the ring are counted; the rest follows."""
    hub = QuietHub()
    publish(hub, EVENTS_KEPT + 10)
    piece = asyncio.run(pieces(hub, Filter(), "b1-3"))
    assert b'event: gap\ndata: {"missed":7,' in piece
    assert ids(piece)[:2] == ["b1-10", "b1-11"]
    assert len(ids(piece)) == EVENTS_KEPT + 1


def test_the_id_of_another_gateway_gives_a_gap() -> None:
    """Another process does not know what the client has got; nor does a made-up id."""
    hub = QuietHub()
    publish(hub, 5)
    for last_id in ("b2-3", "b1-6", "b1-x", "b1--1", "3", "é", "b1-" + "9" * 90):
        piece = asyncio.run(pieces(hub, Filter(), last_id))
        assert b"event: gap" in piece, last_id
        assert ids(piece) == ["b1-5"]


def test_a_filter_lets_only_a_job_pass() -> None:
    """By id and by name, by run, and by kind; a gap concerns everybody."""
    hub = QuietHub()
    publish(hub, 1, job=1)
    publish(hub, 1, job=2)
    hub.take(PublishedMessage("m1", event=PublishedEvent("x", {"text": "hello", "run": 0})))
    hub.take(PublishedMessage("m1", missed=4))
    expected = {
        Filter(job="2"): ["b1-2", "b1-4"],
        Filter(job="job1"): ["b1-1", "b1-4"],
        Filter(run=12): ["b1-2", "b1-4"],
        Filter(kinds=frozenset({"log"})): ["b1-3", "b1-4"],
    }
    for event_filter, numbers in expected.items():
        assert ids(asyncio.run(pieces(hub, event_filter, "b1-0"))) == numbers


def test_an_event_is_encoded_once_for_all_clients() -> None:
    """500 clients at the same place send the same object."""
    hub = QuietHub()

    async def read() -> set[int]:
        async with AsyncExitStack() as stack:
            readers = [
                await stack.enter_async_context(hub.reader(Filter(), "b1-0")) for _ in range(500)
            ]
            publish(hub, 20)
            for reader in readers:
                await reader.next_piece()
            sent = [await reader.next_piece() for reader in readers]
            return {id(piece) for piece in sent}

    assert len(asyncio.run(read())) == 1


def test_a_client_that_has_nothing_to_read_gets_heartbeats() -> None:
    """A comment, once for each beat; other wake-ups give nothing."""
    hub = QuietHub()

    async def read() -> list[bytes]:
        async with hub.reader(Filter(), "") as reader:
            got = [await reader.next_piece()]
            for beats in (0, 1, 1):
                hub.beats = beats
                waiting = asyncio.ensure_future(reader.next_piece())
                await asyncio.wait({waiting}, timeout=0)
                hub.wake()
                got.append(await waiting)
            return got[1:]

    assert asyncio.run(read()) == [b"", HEARTBEAT, b""]


def test_a_client_that_takes_nothing_is_to_be_cut_off() -> None:
    """After STUCK_S in which its connection has not taken a piece; not before."""
    hub = QuietHub()

    async def read() -> tuple[int, int]:
        async with hub.reader(Filter(), "") as stuck, hub.reader(Filter(), ""):
            stuck.sending_since = 100.0
            before, after = 100.0 + STUCK_S - 1, 100.0 + STUCK_S
            return len(hub.cut_off(before)), len(hub.cut_off(after))

    assert asyncio.run(read()) == (0, 1)


def test_log_events_of_a_run_say_their_job() -> None:
    """The leader names the run only; clients filter by job."""
    hub = QuietHub()
    runs = (LiveRunView(7, 70, name="books", state="running"),)
    hub.take(PublishedMessage("m1", snapshot=PublishedSnapshot(leader="m1", epoch=1, runs=runs)))
    hub.take(
        PublishedMessage("m1", event=PublishedEvent("x", {"text": "a\nevent: run", "run": 70}))
    )
    piece = asyncio.run(pieces(hub, Filter(job="books"), "b1-0"))
    data = piece.decode().partition("data: ")[2].partition("\n")[0]
    assert msgspec.json.decode(data)["job_name"] == "books"
    assert piece.count(b"\nevent: ") == 1
