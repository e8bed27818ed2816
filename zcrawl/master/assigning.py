"""What a plan's share for one worker comes to as messages: what it has to know first, then ASSIGN.

Called by the leader for each worker that a plan has something for. Pure. A worker is told of a
run's configuration and code before it gets the first of its URLs, and of each later revision.
"""

from __future__ import annotations

from zcrawl.dispatch.plan import Sending
from zcrawl.master.events import Effects
from zcrawl.master.leader_state import LeaderState, to_worker
from zcrawl.mesh.messages import Assign, Config


def assigned(state: LeaderState, sending: Sending, now: float) -> Effects:
    worker = sending.worker
    fresh, codes = [], []
    for url in sending.urls:
        active = state.runs.get(url.run)
        if active is not None and worker.runs.get(url.run) != active.revision:
            if url.run not in worker.runs:  # a newer revision has the same code
                codes.append(active.code())
            worker.runs[url.run] = active.revision
            fresh.append(active.config())
    effects: Effects = []
    if fresh:
        effects.append(to_worker(worker, Config(fresh)))
    effects.extend(to_worker(worker, code) for code in codes if code is not None)
    planner = state.planner
    grants = [
        planner.granter.grant_of(planner.hosts[host], worker.name, now)
        for host in sending.hosts
        if worker.name in planner.hosts[host].parts
    ]
    effects.append(to_worker(worker, Assign(grants, sending.urls), sending.number))
    return effects
