"""The measurements that a process reports about itself, for displays.

`WorkerVitals` travels in HEARTBEAT, is kept by the roster as it came, and is shown by `nodes`, by
SNAPSHOT and by the console: a new field is declared here, and nowhere else on that way. `Vitals`
is the message of a master that does not lead; nothing of it is sent again.

Four are used for decisions: `slots` and `rate` (how many requests a worker gets early), and
`task_slots` and `task_rate` (the same of tasks without a host).
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from zcrawl.model.host import Number

Slots: TypeAlias = Annotated[int, Meta(ge=1, le=100_000)]
TaskSlots: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]  # 0: it takes no such tasks
# Of one core, by this process, in the last second; None: not measured.
CpuPercent: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)] | None


class WorkerVitals(msgspec.Struct, frozen=True, array_like=True):
    """The measurements of a worker in each heartbeat.

    Sent as an array. New fields go to the end and have a default: a node that does
    not know a field ignores it, and one that gets none has the default.
    """

    slots: Slots = 1  # requests at a time
    # Results per second, smoothed, without those of tasks.
    rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    running: Number = 0
    waiting: Number = 0  # held, not started
    outbox: Number = 0  # results that are not settled
    rss_bytes: Number = 0
    lag_ms: float = 0.0  # how late its loop was at worst
    cpu_percent: CpuPercent = None
    task_slots: TaskSlots = 0  # tasks without a host at a time
    tasks: Number = 0  # such tasks that run
    task_rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0  # of them, per second, smoothed


class Vitals(msgspec.Struct, frozen=True, array_like=True):
    rss_bytes: Number
    lag_ms: Annotated[float, Meta(ge=0, le=1e9)]  # how late its loop was at worst, in a second
    cpu_percent: CpuPercent = None
