"""Rehome in the fake store's tables: the twin of `sql.rehoming`. Only `store` calls it."""

from __future__ import annotations

from zcrawl.model.reasons.skip import is_owned_by_another
from zcrawl.model.states import RequestState, RunState
from zcrawl.standalone.listed import listed_resources
from zcrawl.store.commands import Rehome, Rehomed
from zcrawl.store.rules import may_rehome
from zcrawl.testing.store.runs import skip_queued
from zcrawl.testing.store.tables import Tables


def rehome(tables: Tables, command: Rehome) -> Rehomed:
    newest: dict[int, int] = {}
    for id, run in tables.runs.items():
        if run.state is not RunState.DELETED:
            newest[run.job.id] = max(id, newest.get(run.job.id, 0))
    at = min((id for id in newest.values() if id >= command.run), default=None)
    if at is None:
        return Rehomed(0, 0, more=False)
    run = tables.runs[at]
    if not may_rehome(run.state, run.reason):
        return Rehomed(at + 1, 0, more=True)
    after = command.after if at == command.run else 0
    if run.state.ended:
        skip_queued(tables, run, None)
    rows = [
        request
        for request in sorted(tables.requests.values(), key=lambda request: request.seq)
        if request.run == at
        and request.seq > after
        and (
            request.state is RequestState.QUEUED
            or (request.state is RequestState.SKIPPED and is_owned_by_another(request.reason))
        )
    ][: command.limit]
    shares = command.division.shares()
    listed = listed_resources(run.spec, run.canonical)
    full = run.max_pages is not None and run.done >= run.max_pages
    released = claimed = stayed = 0
    for request in rows:
        owner = shares.skip(request.url, listed)
        if request.state is RequestState.QUEUED:
            if owner and request.seq in command.held:
                stayed += 1
            elif owner:
                tables.dequeue(request, RequestState.SKIPPED)
                request.reason = owner
                tables.tally(at, "skipped", owner)
                released += 1
        elif owner != request.reason and (owner or not full):
            tables.tally(at, "skipped", request.reason, -1)
            request.reason = owner
            if owner:
                tables.tally(at, "skipped", owner)
            else:
                request.due_at = 0.0
                tables.enqueue(request)
                claimed += 1
    if claimed and run.state.ended:
        run.idle_s += max(0.0, command.now - run.ended_at)
        run.state, run.reason, run.ended_at = RunState.RUNNING, "", 0.0
    run.skipped += released - claimed
    run.pending += claimed - released
    tables.complete_if_empty(run, command.now)
    next_run, after = (at + 1, 0) if len(rows) < command.limit else (at, rows[-1].seq)
    return Rehomed(next_run, after, True, released, claimed, stayed)
