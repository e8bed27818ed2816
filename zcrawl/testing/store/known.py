"""The pages that jobs of the fake store remember across runs. Only `testing.store` uses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zcrawl.frontier.extra import is_start
from zcrawl.frontier.recrawl import KnownPage, on_admission, reading_of, updated_page
from zcrawl.mesh.messages import Traits
from zcrawl.model.rows import KnownRow, NewLink
from zcrawl.model.sitemap_request import has_sitemap_prio
from zcrawl.model.states import RequestState
from zcrawl.store.commands import AdmitKnown, Change, KnownAdmitted
from zcrawl.store.queries import KnownPages, ReadKnown
from zcrawl.store.rules import RECALLED, recrawl_of

if TYPE_CHECKING:
    from zcrawl.testing.store.tables import FakeRequest, FakeRun, Tables


@dataclass(slots=True)
class FakeKnown:
    row: KnownRow
    page: KnownPage


def remember(
    tables: Tables, run: FakeRun, request: FakeRequest, traits: Traits | None, now: float
) -> None:
    """Remember the page of a request that has ended, or that an ended run left queued."""
    if run.recall is None or has_sitemap_prio(request.prio) or is_start(request.url):
        return
    of_job = tables.known_pages.setdefault(run.job.id, {})
    entry = of_job.get(request.key)
    page = updated_page(
        entry.page if entry is not None else None,
        request.state,
        request.status,
        request.reason,
        traits,
        recrawl_of(run.spec),
        reading_of(run.spec),
        now,
    )
    if entry is not None:
        entry.page = page
        return
    row = KnownRow(
        tables.next_id("known"),
        request.url,
        request.key,
        tables.hosts[request.host].origin,
        request.depth,
        request.block,
        request.extra,
    )
    of_job[request.key] = FakeKnown(row, page)


def remember_all(
    tables: Tables, ended: Iterable[tuple[FakeRun, FakeRequest, Change]], now: float
) -> None:
    """Remember the pages of a batch, after its links were admitted by the earlier knowledge."""
    for run, request, change in ended:
        if change.state is not None and change.state is not RequestState.QUEUED:
            # With the state of this change: a later one may have made the row a redirect target.
            end = replace(request, state=change.state, status=change.status, reason=change.reason)
            remember(tables, run, end, change.traits, now)


def remember_target(
    tables: Tables, run: FakeRun, change: Change, target: FakeRequest, now: float
) -> None:
    """Remember a redirect target as if it had been requested directly."""
    request = replace(target, state=RequestState.DONE, status=change.status, reason="")
    remember(tables, run, request, change.traits, now)


def remember_unasked(tables: Tables, run: FakeRun, requests: Iterable[FakeRequest]) -> None:
    if run.recall is not None:
        of_job = tables.known_pages.get(run.job.id, {})
        for request in requests:
            if request.key not in of_job:
                state, request.state = request.state, RequestState.DEAD
                remember(tables, run, request, None, 0.0)
                request.state = state


def recall(tables: Tables, run: FakeRun, link: NewLink, now: float) -> tuple[str, bytes]:
    """Return (reason why the page is not due, stored data for its request)."""
    if run.recall is None or link.skip or link.is_sitemap:
        return link.skip, b""
    entry = tables.known_pages.get(run.job.id, {}).get(link.key)
    if entry is None:
        return "", b""
    return on_admission(entry.page, run.spec, recrawl_of(run.spec), now)


def earlier_hosts(tables: Tables, run: FakeRun) -> tuple[str, ...]:
    """Return the default scope of the previous run, if the run starts from known pages."""
    runs = [other for other in tables.runs.values() if other.job is run.job and other is not run]
    return tuple(runs[-1].seed_hosts) if runs and run.recall is not None else ()


def read_known(tables: Tables, query: ReadKnown) -> KnownPages:
    of_job = tables.known_pages.get(query.job, {}).values()
    rows = [entry.row for entry in of_job if entry.row.id > query.after and not entry.page.gone]
    return KnownPages(sorted(rows, key=lambda row: row.id)[: query.limit])


def admit_known(tables: Tables, command: AdmitKnown) -> KnownAdmitted:
    run = tables.runs.get(command.run)
    if run is None or run.recall != command.after or run.state.ended:
        return KnownAdmitted([], [], None if run is None else run.row(), repeated=True)
    run.recall = RECALLED if command.last else command.upto
    seqs = [tables.admit(run, link, link.depth, None, command.now) for link in command.links]
    tables.complete_if_empty(run, command.now)
    rows = [tables.queued_row(tables.requests[seq]) for seq in seqs if seq is not None]
    return KnownAdmitted(rows, tables.host_rows(row.host for row in rows), run.row())


def forget(tables: Tables, job: int, limit: int) -> int:
    of_job = tables.known_pages.get(job, {})
    keys = list(of_job)[:limit]
    for key in keys:
        del of_job[key]
    if not of_job:
        tables.known_pages.pop(job, None)
    return len(keys)
