"""The tasks without a host that a worker holds: which of them run, and which is next.

A part of `held_requests`. Tasks have slots of their own (`worker.task_slots`), so that long tasks
do not delay pages, and pages do not delay tasks. No pace delays them. The run with the highest
priority goes first, then the task that came first.

The leader sends a few tasks more than there are slots, as many as the worker finishes in a moment.
If these turn out to be long, the tasks behind them go back after PATIENCE_S, because another worker
may have a free slot. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

PATIENCE_S = 1.0  # a task that waits longer for a slot is given back
RATE_SMOOTHING = 0.5


class HeldTasks:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.running: set[int] = set()
        self.rate = 0.0  # tasks that ended, per second, smoothed
        self._waiting: dict[int, float] = {}  # seq → since when
        self._queue: list[tuple[int, int, int]] = []  # (-priority, turn, seq); some are gone
        self._turn = 0
        self._ended = 0  # since the last heartbeat

    def __len__(self) -> int:
        return len(self.running) + len(self._waiting)

    @property
    def is_due(self) -> bool:
        """Whether a task waits and a slot is free."""
        return bool(self._waiting) and len(self.running) < self.slots

    def take(self, seq: int, priority: int, now: float) -> None:
        """Add a task that waits for a slot."""
        self._waiting[seq] = now
        self._turn += 1
        heapq.heappush(self._queue, (-priority, self._turn, seq))

    def start_due(self, most: int) -> Iterator[int]:
        """Start up to `most` tasks, as far as slots are free; yield them."""
        most = min(most, self.slots - len(self.running))
        while most > 0 and self._waiting:
            seq = heapq.heappop(self._queue)[2]
            if self._waiting.pop(seq, None) is not None:
                most -= 1
                self.running.add(seq)
                yield seq

    def finish(self, seq: int) -> None:
        """Remove a task that ended, was cancelled or goes back."""
        if seq in self.running:
            self.running.discard(seq)
            self._ended += 1
        elif self._waiting.pop(seq, None) is not None and not self._waiting:
            self._queue.clear()

    def waiting_long(self, now: float) -> list[int]:
        """Return the tasks that have waited for a slot for too long."""
        return [seq for seq, since in self._waiting.items() if now - since > PATIENCE_S]

    def measure(self, elapsed_s: float) -> None:
        """Renew the rate, at each heartbeat."""
        self.rate += (self._ended / elapsed_s - self.rate) * RATE_SMOOTHING
        self._ended = 0

    def check(self) -> None:
        assert self.running.isdisjoint(self._waiting), "a task waits or runs"
        assert self._waiting.keys() <= {seq for _, _, seq in self._queue}, "tasks are in the queue"
