"""What a master needs of whoever says who leads.

Backends: `local_file` (a lock in the data folder); later Consul and a static list.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Leadership(msgspec.Struct, frozen=True):
    """The lock is held."""

    hint: int  # the lock's own fencing number; 0 where it has none
    alone: bool  # no process of an earlier leader can be alive


class Coordinator(Protocol):
    async def acquire(self, timeout_s: float) -> Leadership:
        """Wait for the lock; RefusedError in_use when somebody else keeps it."""
        ...

    def release(self) -> None: ...
