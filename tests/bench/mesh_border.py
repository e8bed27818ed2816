"""`python -m tests.bench.mesh_border`: what reading a worker's results costs a master.

A worker's end in a process of its own publishes results; the master's end reads them in this one
and does nothing with them. Plain and encrypted rounds take turns. `--once` makes one encrypted
round of a fixed number of results, for valgrind's callgrind. A measurement, never a test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time

import msgspec

from tests.contract.mesh_tools import LOOPBACK, Keys
from zcrawl.mesh.messages import Beat, PageRecord, Result
from zcrawl.mesh.ports import Arrived, Endpoints
from zcrawl.mesh.security import AllowedKey, KeyPair, MeshKeys
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.states import Outcome

ROUNDS = 7
RESULTS = 20_000
LINKS = 20
WINDOW = 400  # below the high-water mark


def result(seq: int) -> Result:
    page = PageRecord("http://a.test/", "A title", "text/html", 14_000, 1.0, 5.0)
    links = [(f"http://a.test/{seq}/{n}", bytes(16)) for n in range(LINKS)]
    return Result(1, seq, seq, 1, 1, 1, Outcome.DONE, page=page, links=links)


async def send(endpoints: Endpoints, keys: MeshKeys | None, results: int) -> None:
    """The worker: a window of results whenever the master asks for one."""
    with ZmqWorkerMesh("w1", 1, keys=keys) as worker:
        left, body = results, result(7)
        done = asyncio.Event()

        def more(arrived: list[Arrived]) -> None:
            nonlocal left
            for _ in arrived:
                for _ in range(min(WINDOW, left)):
                    worker.publish(1, body, 1, 1)
                    left -= 1
            if left == 0:
                done.set()

        worker.connect(endpoints)
        worker.listen(more)
        await done.wait()
        await asyncio.sleep(1)


async def read(keys: Keys | None, results: int) -> tuple[float, float]:
    """Results a second, and the main thread's CPU microseconds of each."""
    node = keys.node() if keys is not None else None
    with ZmqMasterMesh(
        LOOPBACK,
        1,
        keys=keys.master if keys is not None else None,
        allowed={node.own.public: AllowedKey("w1")} if node is not None else {},
    ) as master:
        got, done = 0, asyncio.Event()
        began = cpu = 0.0

        def take(arrived: list[Arrived]) -> None:
            nonlocal got, began, cpu
            if not got:
                began, cpu = time.perf_counter(), time.thread_time()
            before, got = got, got + len(arrived)
            if got == results:
                done.set()
            elif got // WINDOW > before // WINDOW:
                master.publish(1, Beat("m1", 1.0, {}))

        master.listen(take)
        own = [node.own.public, node.own.secret, node.server] if node is not None else []
        order = json.dumps([msgspec.structs.astuple(master.endpoints), own, results])
        module = "tests.bench.mesh_border"
        command = (sys.executable, "-m", module, "--child", order)
        child = await asyncio.create_subprocess_exec(*command)
        master.publish(1, Beat("m1", 1.0, {}))
        async with asyncio.timeout(600):
            await done.wait()
        spent, took = time.thread_time() - cpu, time.perf_counter() - began
        await child.wait()
        return results / took, spent / results * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--once", type=int, default=0, help="one round of so many, encrypted")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        endpoints, own, results = json.loads(options.child)
        keys = MeshKeys(KeyPair(*own[:2]), own[2]) if own else None
        asyncio.run(send(Endpoints(*endpoints), keys, results))
        return
    if options.once:
        print(asyncio.run(read(Keys(), options.once)))
        return
    measurements: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(options.rounds):
        for curve in measurements:
            measurements[curve].append(asyncio.run(read(Keys() if curve else None, RESULTS)))
    for curve, name in ((False, "plain"), (True, "keys")):
        rates, costs = (sorted(column) for column in zip(*measurements[curve], strict=True))
        print(
            f"{name:5} {statistics.median(rates):6.0f}/s ({rates[0]:.0f}-{rates[-1]:.0f}), "
            f"{statistics.median(costs):5.1f} us CPU of the loop ({costs[0]:.1f}-{costs[-1]:.1f})"
        )


if __name__ == "__main__":
    main()
