"""The name of a worker's process: its id and its incarnation, `w3#4711`.

Hosts have owners by this name, in memory as in `hosts.owners` of the database, because a worker
that was started again owns nothing of what the process before it did. Only here its form is known.
"""

from __future__ import annotations


def process_name(worker: str, incarnation: int) -> str:
    return f"{worker}#{incarnation}"


def worker_of(process: str) -> str:
    """Return the id of the worker whose process has this name."""
    return process.rpartition("#")[0]
