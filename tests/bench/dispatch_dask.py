"""Dask distributed's part of `make bench-dispatch`: a scheduler and two worker processes.

    .bench/dask-venv/bin/python -m tests.bench.dispatch_dask throughput|latency|together [...]

Runs in a venv of its own, without zcrawl. Prints its figures as JSON. The scheduler runs in this
process beside the client, as Dask's LocalCluster has it.

Durability: none. Tasks and results are in the memory of the scheduler and the workers.
"""

from __future__ import annotations

import json
import time
from typing import Any

import dask
from distributed import Client, LocalCluster, wait

from tests.bench import dispatch_shared as shared
from tests.bench.dispatch_shared import PIECE, Meter


def noop(number: int) -> None:
    return None


def stamp(submitted_at: float, number: int) -> float:
    return time.monotonic() - submitted_at


def stay(number: int) -> tuple[float, float]:
    begin = time.monotonic()
    time.sleep(shared.STAY_S)
    return begin, time.monotonic()


def throughput(client: Client, tasks: int) -> dict[str, Any]:
    wait(client.map(noop, range(PIECE), pure=False))
    meter = Meter()
    futures: list[Any] = []
    for at in range(0, tasks, PIECE):
        futures += client.map(noop, range(at, min(at + PIECE, tasks)), pure=False)
    wait(futures)
    return meter.figures(tasks)


def latency(client: Client, seconds: int) -> dict[str, Any]:
    begin, futures = time.monotonic(), []
    for at in range(int((seconds + 1) / shared.EACH_S)):
        time.sleep(max(0.0, begin + at * shared.EACH_S - time.monotonic()))
        moments = [time.monotonic()] * shared.SIZE
        futures += client.map(stamp, moments, range(shared.SIZE), pure=False)
    return shared.percentiles(client.gather(futures)[shared.PER_SECOND :])


def together(client: Client, tasks: int) -> dict[str, Any]:
    begin = time.monotonic()
    return shared.most_at_once(begin, client.gather(client.map(stay, range(tasks), pure=False)))


def main() -> None:
    options = shared.parsed()
    threads = options.tasks // shared.WORKERS if options.what == "together" else 1
    # All tasks go to the workers at once. Dask's default holds
    # them back, which suits longer tasks.
    dask.config.set({"distributed.scheduler.worker-saturation": "inf"})
    cluster = LocalCluster(
        n_workers=shared.WORKERS, threads_per_worker=threads, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        match options.what:
            case "throughput":
                figures = throughput(client, options.tasks)
            case "latency":
                figures = latency(client, options.seconds)
            case _:
                figures = together(client, options.tasks)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
