"""What a new leader takes over of its predecessor's grants. Called once, by the leader's making.

The hosts that were granted are owned by somebody who lives, or by somebody who just left: nobody
else may ask there before the longest attempt that a worker could still be making is over. Also when
it is over, because nobody led for long, their owners may live and hold pages and results: they are
waited for until GREETING_S after the first BEAT, by which they learn who leads. An owner that
greets earlier goes on at once; a host without a stored owner does not wait.
"""

from __future__ import annotations

from zcrawl.master.leader_state import LeaderState
from zcrawl.store.commands import Loaded

LEASE_S = 20.0  # how far ahead the stored lease reaches
GREETING_S = 3.0  # a worker that lives and hears the first BEAT has greeted by then


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
    over_at = lease_until + longest
    for host in loaded.hosts:
        if host.owners:
            state.planner.granter.inherit(host, over_at, max(over_at, now + GREETING_S))
