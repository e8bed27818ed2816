"""The reducer: what becomes of what the cluster says, without a terminal."""

from __future__ import annotations

import msgspec
import pytest

from console.feed.mesh import MeshFeed
from console.plain_page import page_text
from console.state import ConsoleEvent, HappeningCame, LinkChanged, LinkState, TogglePause, View
from console.view import EVENTS_KEPT, reduce
from tests.console.samples import heard, run, snapshot
from tests.unit.machine_tools import header
from zcrawl.mesh import codec
from zcrawl.mesh.messages import MessageKind
from zcrawl.mesh.ports import Arrived, Endpoints
from zcrawl.roles.watching import WatchTarget


def screen(view: View, cells: int = 160, rows: int = 40) -> str:
    return page_text(view, cells)


def test_a_rate_is_what_the_counters_grew_by() -> None:
    """Pages of each run between snapshots, over the leader's own time."""
    view = heard(*(snapshot(n, runs=[run(1, pages=100 * n), run(2, pages=5)]) for n in range(4)))
    assert view.live.rates.now.pages_s == pytest.approx(100.0)
    assert view.live.rates.by_run == {1: pytest.approx(100.0), 2: 0.0}


def test_a_run_that_comes_or_goes_is_no_jump_of_the_rate() -> None:
    """A million pages that an old run brings along were not fetched in this second."""
    view = heard(
        snapshot(0, runs=[run(1, pages=10)]),
        snapshot(1, runs=[run(1, pages=20), run(2, pages=1_000_000)]),
        snapshot(2, runs=[run(2, pages=1_000_000)]),
    )
    assert [sample.pages_s for sample in view.live.rates.samples] == [10.0, 0.0]


def test_a_clock_that_goes_back_makes_no_rate() -> None:
    """A new leader on another machine may have another idea of the time."""
    view = heard(snapshot(5), snapshot(3, epoch=4, runs=[run(1, pages=999)]))
    assert view.live.snapshot is not None and view.live.snapshot.epoch == 4
    assert view.live.rates.samples == ()


def test_a_leader_of_an_older_epoch_is_not_believed() -> None:
    """It was paused, and does not know yet that it leads no more."""
    view = heard(snapshot(0, leader="m2", epoch=5), snapshot(1, leader="m1", epoch=4))
    assert view.live.snapshot is not None and view.live.snapshot.leader == "m2"


def test_a_change_of_leader_is_told() -> None:
    """The screen says who leads now, and the events who led before."""
    view = heard(snapshot(0), snapshot(1, leader="m2", epoch=4))
    assert "m2 leads in epoch 4, before: m1" in screen(view)


async def nobody() -> list[Endpoints]:
    return []


@pytest.mark.parametrize("bad", [{}, {"leader": 5}, {"leader": "m1", "epoch": 1, "runs": [7]}])
def test_a_snapshot_that_is_none_is_counted_and_not_shown(bad: dict[str, object]) -> None:
    """G7: the screen stays as it was."""
    view = after = heard(snapshot(0))

    def emit(event: ConsoleEvent) -> None:
        nonlocal after
        after = reduce(after, event)

    feed = MeshFeed(WatchTarget("test", nobody, "nobody"))
    feed._emit = emit
    frames = [
        msgspec.msgpack.encode(header(MessageKind.SNAPSHOT, "m1")),
        msgspec.msgpack.encode([bad]),
    ]
    feed._on_published([Arrived(b"", codec.decode(frames))])
    assert after.bad_messages == 1
    assert after.live == view.live


def test_a_lost_line_says_what_is_done_and_comes_back() -> None:
    """A failover in three screens."""
    view = heard(snapshot(0))
    assert "● live" in screen(view)
    view = reduce(view, LinkChanged(LinkState.LOST, "m1 is silent; listening to m2", 5.0))
    assert "○ lost  m1 is silent; listening to m2" in screen(view)
    view = heard(snapshot(9, leader="m2", epoch=4), view=view)
    assert "● live  leader m2  epoch 4" in screen(view)


def test_a_paused_view_stands_still_while_the_data_goes_on() -> None:
    """And shows the newest as soon as it goes on."""
    view = reduce(heard(snapshot(0)), TogglePause())
    after = heard(snapshot(1, runs=[run(1, name="later")]), view=view)
    assert after.content == view.content and "paused" in screen(after)
    assert "later" not in screen(after)
    assert "later" in screen(reduce(after, TogglePause()))


def test_events_are_kept_up_to_a_limit() -> None:
    """A console that is open for a month holds no more than one that was just opened."""
    view = View()
    for n in range(EVENTS_KEPT + 50):
        view = reduce(view, HappeningCame("worker_lost", {"text": str(n), "at": 1.0}, float(n)))
    assert len(view.live.happenings) == EVENTS_KEPT
    assert view.live.happenings[-1].text == str(EVENTS_KEPT + 49)


def test_before_the_first_snapshot_the_screen_says_what_it_waits_for() -> None:
    """No empty table that looks like an empty cluster."""
    text = screen(reduce(View(), LinkChanged(LinkState.CONNECTING, "no cluster runs in x", 0.0)))
    assert "connecting" in text and "no cluster runs in x" in text
