"""Simulated clusters whose hosts move between workers: politely, to an end, and only if it pays."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from tests.simulation.moves import Watch, moves_are_few, moves_end, run_moves
from zcrawl.dispatch.balance import HostMove
from zcrawl.dispatch.balancer import Balancer
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState, Part
from zcrawl.model.process_name import ProcessName
from zcrawl.model.spec import Politeness
from zcrawl.testing.faults import CALM, LEADER_CHANGES_ONLY, draw
from zcrawl.testing.verify import nothing_was_fetched_twice
from zcrawl.testing.world import World

CHUNK = 10
MOST_SEEDS = 40
SHARED = Politeness(rate=4, concurrency=2, domain_rate=8, robots=False)
DRAINS = dataclasses.replace(CALM, drains=3, worker_crashes=3, until_s=25.0)


def requests_of(world: World, worker: str, begin: float, end: float) -> float:
    """How many requests per second a worker started between two moments."""
    starts = [visit for visit in world.web.visits if visit.worker == worker]
    return sum(begin <= visit.started < end for visit in starts) / (end - begin)


def calm_move(seed: int) -> tuple[World, Watch]:
    world, watch = run_moves(seed, CALM, nothing_was_fetched_twice)
    moves_end(world, watch)
    moves_are_few(watch, 1)
    return world, watch


def test_hosts_leave_a_slow_worker_and_it_has_less_to_do() -> None:
    """Each page is fetched once, each move ends within seconds, and nothing moves back."""
    moved, before, after = 0, 0.0, 0.0
    for seed in range(CHUNK):
        world, watch = calm_move(seed)
        moved += len(watch.moved)
        if watch.moved:
            first, last = watch.moved[0].at, watch.moved[-1].at
            before += requests_of(world, "w0", world.began, first)
            after += requests_of(world, "w0", last + 2.0, last + 12.0)
    assert after < 0.7 * before, f"{after:.2f}/s at the slow workers, {before:.2f}/s before"
    assert moved > CHUNK, f"the worlds do have moves: {moved}"


@pytest.mark.parametrize("first", range(0, 30, CHUNK))
def test_moves_are_polite_whatever_happens(first: int) -> None:
    """Loss, reordering, crashes, partitions, drains, operators who move hosts: no host ever has two
    workers that may start its requests, and its concurrency and pace hold over every move."""
    moved = 0
    for seed in range(first, first + CHUNK):
        faults = dataclasses.replace(draw(random.Random(seed)), max_pages=None)
        _, watch = run_moves(seed, faults, slow_until_s=10.0)
        moved += len(watch.moved)
    assert moved > CHUNK, f"the worlds do have moves: {moved}"


def test_workers_that_are_drained_or_crash_while_hosts_move_hold_nothing_up() -> None:
    """The hosts go elsewhere, and every page is there once."""
    moved = 0
    for seed in range(CHUNK):
        _, watch = run_moves(seed, DRAINS)
        moved += len(watch.moved)
    assert moved > CHUNK, f"the worlds do have moves: {moved}"


def failed_over(seed: int) -> tuple[World, Watch]:
    world, watch = run_moves(seed, LEADER_CHANGES_ONLY, nothing_was_fetched_twice, fail_over=True)
    moves_are_few(watch, world.store.tables.epoch)
    return world, watch


@pytest.mark.parametrize("first", [0, CHUNK])
def test_a_leader_that_changes_in_the_middle_of_a_move_repeats_nothing(first: int) -> None:
    """The next leader begins anew with the owners that it hears of; no page is fetched twice, and
    each of a few leaders moves a host away from the slow worker once at most."""
    leaders = 0
    for seed in range(first, first + CHUNK):
        _, watch = failed_over(seed)
        leaders += len({moved.leader for moved in watch.moved})
    assert leaders > CHUNK, "several leaders of a world move hosts"


def test_a_host_stays_for_a_while_although_loads_go_to_and_fro() -> None:
    """Every 4 s another worker is slow."""
    for seed in range(CHUNK):
        run_moves(seed, CALM, nothing_was_fetched_twice, slow_until_s=4.0)


def test_hosts_that_share_limits_stay_together() -> None:
    """Under faults: the balance moves none of them, an operator all of them."""
    for seed in range(CHUNK):
        faults = dataclasses.replace(draw(random.Random(seed)), max_pages=None, moves=3)
        _, watch = run_moves(seed, faults, politeness=SHARED, pages=60)
        assert not watch.moved


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def begin_before_the_former_owner_let_go() -> Iterator[None]:
    """The new owner gets the host while the former one may still start requests."""

    def room(self: HostState, now: float) -> int:
        return 0 if self.is_inherited(now) else self.demand.concurrency

    with (
        mock.patch.object(Granter, "_another_may_start", lambda self, host, desired: False),
        mock.patch.object(HostState, "room", room),
        mock.patch.object(
            Granter,
            "_raise",
            lambda self, host, part, want: part.raise_to(want, self._next_revision()),
        ),
    ):
        yield


@contextlib.contextmanager
def forget_the_pace() -> Iterator[None]:
    """The new owner may start a request at once."""

    def careless(self: HostState, part: Part, now: float) -> None:
        part.first_at = now
        self.pace.next_at = now

    with mock.patch.object(HostState, "delay_first_start", careless):
        yield


@contextlib.contextmanager
def repeat_moves_after_a_failover() -> Iterator[None]:
    """Every leader but the first takes its moves back when it compares loads again."""
    balance, move_hosts = Balancer.balance, Balancer.move_hosts
    sources: dict[tuple[int, int], ProcessName] = {}

    def remember(self: Balancer, planned: list[HostMove], now: float) -> None:
        move_hosts(self, planned, now)
        sources.update({(id(self), move.host): move.source for move in planned})

    def restless(self: Balancer, now: float) -> None:
        if self._granter.revision >> 32 > 1:
            for host in self._hosts.values():
                if host.target:
                    host.move_to(sources[id(self), host.id], -math.inf)
        balance(self, now)

    with (
        mock.patch.object(Balancer, "move_hosts", remember),
        mock.patch.object(Balancer, "balance", restless),
    ):
        yield


def story_goes_wrong(seed: int) -> str | None:
    """What a check said of a calm world, of one with failovers or of one with changing loads."""
    try:
        calm_move(seed)
        failed_over(seed)
        run_moves(seed, CALM, slow_until_s=4.0)
        run_moves(seed, draw(random.Random(seed)), slow_until_s=10.0)
    except AssertionError as error:
        return str(error)
    return None


PLANTED: dict[Callable[[], AbstractContextManager[None]], str] = {
    begin_before_the_former_owner_let_go: "may|at a time|apart|parts must not",
    forget_the_pace: "apart",
    repeat_moves_after_a_failover: "moves again",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each of them in one of the first worlds, and by the check that is meant for it."""
    with plant():
        caught = (story_goes_wrong(seed) for seed in range(MOST_SEEDS))
        complaint = next((problem for problem in caught if problem is not None), None)
    assert complaint is not None, f"{plant.__name__} was not noticed in {MOST_SEEDS} worlds"
    assert re.search(PLANTED[plant], complaint), complaint
