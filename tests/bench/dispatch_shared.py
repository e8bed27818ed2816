"""What zcrawl, Dask and Celery have in common in `make bench-dispatch`: the load, and how it is
measured. Imports only the standard library, because each peer runs in a venv of its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.bench.measure import tree

WORKERS: Final = 2
PIECE: Final = 1_000  # tasks in one submission of `throughput`
PER_SECOND: Final = 500  # tasks of `latency`
EACH_S: Final = 0.1  # between two of its submissions
SIZE: Final = int(PER_SECOND * EACH_S)
STAY_S: Final = 5.0  # how long a task of `together` stays


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["throughput", "latency", "runs", "together"])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=10)
    return parser.parse_args()


class Meter:
    """Time, and CPU of some processes with all their descendants."""

    def __init__(self, *pids: int) -> None:
        self._pids = {pid for parent in (os.getpid(), *pids) for pid in tree(parent)}
        self._began, self._cpu_s = time.time(), self._used_s()

    def figures(self, tasks: int, ended: float | None = None) -> dict[str, float]:
        """Return tasks per second until `ended` (now), and milliseconds of CPU per task."""
        took_s = (ended or time.time()) - self._began
        cpu_s = self._used_s() - self._cpu_s
        return {"per_s": tasks / took_s, "cpu_ms": cpu_s * 1000 / tasks}

    def _used_s(self) -> float:
        ticks = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # user and system
        return ticks / os.sysconf("SC_CLK_TCK")


def percentiles(waited_s: Iterable[float]) -> dict[str, float]:
    """Return milliseconds."""
    waited = sorted(1000 * wait_s for wait_s in waited_s)
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {name: waited[int(len(waited) * rank)] for name, rank in ranks.items()}


def most_at_once(begin: float, spans: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Return how many spans (start, end) overlap at most, and how soon after `begin`."""
    events = sorted(event for start, end in spans for event in ((start, 1), (end, -1)))
    running = list(itertools.accumulate(step for _, step in events))
    most = max(running)
    return {"most": most, "after_s": events[running.index(most)][0] - begin}
