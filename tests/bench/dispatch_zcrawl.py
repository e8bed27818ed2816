"""zcrawl's part of `make bench-dispatch`: one leader on SQLite and two worker processes.

    python -m tests.bench.dispatch_zcrawl throughput|latency|runs|together [--tasks N] [--seconds N]

Prints its figures as JSON. The leader runs in this process, as it does in `zcrawl crawl`, and so
does the client, which submits as `zcrawl submit --seeds` does: in requests of 1,000 ids.

Durability: each submission and each batch of results is a transaction of SQLite, synced to the
disk before it is acknowledged. Nothing of it is lost with a process, a machine or its power.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench import dispatch_shared as shared
from tests.bench.dispatch_shared import PIECE, Meter
from tests.bench.dispatch_tasks import TOLD
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.place import DATABASE

AT_ONCE: Final = 2  # submissions on their way
PLUGINS: Final = ("Noop", "Stamp", "Stay")


def install(folder: Path) -> None:
    """Install the plugins for the workers, as an installer leaves them."""
    about = folder / "bench_tasks-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-tasks\nVersion: 1.0\n")
    names = [f"{name.lower()} = tests.bench.dispatch_tasks:{name}" for name in PLUGINS]
    (about / "entry_points.txt").write_text("\n".join(["[zcrawl.executors]", *names]) + "\n")
    paths = [str(folder), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


class Client:
    """Submits to a cluster in this process, and waits for the end of runs."""

    def __init__(self, cluster: EmbeddedCluster, data: Path) -> None:
        self._cluster = cluster
        self._database = data / DATABASE

    async def open_run(self, kind: str, ids: list[str], *, seeding: bool = False) -> int:
        spec = {"name": f"{kind}-{time.monotonic()}", "kind": kind}
        args = {"spec": spec, "mode": "new", "seeds": ids, "seeding": seeding}
        return int((await self._cluster.ask("submit", args))["run"])

    async def add(self, run: int, ids: list[str], *, last: bool = False) -> None:
        await self._cluster.ask("add_seeds", {"run": run, "seeds": ids, "last": last})

    async def ended_at(self, run: int, tasks: int) -> float:
        """Wait for the end of a run; return when it was committed. All its tasks must be done."""
        select = "SELECT state, ended_at, done FROM runs WHERE id = ?"
        uri = f"file:{self._database}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            while True:
                state, ended_at, done = database.execute(select, (run,)).fetchone()
                if ended_at:
                    assert (state, done) == ("completed", tasks), (state, done)
                    return float(ended_at)
                await asyncio.sleep(0.1)


async def throughput(client: Client, tasks: int) -> dict[str, Any]:
    warm = await client.open_run("noop", [f"w{n}" for n in range(PIECE)])
    await client.ended_at(warm, PIECE)
    ids = [f"task-{n}" for n in range(tasks)]
    meter = Meter()
    run = await client.open_run("noop", ids[:PIECE], seeding=True)
    room = asyncio.Semaphore(AT_ONCE)

    async def add(piece: list[str]) -> None:
        async with room:
            await client.add(run, piece)

    pieces = (ids[at : at + PIECE] for at in range(PIECE, tasks, PIECE))
    await asyncio.gather(*map(add, pieces))
    await client.add(run, [], last=True)
    return meter.figures(tasks, await client.ended_at(run, tasks))


async def latency(client: Client, seconds: int, report: Path) -> dict[str, Any]:
    """Add tasks to one run. The first second warms up: the workers learn the run."""
    run = await client.open_run("stamp", [f"{time.monotonic():.6f}-0"], seeding=True)
    submissions = [
        asyncio.create_task(client.add(run, ids)) async for ids in arrivals(seconds, first=1)
    ]
    await asyncio.gather(*submissions)
    await client.add(run, [], last=True)
    number = 1 + len(submissions) * shared.SIZE
    await client.ended_at(run, number)
    return _waited(report, number)


async def runs(client: Client, seconds: int, report: Path) -> dict[str, Any]:
    """Submit each batch as a job and run of its own."""
    submissions = [
        asyncio.create_task(client.open_run("stamp", ids))
        async for ids in arrivals(seconds, first=0)
    ]
    for run in await asyncio.gather(*submissions):
        await client.ended_at(run, shared.SIZE)
    return _waited(report, len(submissions) * shared.SIZE)


async def arrivals(seconds: int, first: int) -> AsyncIterator[list[str]]:
    """Yield the ids of each submission at its moment, which they begin with."""
    begin, number = time.monotonic(), first
    for at in range(int((seconds + 1) / shared.EACH_S)):
        await asyncio.sleep(max(0.0, begin + at * shared.EACH_S - time.monotonic()))
        now = time.monotonic()
        yield [f"{now:.6f}-{number + n}" for n in range(shared.SIZE)]
        number += shared.SIZE


def _waited(report: Path, number: int) -> dict[str, Any]:
    waited = {int(task): waited_s for task, waited_s in _pairs(report)}
    assert len(waited) == number
    return shared.percentiles(waited[n] for n in range(shared.PER_SECOND + 1, number))


async def together(client: Client, tasks: int, report: Path) -> dict[str, Any]:
    begin = time.monotonic()
    run = await client.open_run("stay", [f"t{n}" for n in range(tasks)])
    await client.ended_at(run, tasks)
    return shared.most_at_once(begin, _pairs(report))


def _pairs(report: Path) -> Iterator[tuple[float, float]]:
    for line in report.read_text().splitlines():
        first, second = line.split()
        yield float(first), float(second)


async def figures(folder: Path) -> dict[str, Any]:
    options = shared.parsed()
    report, data = folder / "told", folder / "data"
    os.environ[TOLD] = str(report)
    slots = options.tasks // shared.WORKERS if options.what == "together" else 0
    async with EmbeddedCluster(data, shared.WORKERS, task_slots=slots) as cluster:
        client = Client(cluster, data)
        match options.what:
            case "throughput":
                return await throughput(client, options.tasks)
            case "latency":
                return await latency(client, options.seconds, report)
            case "runs":
                return await runs(client, options.seconds, report)
            case _:
                return await together(client, options.tasks, report)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as name:
        install(Path(name, "installed"))
        print(json.dumps(asyncio.run(figures(Path(name)))))


if __name__ == "__main__":
    main()
