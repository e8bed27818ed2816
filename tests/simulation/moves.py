"""Simulated clusters whose hosts move between workers, and what must hold while they do.

One worker is slow, another one joins late, and hosts get more work for a while, so that moves pay.
`watched` looks at every start of a request and at every move; `test_move_worlds` has the worlds.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tests.simulation.worlds import run_world
from zcrawl.dispatch import balancer as balancer_module
from zcrawl.dispatch.balance import GAIN, HostMove
from zcrawl.dispatch.balancer import Balancer
from zcrawl.frontier.url import origin_of
from zcrawl.master import events as m
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.process_name import ProcessName, worker_of
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.testing.faults import Faults
from zcrawl.testing.fetches import Fetches
from zcrawl.testing.processes import SimWorker
from zcrawl.testing.tasks import TaskJob
from zcrawl.testing.world import World
from zcrawl.worker.events import WorkerTicked
from zcrawl.worker.held_requests import Held

BALANCE_S = 3.0  # instead of 30 s: a world lasts about a minute
STAY_S = 12.0  # instead of 300 s
MOST_MOVE_S = 8.0  # in a calm world; a fetch of a slow worker takes 6 s
HOSTS = 12
PACED = Politeness(rate=2, concurrency=2, robots=False)
SLOW = WorkerTicked(200_000_000, 600.0, 95.0)
USUAL = WorkerTicked(200_000_000, 2.0, 30.0)


@dataclasses.dataclass(frozen=True)
class Moved:
    """A move that a leader began."""

    at: float
    leader: int  # the identity of its balancer
    move: HostMove


class Watch:
    """The moves of one world, and the checks of every start."""

    def __init__(self, *, fail_over: bool = False) -> None:
        self.moved: list[Moved] = []
        self.paying = 0  # plans after which the busiest worker that gave hosts had less to do
        self.world: World | None = None
        self._fail_over = fail_over

    def started(self, world: World, worker: SimWorker, held: Held) -> None:
        """No other worker may start requests of the host now, and no more than it allows run."""
        host, origin = held.assignment.host, origin_of(held.assignment.url)
        for other in world.workers.values():
            work = other.machine.intake.hosts.get(host)
            may_start = (
                other is not worker
                and other.alive
                and work is not None
                and work.grant.concurrency > 0
                and other.paused_until <= world.now
                and any(
                    request.assignment.host == host and not request.started
                    for request in other.machine.intake.held.values()
                )
                and other.machine.permitted_until >= world.now
            )
            assert not may_start, (
                f"{world.now:.2f}: {worker.name} starts a request of {origin}, and {other.name} may"
            )
        running = [
            visit.url
            for other in world.workers.values()
            for visit in other.visits.values()
            if visit.host == origin and visit.ended is None
        ]
        assert len(running) <= world.politeness.concurrency, f"{origin} gets {running} at a time"

    def moves(self, balancer: Balancer, moves: list[HostMove], now: float) -> None:
        for move in moves:
            host = balancer._hosts[move.host]
            assert host.clan is None, f"{move.origin} shares limits, and moves"
            self.moved.append(Moved(now, id(balancer), move))
        if moves and self._fail_over and self.world is not None:
            world = self.world
            if world.now < world.began + world.faults.until_s:
                world.at(world.rng.uniform(0.0, 0.6), world.pass_lock)


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Let leaders balance often, and tell `watch` of every move and every start."""
    start, move_hosts = Fetches.start, Balancer.move_hosts

    def checked_start(self: Fetches, worker: SimWorker, held: Held) -> None:
        watch.started(self._world, worker, held)
        start(self, worker, held)
        watch.started(self._world, worker, held)

    def checked_moves(self: Balancer, moves: list[HostMove], now: float) -> None:
        before = {capacity.name: use for capacity, use in self.worker_use(now)}
        watch.moves(self, moves, now)
        move_hosts(self, moves, now)
        after = {capacity.name: use for capacity, use in self.worker_use(now)}
        sources = {move.source for move in moves}
        for source in sources:
            watch.paying += 1
            assert after[source] <= before[source] * (1 - GAIN) + 1e-9, (
                f"no gain for {source}: {before}, {after}, {moves}"
            )
        if sources:
            assert max(after.values()) <= max(before.values()) + 1e-9, "the busiest has more to do"

    with (
        mock.patch.object(Fetches, "start", checked_start),
        mock.patch.object(Balancer, "move_hosts", checked_moves),
        mock.patch.multiple(balancer_module, BALANCE_S=BALANCE_S, STAY_S=STAY_S),
    ):
        yield


