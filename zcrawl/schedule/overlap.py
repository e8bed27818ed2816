"""Decide what a firing does while runs of its job are still alive.

Called by the firing of runs, and for submissions beside a live run. Pure. One table:

| policy | no live run | live runs | live runs, and one waits already |
|---|---|---|---|
| allow | start | start | start |
| skip | start | skip | skip |
| queue | start | wait | skip: one waits already |
| cancel | start | cancel them, start | cancel them, start |

"Waits" is a firing that `queue` holds until no run of the job is alive; it then starts.
"""

from __future__ import annotations

import enum
from typing import Final

SKIP: Final = "skip"
QUEUE: Final = "queue"
CANCEL: Final = "cancel"
ALLOW: Final = "allow"
OVERLAPS: Final = (SKIP, QUEUE, CANCEL, ALLOW)
DEFAULT_FOR_DUE_TIMES: Final = SKIP
DEFAULT_FOR_PARENTS: Final = QUEUE  # a skipped one would leave a parent's results unused
DEFAULT_FOR_SUBMISSIONS: Final = ALLOW


class Overlap(enum.Enum):
    START = "start"
    SKIP = "skip"  # the firing is given up: a run of the job is alive
    SKIP_QUEUED = "skip_queued"  # the firing is given up: another one waits already
    WAIT = "wait"  # until no run of the job is alive
    CANCEL_AND_START = "cancel_and_start"  # the older runs end, this one starts


def overlap(policy: str, live_runs: int, waiting: int) -> Overlap:
    """Return what a firing does beside `live_runs` and `waiting` firings of the same job."""
    if policy == ALLOW or (not live_runs and not waiting):
        return Overlap.START
    if policy == CANCEL:
        return Overlap.CANCEL_AND_START if live_runs else Overlap.START
    if policy == QUEUE:
        return Overlap.SKIP_QUEUED if waiting else Overlap.WAIT
    return Overlap.SKIP if live_runs else Overlap.START
