"""VITALS: what the process of a master that does not lead takes; for those who watch.

The leader knows its own, and workers tell theirs in HEARTBEAT. Nothing is decided by it, and
nothing of it is sent again. A part of the closed union `messages`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from zcrawl.model.host import Number


class Vitals(msgspec.Struct, frozen=True, array_like=True):
    rss_bytes: Number
    lag_ms: Annotated[float, Meta(ge=0, le=1e9)]  # how late its loop was at worst, in a second
