"""The name of a worker's process: its id and its incarnation, `w3#4711`.

Hosts have owners by this name, in memory as in `hosts.owners` of the database, because a
restarted worker does not own the hosts of its earlier process. Only this module knows the form of
the name.
"""

from __future__ import annotations

from typing import Final, NewType

ProcessName = NewType("ProcessName", str)

NOBODY: Final = ProcessName("")

_SIGN: Final = "#"


def process_name(worker: str, incarnation: int) -> ProcessName:
    return ProcessName(f"{worker}{_SIGN}{incarnation}")


def worker_of(process: ProcessName) -> str:
    """Return the id of the worker with this process name."""
    return process.rpartition(_SIGN)[0]
