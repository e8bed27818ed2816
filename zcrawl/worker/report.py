"""The reports of a worker about itself: HELLO and heartbeats.

A part of the worker machine. A heartbeat lists what the worker holds, has produced and has
received, and the measurements since the last one. Pure.
"""

from __future__ import annotations

import msgspec

from zcrawl.mesh.messages import Heartbeat, Hello
from zcrawl.mesh.timing import HEARTBEAT_MOST_S
from zcrawl.model.vitals import WorkerVitals
from zcrawl.worker.assignments import Assignments
from zcrawl.worker.held_requests import Intake
from zcrawl.worker.outbox import Outbox


class Pulse:
    def __init__(
        self, intake: Intake, outbox: Outbox, assignments: Assignments, slots: int
    ) -> None:
        self.interval_s = 1.0  # set by the leader
        self.due_at = 0.0
        self._intake, self._outbox, self._assignments = intake, outbox, assignments
        self._slots = slots
        self._rate = 0.0  # results per second, smoothed
        self._counted = 0
        self._rss_bytes = 0
        self._lag_ms = 0.0
        self._cpu_percent: float | None = None

    def adopt_interval(self, interval_s: float, now: float) -> None:
        """Set the interval of a WELCOME or BEAT; it depends on the number of workers."""
        if interval_s != self.interval_s and interval_s > 0:
            self.interval_s = min(interval_s, HEARTBEAT_MOST_S)
            self.due_at = min(self.due_at, now + self.interval_s)

    def change_slots(self, slots: int) -> None:
        """Report other slots, with the next heartbeat, which is due at once."""
        if slots != self._slots:
            self._slots = slots
            self.due_at = 0.0

    def count(self) -> None:
        """Count a fetch that ended."""
        self._counted += 1

    def measured(self, rss_bytes: int, lag_ms: float, cpu_percent: float | None) -> None:
        self._rss_bytes, self._lag_ms, self._cpu_percent = rss_bytes, lag_ms, cpu_percent

    def beat(self, now: float, hello: int, draining: bool) -> Heartbeat:
        """Return the heartbeat to send now; `hello` is the number of the HELLO in force."""
        elapsed = max(0.001, now - (self.due_at - self.interval_s))
        self._rate += (self._counted / elapsed - self._rate) * 0.5
        self._counted = 0
        tasks = self._intake.tasks
        tasks.measure(elapsed)
        self.due_at = now + self.interval_s
        intake, outbox, assignments = self._intake, self._outbox, self._assignments
        return Heartbeat(
            held=[(held.epoch, held.assignment.n, held.started) for held in intake.held.values()],
            produced=outbox.produced,
            acked=outbox.acked,
            assigned=assignments.assigned,
            vitals=WorkerVitals(
                slots=intake.places(self._slots, now),
                rate=self._rate,
                running=intake.running,
                waiting=len(intake.held) - intake.running - len(tasks.running),
                outbox=len(outbox),
                rss_bytes=self._rss_bytes,
                lag_ms=self._lag_ms,
                cpu_percent=self._cpu_percent,
                task_slots=tasks.slots,
                tasks=len(tasks.running),
                task_rate=tasks.rate,
            ),
            draining=draining,
            hello=hello,
            sent_at=now,
            heard=assignments.heard,
        )


class About(msgspec.Struct, frozen=True):
    """Facts about a worker process, for displays."""

    slots: int
    version: str
    hostname: str
    pid: int
    replaces: int  # incarnation of the process before it
    life: int = 0  # of its supervisor
    task_slots: int = 0
    labels: tuple[str, ...] = ()  # by which jobs are placed


def hello_of(intake: Intake, outbox: Outbox, about: About, number: int, heard: int) -> Hello:
    """Return a HELLO with everything that the worker holds and has not delivered."""
    return Hello(
        slots=about.slots,
        version=about.version,
        hostname=about.hostname,
        pid=about.pid,
        held=[held.as_message() for held in intake.held.values()],
        produced=outbox.produced,
        acked=outbox.acked,
        hello=number,
        reported=outbox.reported(),
        replaces=about.replaces,
        heard=heard,
        granted=intake.granted(),
        life=about.life,
        task_slots=about.task_slots,
        labels=list(about.labels),
    )
