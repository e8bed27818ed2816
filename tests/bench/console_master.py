"""The leader of a simulated big cluster, for `bench_console`: real sockets, made-up figures.

500 workers, 200 jobs, 10,000 hosts, 2,000 pages a second: a snapshot every second, events, log
lines of workers, and pages of rows on request. It runs in a process of its own, so that what is
measured of the console is the console's. `interval` below a second is for the run in which half an
hour is over in a minute: the cluster's own clock still goes a second at a time.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import msgspec

from tests.console.samples import answers, host, run, worker
from zcrawl.mesh.messages import BadBody, ClientRequest, Event, Reply, Snapshot
from zcrawl.mesh.ports import Arrived, Endpoints
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.model.snapshot import PublishedSnapshot

WORKERS, JOBS, HOSTS, PAGES_S = 500, 200, 10_000, 2_000
LINES_S = 20  # that workers log
MOST_S = 3_600.0


class BigCluster:
    def __init__(self) -> None:
        self._chance = random.Random(1)
        self._said = answers()
        self._pages = [1_000] * JOBS
        self._at = time.time()

    def snapshot(self) -> dict[str, Any]:
        chance = self._chance
        self._at += 1.0
        for n in range(JOBS):
            self._pages[n] += PAGES_S // JOBS
        return {
            "leader": "m1",
            "epoch": 3,
            "at": self._at,
            "workers": [
                worker(f"worker-{n:03}", rate=chance.uniform(0, 9), running=chance.randint(0, 32))
                for n in range(WORKERS)
            ],
            "runs": [
                run(n + 1, f"job-{n:03}", pages=self._pages[n], queued=chance.randint(0, 99_999))
                for n in range(JOBS)
            ],
            "statuses": {str(n): {"200": self._pages[n], "404": 7} for n in range(JOBS)},
            "failed": {str(n): {"http_404": 7} for n in range(JOBS)},
        }

    def events(self) -> list[Event]:
        events = []
        for n in range(LINES_S):
            source = f"worker-{self._chance.randrange(WORKERS):03}"
            fields = {"n": n, "at": self._at, "source": source, "level": "warning"}
            text = f"run {n}: https://h{self._chance.randrange(HOSTS)}.test answers with 503"
            events.append(Event("throttled", fields | {"text": text}))
        return events

    def answer(self, request: ClientRequest) -> Reply:
        if request.op != "hosts":
            return Reply(request.id, True, self._said.get(request.op, {}))
        first, limit = int(request.args.get("offset", 0)), int(request.args["limit"])
        numbers = range(first, min(HOSTS, first + limit))
        rows = [host(n, queued=self._chance.randint(0, 9_999)) for n in numbers]
        return Reply(request.id, True, {"rows": rows, "total": HOSTS, "offset": first})


def endpoints(folder: str) -> Endpoints:
    return Endpoints("m1", *(f"ipc://{folder}/{name}" for name in ("ctl", "rep", "evt")))


async def lead(folder: str, interval_s: float) -> None:
    cluster = BigCluster()
    with ZmqMasterMesh(endpoints(folder), 1) as mesh:

        def heard(arrived: list[Arrived]) -> None:
            for arrival in arrived:
                message = arrival.message
                if not isinstance(message, BadBody) and isinstance(message.body, ClientRequest):
                    mesh.send(arrival.route, 3, cluster.answer(message.body))

        mesh.listen(heard)
        until = time.monotonic() + MOST_S
        due = time.monotonic()
        while due < until:
            mesh.publish(3, Snapshot(msgspec.convert(cluster.snapshot(), PublishedSnapshot)))
            for event in cluster.events():
                mesh.publish(3, event)
            due += interval_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    asyncio.run(lead(sys.argv[1], float(sys.argv[2])))
