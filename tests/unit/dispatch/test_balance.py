"""The balance of loads: capacities, the moves that pay, and that nothing moves back and forth."""

from __future__ import annotations

import random

import msgspec

from tests.unit.dispatch.test_planner import Office
from tests.unit.machine_tools import run_row
from zcrawl.dispatch.balance import (
    BALANCE_S,
    GAIN,
    MOST_MOVES,
    STAY_S,
    Capacity,
    HostLoad,
    HostMove,
    capacities,
    is_busy,
    plan_moves,
    smoothed,
    use_of,
)
from zcrawl.model.process_name import ProcessName, worker_of
from zcrawl.model.spec import Placement, Politeness
from zcrawl.model.vitals import WorkerVitals

A, B, C = (ProcessName(f"{name}#1") for name in "abc")
ALL = frozenset((A, B, C))
PACED = Politeness(robots=False, rate=5.0, concurrency=4)
EU = Placement(prefer=("eu",))


def load(id: int, owner: ProcessName, rate: float = 1.0, **changes: object) -> HostLoad:
    fields = {"able": ALL, **changes}
    return HostLoad(id, f"http://h{id}.test", owner, rate, **fields)  # type: ignore[arg-type]


def test_lag_memory_and_speed_reduce_the_capacity_and_are_named() -> None:
    """A worker without measurements has its slots."""
    usual = WorkerVitals(slots=10, rate=50.0, cpu_percent=50.0, rss_bytes=400_000_000)
    slow = WorkerVitals(slots=10, rate=25.0, cpu_percent=100.0, rss_bytes=400_000_000)
    late = WorkerVitals(slots=10, lag_ms=400.0, rss_bytes=400_000_000)
    large = WorkerVitals(slots=10, rss_bytes=2_400_000_000)
    names = [ProcessName(f"w{n}#1") for n in range(5)]
    vitals = [usual, usual, slow, late, large]
    result = capacities(list(zip(names, vitals, strict=True)))
    assert [capacity.slots for capacity in result] == [10.0, 10.0, 2.5, 2.5, 2.5]
    assert [capacity.why for capacity in result] == [
        "",
        "",
        "25 requests/s per core",
        "lag 400 ms",
        "memory 2400 MB",
    ]
    assert capacities([]) == []


def test_capacities_change_by_half_at_a_time() -> None:
    """One bad second moves no host."""
    now = [Capacity(A, 4.0), Capacity(B, 8.0)]
    assert smoothed({A: 8.0, C: 1.0}, now) == {A: 6.0, B: 8.0}


def test_hosts_leave_a_busy_worker_for_the_one_with_most_room() -> None:
    """The move names both uses and the cause."""
    hosts = [load(n, A) for n in range(10)] + [load(20, B)]
    workers = [Capacity(A, 10.0, "lag 300 ms"), Capacity(B, 10.0), Capacity(C, 20.0)]
    moves = plan_moves(hosts, workers)
    assert moves[0].why == "a may be asked for 1 requests/s per slot (lag 300 ms), c for 0"
    assert {move.source for move in moves} == {A}
    assert moves[0].target == C
    after = [
        load(host.id, next((m.target for m in moves if m.host == host.id), host.owner))
        for host in hosts
    ]
    use = use_of(after, workers)
    assert use[A] < 0.8


def test_nothing_moves_if_it_does_not_pay() -> None:
    """Not from an idle worker, not for a small gain, not a host that has just moved, and not to a
    worker that lacks what its jobs need."""
    workers = [Capacity(A, 10.0), Capacity(B, 10.0)]
    assert plan_moves([load(n, A) for n in range(20)], workers, sources=[B]) == []
    even = [load(n, A) for n in range(9)] + [load(n, B) for n in range(10, 18)]
    assert plan_moves(even, workers) == []
    assert plan_moves([load(n, A, is_new=True) for n in range(20)], workers) == []
    assert plan_moves([load(n, A, able=frozenset((A,))) for n in range(20)], workers) == []
    assert plan_moves([load(1, A, rate=50.0)], workers) == []
    assert plan_moves([load(1, C, rate=50.0)], workers) == []  # its owner is not usable


