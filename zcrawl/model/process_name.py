"""The name of a worker's process: its id and its incarnation, `w3#4711`.

Hosts have owners by this name, in memory as in `hosts.owners` of the database, because a worker
that was started again owns nothing of what the process before it did. Only here its form is known:
nobody else puts such a name together or takes it apart.
"""

from __future__ import annotations

from typing import Final, NewType

ProcessName = NewType("ProcessName", str)

NOBODY: Final = ProcessName("")

_SIGN: Final = "#"


def process_name(worker: str, incarnation: int) -> ProcessName:
    return ProcessName(f"{worker}{_SIGN}{incarnation}")


def worker_of(process: ProcessName) -> str:
    """Return the id of the worker whose process has this name, in memory or as it is stored."""
    return process.rpartition(_SIGN)[0]
