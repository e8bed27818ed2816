"""The window of the frontier: how many rows it asks for while answers are on their way."""

from __future__ import annotations

from zcrawl.frontier.frontier import CROWDED_ROWS, REFILL_ROWS, WINDOW_ROWS, Frontier
from zcrawl.model.rows import LaneCount, LaneWant, QueuedRow, Refilled

LANES = 1_000


def loaded() -> Frontier:
    """After a takeover: many hosts with long queues, and nothing in memory."""
    frontier = Frontier()
    frontier.load([LaneCount(1, host, 10_000) for host in range(LANES)])
    return frontier


def all_wants(frontier: Frontier) -> list[LaneWant]:
    """What is asked for in ticks that follow each other faster than the reader answers."""
    wants: list[LaneWant] = []
    while more := frontier.wants():
        wants += more
    return wants


def rows_of(want: LaneWant) -> list[QueuedRow]:
    first = want.host * 10_000
    return [
        QueuedRow(1, want.host, 0, 0, seq, f"http://h{want.host}/{seq}")
        for seq in range(first, first + want.limit)
    ]


def test_a_slow_reader_is_not_asked_for_more_than_the_window_holds() -> None:
    """What was asked for counts as if it were here; every lane gets something all the same."""
    frontier = loaded()
    wants = all_wants(frontier)
    assert len(wants) == LANES
    assert sum(want.limit for want in wants) <= WINDOW_ROWS + LANES * CROWDED_ROWS
    frontier.refilled(
        Refilled([(want, rows_of(want), False) for want in wants]), lambda seq: False, 0.0, 1.0
    )
    frontier.check()
    assert frontier.rows <= WINDOW_ROWS + LANES * CROWDED_ROWS
    assert all(lane.ready for lane in frontier.lanes.values())


def test_refills_that_failed_leave_their_room() -> None:
    """The next ones are as large as the first."""
    frontier = loaded()
    frontier.refill_failed(all_wants(frontier))
    assert all_wants(frontier)[0].limit == REFILL_ROWS
