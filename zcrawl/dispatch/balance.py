"""Plan which hosts should move to which workers, because it pays.

Called by `balancer`: every BALANCE_S, and when the desk asks for `zcrawl rebalance`. The capacity
of a worker is its slots, times factors for its measured speed, the lag of its loop and its memory.
The load of a worker is what its hosts may ask of it: their rates. A move is made only if the busier
of the two workers is less busy afterwards, and the moves from a worker only if all together make a
clear difference (`GAIN`). In one plan a worker gives hosts or gets some, not both. A host that
moved stays for STAY_S. So hosts do not move back and forth.
Hosts that are shared, or that share limits, stay where they are.

`capacities` also weighs the number of hosts that a worker owns at most (`host_owners`). Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

import msgspec

from zcrawl.model.process_name import ProcessName, worker_of
from zcrawl.model.vitals import WorkerVitals

BALANCE_S: Final = 30.0
STAY_S: Final = 300.0
GAIN: Final = 0.15  # of the use of the busier worker
BUSY_SLOTS: Final = 0.8  # of its slots; or BUSY_CPU of a core, or a late loop: then hosts move
BUSY_CPU: Final = 90.0  # percent
MOST_MOVES: Final = 20  # at once
LAG_MS: Final = 100.0  # more means that the worker's loop has too much to do
MEMORY_FACTOR: Final = 1.5  # times the median is usual
LEAST_BYTES: Final = 500_000_000  # of a process that counts as large
LEAST_CPU: Final = 20.0  # percent; below that its speed cannot be measured
LEAST_RATE: Final = 1.0
LEAST_FACTOR: Final = 0.2
MOST_SPEED: Final = 4.0  # times the median


class Capacity(msgspec.Struct, frozen=True):
    """What a worker can do, in slots of a usual worker."""

    name: ProcessName
    slots: float
    why: str = ""  # what makes it differ from its slots


class HostLoad(msgspec.Struct, frozen=True):
    """A host that one worker owns and that may move."""

    id: int
    origin: str
    owner: ProcessName
    load: float  # requests per second, as far as it has work
    able: frozenset[ProcessName]  # workers that serve its runs
    is_new: bool = False  # it has moved not long ago


class HostMove(msgspec.Struct, frozen=True):
    """A host that goes to another worker, and why."""

    host: int
    origin: str
    source: ProcessName
    target: ProcessName
    why: str


def capacities(workers: Sequence[tuple[ProcessName, WorkerVitals]]) -> list[Capacity]:
    """Return the capacity of each worker."""
    speeds = {name: speed for name, vitals in workers if (speed := _speed(vitals))}
    usual_speed = _median(speeds.values())
    usual_bytes = _median(v.rss_bytes for _, v in workers)
    result = []
    for name, vitals in workers:
        slots, reasons = float(vitals.slots), []
        if name in speeds and len(speeds) > 1:
            factor = min(MOST_SPEED, max(LEAST_FACTOR, speeds[name] / usual_speed))
            slots *= factor
            if not 0.8 < factor < 1.25:
                reasons.append(f"{speeds[name]:.0f} requests/s per core")
        if vitals.lag_ms > LAG_MS:
            slots *= max(LEAST_FACTOR, LAG_MS / vitals.lag_ms)
            reasons.append(f"lag {vitals.lag_ms:.0f} ms")
        most_bytes = max(LEAST_BYTES, MEMORY_FACTOR * usual_bytes)
        if vitals.rss_bytes > most_bytes:
            slots *= max(LEAST_FACTOR, most_bytes / vitals.rss_bytes)
            reasons.append(f"memory {vitals.rss_bytes / 1e6:.0f} MB")
        result.append(Capacity(name, max(slots, LEAST_FACTOR), ", ".join(reasons)))
    return result


def _median(values: Iterable[float]) -> float:
    """Return the median; 0 if there are no values. (Loading `statistics` takes 3 ms.)"""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _speed(vitals: WorkerVitals) -> float:
    """Return how many results per second a whole core would give; 0: it cannot be measured."""
    cpu = vitals.cpu_percent or 0.0
    return vitals.rate * 100.0 / cpu if cpu >= LEAST_CPU and vitals.rate >= LEAST_RATE else 0.0


def smoothed(before: dict[ProcessName, float], now: Sequence[Capacity]) -> dict[ProcessName, float]:
    """Return the capacities half way from the earlier to the present ones."""
    return {new.name: (before.get(new.name, new.slots) + new.slots) / 2 for new in now}


def use_of(hosts: Sequence[HostLoad], workers: Sequence[Capacity]) -> dict[ProcessName, float]:
    """Return the load of each worker: requests per second and slot."""
    loads = {worker.name: 0.0 for worker in workers}
    for host in hosts:
        if host.owner in loads:
            loads[host.owner] += host.load
    return {worker.name: loads[worker.name] / worker.slots for worker in workers}


def is_busy(vitals: WorkerVitals) -> bool:
    """Return whether a worker has as much to do as it can."""
    late = vitals.lag_ms > LAG_MS or (vitals.cpu_percent or 0.0) >= BUSY_CPU
    return late or vitals.running >= BUSY_SLOTS * vitals.slots


def plan_moves(
    hosts: Sequence[HostLoad],
    workers: Sequence[Capacity],
    sources: Container[ProcessName] | None = None,
) -> list[HostMove]:
    """Return the moves that pay, at most MOST_MOVES. `sources`: only from these workers."""
    use = use_of(hosts, workers)
    slots = {worker.name: worker.slots for worker in workers}
    reasons = {worker.name: worker.why for worker in workers}
    owned: dict[ProcessName, list[HostLoad]] = {}
    for host in sorted(hosts, key=lambda host: (-host.load, host.id)):
        if host.load > 0 and not host.is_new:
            owned.setdefault(host.owner, []).append(host)
    moves: list[HostMove] = []
    givers: set[ProcessName] = set()
    for source in sorted(owned.keys() & use.keys(), key=lambda name: (-use[name], name)):
        if sources is not None and source not in sources:
            continue
        if any(move.target == source for move in moves):
            continue  # it would give hosts in exchange for those that it gets
        after = {name: use[name] for name in use if name not in givers}
        leaving = _leaving(source, owned[source], after, slots, MOST_MOVES - len(moves))
        if after[source] <= use[source] * (1 - GAIN):
            givers.add(source)
            moves += [_move(host, target, use, reasons) for host, target in leaving]
            use |= after
    return moves


def _leaving(
    source: ProcessName,
    hosts: Sequence[HostLoad],
    use: dict[ProcessName, float],
    slots: dict[ProcessName, float],
    most: int,
) -> list[tuple[HostLoad, ProcessName]]:
    """Return hosts that should leave a worker, and where they go; change `use` accordingly.

    Each move leaves the busier of both workers less busy. A worker that is full gives up hosts
    until no move does that.
    """
    leaving: list[tuple[HostLoad, ProcessName]] = []
    for host in hosts:
        if len(leaving) == most:
            break
        able = [name for name in host.able if name in use and name != source]
        target = min(able, key=lambda name: (use[name] + host.load / slots[name], name), default="")
        if not target:
            continue
        target_use = use[ProcessName(target)] + host.load / slots[ProcessName(target)]
        if target_use < use[source]:
            use[ProcessName(target)] = target_use
            use[source] -= host.load / slots[source]
            leaving.append((host, ProcessName(target)))
    return leaving


def _move(
    host: HostLoad,
    target: ProcessName,
    use: dict[ProcessName, float],
    reasons: dict[ProcessName, str],
) -> HostMove:
    source = host.owner
    cause = f" ({reasons[source]})" if reasons[source] else ""
    why = (
        f"{worker_of(source)} may be asked for {use[source]:.2g} requests/s per slot{cause}, "
        f"{worker_of(target)} for {use[target]:.2g}"
    )
    return HostMove(host.id, host.origin, source, target, why)
