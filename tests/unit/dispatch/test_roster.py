"""Who lives, by the number of heartbeats that did not come (rule `heartbeats`)."""

from __future__ import annotations

import pytest

from tests.unit.machine_tools import heartbeat, hello
from zcrawl.dispatch.roster import Roster
from zcrawl.master.follower import LEADER_SILENT_S
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.model.states import NodeState


def roster_of(workers: int) -> Roster:
    """All of them heard at 0.0, and idle."""
    roster = Roster()
    for n in range(workers):
        info = roster.join(f"w{n}", 1, hello(), b"line", 0.0)
        roster.heartbeat(info, heartbeat(), 0.0)
    return roster


@pytest.mark.parametrize(
    ("workers", "interval_s"), [(1, 1.0), (200, 1.0), (201, 1.005), (300, 1.5), (500, 2.0)]
)
def test_silence_is_counted_in_heartbeats_which_are_rarer_above_200_workers(
    workers: int, interval_s: float
) -> None:
    """Three of them: suspect, no new work goes there; ten: lost, and its work goes elsewhere."""
    roster = roster_of(workers)
    assert roster.heartbeat_s == pytest.approx(interval_s)
    first = roster.workers["w0"]
    for intervals, state in (
        (2.9, NodeState.IDLE),
        (3.1, NodeState.SUSPECT),
        (9.9, NodeState.SUSPECT),
        (10.1, NodeState.LOST),
    ):
        lost = roster.tick(intervals * interval_s)
        assert first.state is state, intervals
        assert first.usable is (state is NodeState.IDLE)
        assert len(lost) == (workers if state is NodeState.LOST else 0)
    assert roster.tick(11 * interval_s) == [], "it is lost once"


def test_no_number_of_names_makes_the_leader_silent() -> None:
    """One key may greet under any number of names (`w1-1`, `w1-2` ...). With 5,000 of them BEAT
    came every 25 s, and all workers stopped: their permission ends after 7 s."""
    roster = Roster()
    for n in range(5_000):
        roster.join(f"w1-{n}", 1, hello(), b"line", 0.0)
    assert 2 * roster.heartbeat_s < PERMISSION_S, "a heartbeat and its echo, each one late"
    assert roster.heartbeat_s < LEADER_SILENT_S, "followers know who leads"


def test_a_suspect_that_is_heard_again_gets_work_again() -> None:
    """Any message of it will do."""
    roster = roster_of(1)
    roster.tick(4.0)
    roster.hear(roster.workers["w0"], 4.1)
    assert roster.workers["w0"].usable
    roster.tick(5.0)
    assert roster.workers["w0"].state is NodeState.IDLE
