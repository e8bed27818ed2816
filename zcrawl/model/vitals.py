"""How a process is: what it measures of itself and reports, for those who watch.

`WorkerVitals` travels in HEARTBEAT, is kept by the roster as it came, and is shown by `nodes`, by
SNAPSHOT and by the console: a new field is declared here, and nowhere else on that way. `Vitals`
is the message of a master that does not lead; nothing of it is sent again.

Decided by it: how much a worker is sent ahead (`slots` and `rate`). All else is only shown.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from zcrawl.model.host import Number

Slots: TypeAlias = Annotated[int, Meta(ge=1, le=100_000)]


class WorkerVitals(msgspec.Struct, frozen=True, array_like=True):
    """What a worker reports of itself with each heartbeat.

    An array of its own on the wire. New fields go to the end and have a default: a node that does
    not know a field ignores it, and one that gets none has the default.
    """

    slots: Slots = 1  # requests at a time
    rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0  # results per second, smoothed
    running: Number = 0
    waiting: Number = 0  # held, not started
    outbox: Number = 0  # results that are not settled
    rss_bytes: Number = 0
    lag_ms: float = 0.0  # how late its loop was at worst


class Vitals(msgspec.Struct, frozen=True, array_like=True):
    rss_bytes: Number
    lag_ms: Annotated[float, Meta(ge=0, le=1e9)]  # how late its loop was at worst, in a second
