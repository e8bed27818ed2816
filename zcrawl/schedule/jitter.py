"""Jitter: start runs that are due together a little apart.

Called by the firing of runs and by views of due times. Pure. The delay follows from the job and the
due time, so each leader computes the same one, and nobody has to store it.
"""

from __future__ import annotations

import hashlib


def start_of(job: int, due_at: float, jitter_s: int) -> float:
    """Return when the run of a due time starts: from `due_at` to less than `jitter_s` later."""
    if jitter_s <= 0:
        return due_at
    digest = hashlib.blake2b(f"{job} {due_at:.0f}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest) >> 11) / 2**53  # from 0 to below 1, exact in a float
    return due_at + share * jitter_s