def heavy(name: str, host: int, after_s: float, politeness: Politeness = PACED) -> TaskJob:
    """Work for one host: it is heavy from then on until the job is done."""
    spec = JobSpec(name, kind="sim", politeness=politeness, fetch=Fetch(retries=4, timeout=10.0))
    origin = f"http://h{host}.site.test"
    return TaskJob(spec, 40, after_s=after_s, takes_s=0.4, good=True, host=origin)


def run_moves(
    seed: int,
    faults: Faults,
    *checks: Any,
    fail_over: bool = False,
    slow_until_s: float = 1e9,
    politeness: Politeness = PACED,
    **more: Any,
) -> tuple[World, Watch]:
    """A world with a slow worker, one that joins late, and hosts that become heavy and light."""
    watch = Watch(fail_over=fail_over)

    def prepare(world: World) -> None:
        watch.world = world
        slow, *others = world.workers.values()
        _measure(slow, SLOW, 2.0)
        for worker in others:
            _measure(worker, USUAL, 1.0)
        late = others[-1]
        late.alive = False
        world.at(8.0, lambda: _join(world, late))
        if slow_until_s < 1e9:
            world.at(slow_until_s, lambda: _swap(world, slow, others[0]))
        for after_s in (14.0, 16.0, 30.0):
            world.at(after_s, lambda: _rebalance(world))

    tasks = (heavy("first", 1, 2.0, politeness), heavy("second", 2, 15.0, politeness))
    options = {"pages": 150, "hosts": HOSTS, "runs": 1, "workers": 4, "tasks": tasks, **more}
    with watched(watch):
        world = run_world(seed, faults, *checks, prepare=prepare, politeness=politeness, **options)
    try:
        stays_where_it_went(watch)
    except AssertionError as error:
        error.add_note(f"seed {seed}, faults {faults}")
        raise
    return world, watch


def _measure(worker: SimWorker, measured: WorkerTicked, slowness: float) -> None:
    worker.measured, worker.slowness = measured, slowness


def _join(world: World, late: SimWorker) -> None:
    world.wakes.pop(late.name, None)
    late.alive = True
    world.wake(late, 0.0)


def _swap(world: World, slow: SimWorker, fast: SimWorker) -> None:
    """The slow worker is as fast as others again, and another one becomes slow; and so on."""
    _measure(slow, USUAL, 1.0)
    _measure(fast, SLOW, 2.0)
    world.at(4.0, lambda: _swap(world, fast, slow))


def _rebalance(world: World) -> None:
    """An operator asks each master, twice; the answers do not matter here."""
    epoch = world.store.tables.epoch
    for number in range(2):
        request = ClientRequest(f"rebalance-{world.now}-{number}", "rebalance", {"epoch": epoch})
        for master in world.masters.values():
            world.tell_master(master, m.ClientAsked(request.id.encode(), request))


def stays_where_it_went(watch: Watch) -> None:
    """A leader moves a host again only after STAY_S."""
    last: dict[tuple[int, int], float] = {}
    for moved in watch.moved:
        key = (moved.leader, moved.move.host)
        apart = moved.at - last.get(key, -1e9)
        assert apart >= STAY_S, f"{moved.move.origin} moves again after {apart:.1f} s"
        last[key] = moved.at


def moves_are_few(watch: Watch, leaders: int) -> None:
    """Each leader may look at a host anew, but nothing goes to and fro: while the same worker is
    slow, a host leaves each worker once for each leader at most."""
    counts: dict[tuple[int, ProcessName], int] = {}
    for moved in watch.moved:
        key = (moved.move.host, moved.move.source)
        counts[key] = counts.get(key, 0) + 1
    assert max(counts.values(), default=0) <= leaders, "a host leaves a worker again and again"


def moves_end(world: World, watch: Watch) -> None:
    """In a calm world: after a while only the new owner starts requests of the host."""
    for moved in watch.moved:
        host, target = moved.move.origin, worker_of(moved.move.target)
        until = min(
            (
                other.at
                for other in watch.moved
                if other.move.host == moved.move.host and other.at > moved.at
            ),
            default=world.now,
        )
        late = {
            visit.worker
            for visit in world.web.visits
            if visit.host == host and moved.at + MOST_MOVE_S < visit.started < until
        }
        assert late <= {target}, f"{host} went to {target} at {moved.at:.1f}, is visited by {late}"
