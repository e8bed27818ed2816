"""The name of a worker's process: its id and its incarnation, `w3#4711`.

Hosts have owners by this name, in memory as in `hosts.owners` of the database, because a
restarted worker does not own the hosts of its earlier process. Only this module knows the form of
the name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NewType

ProcessName = NewType("ProcessName", str)

NOBODY: Final = ProcessName("")

_SIGN: Final = "#"
_KEPT: Final = 10_000  # both are asked for several times per result, always for the same processes


@lru_cache(_KEPT)
def process_name(worker: str, incarnation: int) -> ProcessName:
    """Return the name of one process of a worker."""
    return ProcessName(f"{worker}{_SIGN}{incarnation}")


@lru_cache(_KEPT)
def worker_of(process: ProcessName) -> str:
    """Return the id of the worker with this process name."""
    return process.rpartition(_SIGN)[0]
