"""Which process of pytest runs which test. `tests/conftest.py` gives it to pytest-xdist.

Tests of whole crawls and clusters wait most of the time: for processes to start, for leases and for
sessions to end. The others compute. So there are more processes than cores. Most of them take the
tests that wait, from the front of the list; a few take the tests that compute, from its end, and
run at a lower priority. They use the time that the others leave, and do not make them late. Whoever
has nothing left takes what the others have left.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

WAITING: Final = ("tests/integration/", "tests/servers/")
# Their longest tests take longer than those of all others. They come first, so that no process
# begins one of them when the others have finished.
LONGEST: Final = "tests/integration/test_cluster"
COMPUTING_CHUNK: Final = 24  # tests; many are as short as a message to a process
NICE: Final = 5  # a third of the weight of the processes that wait


def computing_processes(processes: int) -> int:
    """Return how many of so many processes begin with the tests that compute."""
    return processes // 3


def begins_with_computing(worker: str, processes: int) -> bool:
    """Whether this one (`gw5`) does: the last ones do."""
    return int(worker.removeprefix("gw")) >= processes - computing_processes(processes)


def lower_priority(worker: str, processes: int) -> None:
    """Called in a process of pytest when it begins."""
    if begins_with_computing(worker, processes):
        os.nice(NICE)


def rank(test: str) -> int:
    """Return the place of a test among all: lower numbers come first."""
    if not test.startswith(WAITING):
        return 2
    return 0 if test.startswith(LONGEST) else 1


class FrontAndBack(LoadScheduling):
    """Gives tests that wait one by one, and tests that compute in chunks."""

    collection: list[str] | None  # the ids of all tests
    pending: list[int]  # the places of those in it that no process has yet
    node2pending: dict[WorkerController, list[int]]  # of those that a process has

    def schedule(self) -> None:
        if self.collection is not None or not self._check_nodes_have_same_collection():
            super().schedule()
            return
        tests: list[str] = next(iter(self.node2collection.values()))
        self.collection = tests
        self.pending[:] = sorted(range(len(tests)), key=lambda place: rank(tests[place]))
        for node in self.nodes:  # a few tests are for all processes
            if self.pending:
                self._send_tests(node, 1)
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        """Give a process more when it has nothing beside the test that it runs."""
        while self.pending and len(self.node2pending[node]) < 2 and not node.shutting_down:
            self._send_tests(node, 1)
        if not self.pending and not node.shutting_down:
            node.shutdown()

    def _send_tests(self, node: WorkerController, num: int) -> None:
        assert self.collection is not None
        from_back = begins_with_computing(node.gateway.id, self.numnodes)
        computes = rank(self.collection[self.pending[-1 if from_back else 0]]) == 2
        count = min(num * COMPUTING_CHUNK if computes else num, self._share())
        tests = self.pending[-count:] if from_back else self.pending[:count]
        self.pending[:] = self.pending[:-count] if from_back else self.pending[count:]
        self.node2pending[node].extend(tests)
        node.send_runtest_some(tests)

    def _share(self) -> int:
        """At most this many at once, so that all have something to do until the end."""
        return max(1, len(self.pending) // (2 * len(self.node2pending)))


def make_scheduler(config: pytest.Config, log: Producer) -> FrontAndBack | None:
    """For `-n`; another way that is asked for by `--dist` remains what it is."""
    return FrontAndBack(config, log) if config.getoption("dist") == "load" else None
