"""What a new leader takes over of its predecessor's grants. Called once, by the leader's making.

The hosts that were granted are owned by somebody who lives, or by somebody who just left: nobody
else may ask there before the longest attempt that a worker could still be making is over.
"""

from __future__ import annotations

from zcrawl.master.state import LeaderState
from zcrawl.store.commands import Loaded

LEASE_S = 20.0  # how far ahead the stored lease reaches


def inherit(state: LeaderState, loaded: Loaded, *, alone: bool, now: float) -> None:
    """`alone`: all workers ended with the predecessor, so only their last starts count."""
    if any(host.owners for host in loaded.hosts):  # somebody led before, or this process did
        state.planner.groups.began = now
    # No lease reaches further ahead than this, unless a clock was set back since.
    lease_until = min(loaded.lease_until - state.clock_offset, now + LEASE_S)
    last_start_at = min(now, lease_until)
    if alone:
        for host in loaded.hosts:
            if host.owners:
                state.planner.granter.assume_a_start(host.id, last_start_at)
        return
    longest = max((one.spec.fetch.timeout for one in state.runs.active.values()), default=20.0)
    until = lease_until + longest
    for host in loaded.hosts:
        if host.owners and until > now:
            state.planner.granter.inherit(host, until)
