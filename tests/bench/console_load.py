"""A console on a simulated big cluster, for `bench_console`: run in a terminal by it.

500 workers, 200 jobs, 10,000 hosts, 2,000 pages a second: a snapshot every second, and pages of
rows on request, as a leader would send them.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from console.app import ConsoleApp
from console.feed import Emit
from console.state import HappeningCame, SnapshotCame
from tests.console.samples import TARGET, answers, host, run, worker

WORKERS, JOBS, HOSTS, PAGES_S = 500, 200, 10_000, 2_000


class BigFeed:
    """Implements `feed.Feed`."""

    def __init__(self) -> None:
        self._chance = random.Random(1)
        self._said = answers()
        self._pages = [1_000] * JOBS

    async def watch(self, emit: Emit) -> None:
        while True:
            now = time.monotonic()
            emit(SnapshotCame(self._snapshot(), now))
            fields = {"text": "w17: 32 slots", "at": time.time(), "source": "m1", "level": "info"}
            emit(HappeningCame("worker_joined", fields, now))
            await asyncio.sleep(1.0)

    def _snapshot(self) -> dict[str, Any]:
        chance = self._chance
        for n in range(JOBS):
            self._pages[n] += PAGES_S // JOBS
        return {
            "leader": "m1",
            "epoch": 3,
            "at": time.time(),
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

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if op == "hosts":
            first = int(args.get("offset", 0))
            rows = [
                host(n, queued=self._chance.randint(0, 9_999))
                for n in range(first, first + int(args["limit"]))
            ]
            return {"rows": rows, "total": HOSTS, "offset": first}
        answer: dict[str, Any] = self._said.get(op, {})
        return answer


def main() -> None:
    ConsoleApp({"bench": TARGET}, feed=BigFeed()).run()


if __name__ == "__main__":
    main()
