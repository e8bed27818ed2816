"""What an operator changes while the crawl goes on: a run's pace, the leader.

A part of the desk: plain functions from arguments to what has to be done. A run's pace is stored
with its spec, so it survives a failover.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.reads import wanted_run
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.model.rows import RunRow
from zcrawl.model.spec import JobSpec
from zcrawl.store.queries import JobRow
from zcrawl.submit.read import to_json
from zcrawl.submit.validate import spec_from_dict
from zcrawl.telemetry.views import chosen_run

TUNABLE: Final = ("rate", "concurrency", "burst")


def tuned_spec(job: JobRow, args: Arguments) -> tuple[RunRow, bytes]:
    """The run that is meant and its spec with another pace; validated like a new one."""
    wanted = {name: args[name] for name in TUNABLE if args.get(name) is not None}
    if not wanted:
        names = ", ".join(TUNABLE)
        raise RefusedError(f"nothing to change: give one of {names}", code=BAD_REQUEST)
    run = chosen_run(job, wanted_run(args))
    plain = msgspec.json.decode(run.spec)
    plain["politeness"] = {**plain.get("politeness", {}), **wanted}
    spec: JobSpec = spec_from_dict(plain, "change")
    return run, to_json(spec)


def step_down(state: LeaderState, args: Arguments) -> dict[str, Any]:
    """Which epoch ends, and which one is now. It is named, so that it can be asked again: the next
    leader keeps its own."""
    if args.get("epoch") is None:
        raise RefusedError(
            "name the epoch that is to end (`zcrawl nodes` tells it)", code=BAD_REQUEST
        )
    return {"leader": state.me, "epoch": args.integer("epoch"), "now": state.epoch}
