"""How many tasks without a host a worker process takes at a time, by default.

Called by `embedded` and `worker_node`, which start the processes of a machine.
"""

from __future__ import annotations

import os
from typing import Final

PER_CORE: Final = 4


def default_task_slots(processes: int) -> int:
    """Return the share of one of this machine's worker processes: 4 tasks per core together."""
    return max(1, PER_CORE * len(os.sched_getaffinity(0)) // max(1, processes))