def test_planned_moves_improve_every_state_and_then_there_is_nothing_more_to_move() -> None:
    """Random states: the busiest worker is used less after each plan, and plans come to an end."""
    for seed in range(200):
        rng = random.Random(seed)
        workers = [Capacity(name, rng.uniform(2, 40)) for name in (A, B, C)]
        hosts = [
            load(n, rng.choice((A, B, C)), rng.choice([0.2, 1.0, 5.0, 20.0]))
            for n in range(rng.randint(1, 60))
        ]
        for _ in range(30):
            moves = plan_moves(hosts, workers)
            if not moves:
                break
            assert len(moves) <= MOST_MOVES
            targets_of_moves = {move.target for move in moves}
            assert not targets_of_moves & {move.source for move in moves}, "hosts are exchanged"
            before = max(use_of(hosts, workers).values())
            targets = {move.host: move.target for move in moves}
            hosts = [load(host.id, targets.get(host.id, host.owner), host.load) for host in hosts]
            assert max(use_of(hosts, workers).values()) <= before + 1e-9
        else:
            raise AssertionError(f"seed {seed}: hosts move for ever")


def test_a_planner_moves_hosts_away_from_a_busy_worker_and_back_only_when_it_pays() -> None:
    """Each host moves when its owner has released it, and stays for a while."""
    office = Office(Politeness(robots=False, rate=5.0, concurrency=4), workers=1)
    for host in range(1, 9):
        office.add(40, host=host)
    office.plan()
    office.join("w2")
    for name in ("w1", "w2"):
        office.roster.workers[name].heard_at = office.now
    busy = office.planner.balancer.worker_use(office.now)
    assert max(use for _, use in busy) > 1.0
    moves = office.planner.balancer.moves(office.now)
    before = {state.id: state.moved_at for state in office.planner.hosts.values()}
    assert all(moved_at < 0 for moved_at in before.values())
    assert moves
    office.planner.balancer.move_hosts(moves, office.now)
    targets = {move.host: move.target for move in moves}
    assert all(office.planner.hosts[host].target == target for host, target in targets.items())
    assert office.planner.balancer.moves(office.now + 1.0) == []
    _settle(office)
    owners = {state.id: set(state.parts) for state in office.planner.hosts.values()}
    assert all(owners[host] == {target} for host, target in targets.items())
    assert all(owners[host] == {ProcessName("w1#1")} for host in owners.keys() - targets.keys())


def test_only_a_busy_worker_gives_hosts_away_by_itself() -> None:
    """Busy by its slots, its core, or a late loop."""
    idle = WorkerVitals(slots=10, running=5, cpu_percent=50.0, lag_ms=5.0)
    assert not is_busy(idle)
    assert is_busy(msgspec.structs.replace(idle, running=8))
    assert is_busy(msgspec.structs.replace(idle, cpu_percent=95.0))
    assert is_busy(msgspec.structs.replace(idle, lag_ms=500.0))
    assert STAY_S > BALANCE_S
    assert 0 < GAIN < 1


def test_a_host_moves_only_to_workers_that_its_jobs_prefer() -> None:
    """It would stay where it is, the leader would count it at the other worker for ever, and the
    busy worker would stay busy."""
    office = Office(PACED, workers=1)
    office.runs.put(run_row(1, msgspec.structs.replace(office.spec, placement=EU)))
    for host in range(1, 9):
        office.add(40, host=host)
    label(office, "w1", "eu")
    office.plan()
    office.join("w2")
    label(office, "w2")
    assert office.planner.balancer.moves(office.now) == []
    office.join("w3")
    label(office, "w3", "eu")
    moves = office.planner.balancer.moves(office.now)
    assert {move.target for move in moves} == {ProcessName("w3#1")}


def label(office: Office, name: str, *labels: str) -> None:
    worker = office.roster.workers[name]
    worker.labels, worker.heard_at = frozenset(labels), office.now


def test_a_host_does_not_return_to_the_worker_that_it_moved_to_and_that_was_drained() -> None:
    """It has another owner meanwhile, and moves only if that pays."""
    office = Office(PACED, workers=3)
    office.add(400)
    office.plan()
    host = office.planner.hosts[1]
    (owner,) = host.parts
    target, rest = sorted(name for name in map(_process, office.roster.workers) if name != owner)
    office.planner.balancer.move_hosts([HostMove(1, host.origin, owner, target, "")], office.now)
    _settle(office)
    assert set(host.parts) == {target}
    drained = office.roster.workers[worker_of(target)]
    for is_drained in (True, False):
        drained.drained = is_drained
        office.planner.worker_drained(drained)
        _settle(office)
        assert len(host.parts) == 1
        assert target not in host.parts
    assert host.parts.keys() <= {owner, rest}


def _process(name: str) -> ProcessName:
    return ProcessName(f"{name}#1")


def _settle(office: Office) -> None:
    """Plan until all former owners have confirmed that they let go."""
    for _ in range(8):
        for state in office.planner.hosts.values():
            for name, part in list(state.parts.items()):
                office.planner.granter.confirm(name, state.id, part.revision, office.now)
        office.plan(1.0)
