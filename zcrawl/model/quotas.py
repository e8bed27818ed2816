"""What one user may have at once: an admin sets it with the user. 0: no limit.

The leader keeps the quotas of all users in memory. The store compares them with what is stored, in
the transaction that would add to it (`store.access`), so no two submissions can slip past together.
"""

from __future__ import annotations

import msgspec


class Quotas(msgspec.Struct, frozen=True):
    """The limits of a user."""

    most_live_runs: int = 0  # of all jobs that the user owns
    most_queued: int = 0  # URLs of those runs that are not final
    most_rate: float = 0.0  # requests per second and host that a job may ask for
