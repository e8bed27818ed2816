"""ReadFailureGroups on the fake store."""

from __future__ import annotations

from zcrawl.model.states import RequestState, RunState
from zcrawl.store.queries import FailureGroupRow, FailureGroupRows, ReadFailureGroups
from zcrawl.testing.store.tables import FakeRequest, FakeRun, Tables


def read_failure_groups(tables: Tables, query: ReadFailureGroups) -> FailureGroupRows:
    runs = [
        run
        for run in tables.runs.values()
        if run.failed and run.state is not RunState.DELETED and query.run in (None, run.id)
    ]
    runs = sorted(runs, key=lambda run: -run.id)[: query.runs]
    return FailureGroupRows([row for run in runs for row in _groups(tables, run)[: query.limit]])


def _groups(tables: Tables, run: FakeRun) -> list[FailureGroupRow]:
    groups: dict[tuple[int, str], list[FakeRequest]] = {}
    for request in tables.requests.values():
        if request.run == run.id and request.state is RequestState.DEAD:
            groups.setdefault((request.host, request.reason), []).append(request)
    ranked = sorted(groups.items(), key=lambda pair: (-len(pair[1]), -pair[1][-1].seq))
    return [
        FailureGroupRow(
            run.id,
            run.job.id,
            run.job.name,
            host,
            tables.hosts[host].origin if host in tables.hosts else "",
            reason,
            len(failed),
            failed[-1].status,
            failed[-1].url,
        )
        for (host, reason), failed in ranked
    ]
