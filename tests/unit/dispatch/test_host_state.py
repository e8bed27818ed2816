"""The arithmetic of a host's parts, and what changes them."""

from __future__ import annotations

import math

import pytest

from zcrawl.dispatch.host_state import HostState, Part, shares
from zcrawl.dispatch.shared_limits import HOLD_S
from zcrawl.frontier.pace import Demand, Pace
from zcrawl.model.process_name import ProcessName, process_name
from zcrawl.model.reasons.failure import HOST_DOWN


def host(interval_s: float = 0.0, concurrency: int = 4, burst: int = 1) -> HostState:
    demand = Demand(interval_s, burst, concurrency, False)
    return HostState(1, "http://h1.test", demand, Pace(interval_s, burst))


@pytest.mark.parametrize("concurrency", [1, 2, 3, 7, 32])
@pytest.mark.parametrize("workers", [1, 2, 5, 40])
def test_shares_add_up_to_the_concurrency(concurrency: int, workers: int) -> None:
    """Nothing of a host's concurrency is lost or invented, and shares differ by one at most."""
    names = [process_name(f"w{n}", 1) for n in range(workers)]
    parts = shares(Demand(0.0, 1, concurrency, True), names)
    assert sum(parts.values()) == concurrency
    assert max(parts.values()) - min(parts.values()) <= 1
    assert min(parts.values()) >= 1
    assert list(parts) == names[: min(workers, concurrency)], "in the order of the ranking"


def test_a_host_that_is_not_spread_has_one_owner() -> None:
    """The first of the ranking has all of it; nobody has a host without workers."""
    demand = Demand(0.0, 1, 4, False)
    assert shares(demand, [ProcessName("b"), ProcessName("a")]) == {"b": 4}
    assert shares(demand, []) == {}


def test_room_is_what_nobody_may_be_using() -> None:
    """A lowered part counts with what it may still be using, not with what it was told."""
    state = host(concurrency=4)
    state.parts = {ProcessName("w1#1"): Part(1, 3, 1)}
    assert state.room(0.0) == 1


def test_an_inherited_host_has_no_room_until_its_lease_ends() -> None:
    """Rule `takeover`."""
    state = host()
    state.inherited, state.inherited_until = {ProcessName("w1#1")}, 10.0
    assert (state.room(9.9), state.room(10.0)) == (0, 4)
    state.inherited.clear()
    assert state.room(0.0) == 4


@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("burst", [1, 3, 50])
def test_a_worker_never_holds_more_than_five_seconds_of_work(rate: float, burst: int) -> None:
    """Rule `permission`: at most concurrency + 5 s × rate URLs of one host."""
    state = host(1 / rate, burst=burst)
    part = Part(4, 4, 1)
    assert state.hold_limit(part, 1_000.0) <= 4 + math.ceil(HOLD_S * rate)
    assert state.hold_limit(part, 0.0) > 4, "one more than runs is always at hand"


def test_a_part_of_the_concurrency_has_the_same_part_of_the_rate() -> None:
    """Rule `grants`: the parts' rates add up to the host's."""
    state = host(0.5, concurrency=4)
    parts = [Part(granted, granted, 1) for granted in (1, 1, 2)]
    assert sum(1 / state.part_interval_s(part) for part in parts) == pytest.approx(2.0)


@pytest.mark.parametrize("parts", [[Part(3, 3, 1), Part(2, 2, 2)], [Part(2, 1, 1)]])
def test_a_check_tells_of_parts_that_exceed_the_concurrency(parts: list[Part]) -> None:
    """The invariants are asserted, so that the simulation can catch a breach."""
    state = host(concurrency=4)
    state.parts = {ProcessName(f"w{n}#1"): part for n, part in enumerate(parts)}
    with pytest.raises(AssertionError):
        state.check()


def test_a_lowered_part_stays_in_use_until_it_is_confirmed() -> None:
    """Raising counts at once; what is given up is free when the worker says so."""
    part = Part(0, 0, 0)
    part.raise_to(4, revision=1)
    part.lower_to(1, revision=2)
    assert (part.granted, part.in_use, part.revision) == (1, 4, 2)
    part.confirm()
    assert part.in_use == 1


@pytest.mark.parametrize(("cancelled_at", "in_use"), [(-math.inf, 1), (95.0, 3)])
def test_a_lost_part_counts_what_may_still_run(cancelled_at: float, in_use: int) -> None:
    """Its open leases; and all that it was granted, if leases ended with their run just before."""
    part = Part(3, 3, 1, held=1, cancelled_at=cancelled_at)
    part.lose(100.0, 20.0)
    assert (part.granted, part.held, part.in_use, part.gone_at) == (0, 0, in_use, 120.0)
    part.lease_left()  # the lease is given back after the loss
    assert part.held == 0


def test_the_moment_that_a_host_is_put_off_to_never_goes_back() -> None:
    """Results come in any order, and an older one names an earlier moment. Places in the pace that
    are given back do not reach before it either."""
    state = host(2.0)
    state.put_off_until(10.0)
    state.put_off_until(4.0)
    assert (state.not_before, state.pace.next_at) == (10.0, 10.0)
    state.request_sent(10.0)
    state.put_off_until(11.0)
    assert state.pace.next_at == 12.0, "the place that was taken is kept"
    state.take_back_start()
    assert state.pace.next_at == 11.0
    state.request_sent(11.0)
    state.forget_ahead()
    assert state.pace.next_at == 11.0


def test_an_inherited_owner_that_greets_gives_the_pace_back() -> None:
    """Until then the pace waits for the end of whatever that owner may have started."""
    state = host(2.0)
    state.put_off_until(10.0)
    state.inherit({ProcessName("w1#1")}, until=60.0, over_at=50.0)
    assert (state.pace.next_at, state.is_inherited(59.0)) == (52.0, True)
    state.settle_inherited(ProcessName("w1#1"))
    assert (state.pace.next_at, state.is_inherited(59.0)) == (10.0, False)


def test_a_host_stands_in_the_heap_for_the_earliest_moment() -> None:
    """A later moment changes nothing; after it was taken from the heap, any moment counts."""
    state = host()
    assert [state.schedule(moment) for moment in (5.0, 7.0, 5.0, 3.0)] == [True, False, False, True]
    state.unschedule()
    assert state.schedule(9.0)


def test_runs_take_turns_at_a_host_and_leave_nothing_behind() -> None:
    """The run whose turn it is goes to the end of the line; one that ended is forgotten whole."""
    state = host()
    for run in (1, 2, 3):
        state.add_run(run)
    turns = []
    for _ in range(4):
        turns.append(state.turns()[0])
        state.took_turn(turns[-1])
    assert turns == [1, 2, 3, 1]
    state.count_pages(2, 5)
    state.end_runs_here(HOST_DOWN)
    state.run_ended(2)
    assert (state.runs, state.pages, set(state.verdicts)) == ([3, 1], {}, {1, 3})


def test_the_run_with_the_highest_priority_goes_first_and_equal_ones_take_turns() -> None:
    """A turn of one changes nothing for those above and below it."""
    state = host()
    for run, priority in ((1, 0), (2, 5), (3, 5), (4, -1)):
        state.add_run(run, priority)
    assert state.turns() == [2, 3, 1, 4]
    state.took_turn(2)
    assert state.turns() == [3, 2, 1, 4]
    state.set_priority(4, 9)
    state.set_priority(2, 0)
    assert state.turns() == [4, 3, 1, 2]
    state.run_ended(4)
    assert (state.turns(), state.priorities) == ([3, 1, 2], {3: 5})
