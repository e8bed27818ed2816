"""`python -m tests.bench.mesh_curve`: what encryption costs a round trip on loopback.

A worker's and a master's end in one process and one loop, so the figures are for both ends
together on one core; plain and encrypted rounds take turns. A measurement, never a test.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from tests.contract.mesh_tools import LOOPBACK, Keys
from zcrawl.mesh.messages import Bye, Drain
from zcrawl.mesh.ports import Arrived
from zcrawl.mesh.security import AllowedKey
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh

ROUNDS = 5
SIZES = ((1, 2_000, 10), (20, 10_000, 10), (20, 5_000, 4_000))  # in flight, messages, bytes


async def round_trips(
    keys: Keys | None, in_flight: int, messages: int, size: int
) -> tuple[float, float]:
    """Round trips per second, and CPU microseconds of each, all threads and both ends."""
    node = keys.node() if keys is not None else None
    with (
        ZmqMasterMesh(
            LOOPBACK,
            1,
            keys=keys.master if keys is not None else None,
            allowed={node.own.public: AllowedKey("w1")} if node is not None else {},
        ) as master,
        ZmqWorkerMesh("w1", 1, keys=node) as worker,
    ):
        question, done = Bye("x" * size), asyncio.Event()
        left = to_send = messages

        def ask(count: int) -> None:
            nonlocal to_send
            for _ in range(min(count, to_send)):
                to_send -= 1
                worker.send("m1", 1, question)

        def answer(arrived: list[Arrived]) -> None:
            for arrival in arrived:
                master.send(arrival.route, 1, Drain(True))

        def answered(arrived: list[Arrived]) -> None:
            nonlocal left
            left -= len(arrived)
            ask(len(arrived))
            if left == 0:
                done.set()

        master.listen(answer)
        worker.connect(master.endpoints)
        worker.listen(answered)
        begin, cpu = time.perf_counter(), time.process_time()
        ask(in_flight)
        async with asyncio.timeout(120):
            await done.wait()
        spent = time.process_time() - cpu
        return messages / (time.perf_counter() - begin), spent / messages * 1e6


def main() -> None:
    for in_flight, messages, size in SIZES:
        measurements: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for _ in range(ROUNDS):
            for curve in measurements:
                keys = Keys() if curve else None
                measurements[curve].append(
                    asyncio.run(round_trips(keys, in_flight, messages, size))
                )
        print(f"{in_flight} in flight, {size} bytes, median of {ROUNDS} (lowest-highest):")
        medians = []
        for curve, name in ((False, "plain"), (True, "CURVE")):
            rates, costs = (sorted(column) for column in zip(*measurements[curve], strict=True))
            medians.append((statistics.median(rates), statistics.median(costs)))
            print(
                f"  {name} {medians[-1][0]:6.0f}/s ({rates[0]:.0f}-{rates[-1]:.0f}), "
                f"{medians[-1][1]:4.0f} us CPU ({costs[0]:.0f}-{costs[-1]:.0f})"
            )
        (plain_rate, plain_cost), (curve_rate, curve_cost) = medians
        print(
            f"  CURVE/plain: rate {curve_rate / plain_rate:.2f}, CPU {curve_cost / plain_cost:.2f}"
        )


if __name__ == "__main__":
    main()
