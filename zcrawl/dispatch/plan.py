"""What a plan consists of: what each worker is to be sent, and which owners are to be stored first.

Made by the planner, done by the leader.
"""

from __future__ import annotations

import msgspec

from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.mesh.messages import Assignment


class Sending(msgspec.Struct):
    """What one worker is to be sent now."""

    worker: WorkerInfo
    number: int
    urls: list[Assignment] = msgspec.field(default_factory=list)
    hosts: dict[int, None] = msgspec.field(default_factory=dict)


class Plan(msgspec.Struct):
    sendings: dict[str, Sending] = msgspec.field(default_factory=dict)
    owners: list[tuple[int, tuple[str, ...]]] = msgspec.field(default_factory=list)
