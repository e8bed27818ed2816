"""Whom a command talks to: a cluster that runs in the data folder, or the database itself.

Reads go to the running cluster, else to the database. Actions go to the running cluster, else to
a master without workers that lives for the moment: the fenced leader is the only writer, so even
a `pause` on an idle folder needs one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from zcrawl.errors import RefusedError, UnreachableError
from zcrawl.store.ports import Store
from zcrawl.store.queries import FindJob, JobList, JobRow, ListJobs, Tallies, TallyRows
from zcrawl.telemetry.views import is_visible, job_view

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Cluster(Protocol):
    """What the CLI needs of `roles.embedded.EmbeddedCluster`."""

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]: ...

    def snapshot(self) -> dict[str, Any]: ...

    async def drain(self, timeout_s: float) -> None: ...

    async def flush_outputs(self) -> None: ...


def is_live(data: Path) -> bool:
    from zcrawl.roles.client import is_live as live

    return live(data)


@contextlib.asynccontextmanager
async def running(data: Path) -> AsyncIterator[Ask]:
    """The cluster that runs in `data`; UnreachableError if nobody does."""
    if not is_live(data):
        raise nobody_runs(data)
    from zcrawl.roles.client import MeshClient

    async with MeshClient(data) as client:
        yield client.ask


@contextlib.asynccontextmanager
async def for_actions(data: Path) -> AsyncIterator[Ask]:
    """The cluster that runs in `data`, or one that is there for this action only."""
    if is_live(data):
        async with running(data) as ask:
            yield ask
        return
    from zcrawl.roles.embedded import EmbeddedCluster
    from zcrawl.roles.offline import open_readonly

    open_readonly(data).close()  # a mistyped folder is an error, not a new database
    async with EmbeddedCluster(data, 0) as cluster:
        yield cluster.ask


async def jobs(data: Path) -> list[dict[str, Any]]:
    """All job views, from whoever knows best."""
    if is_live(data):
        async with running(data) as ask:
            views: list[dict[str, Any]] = (await ask("jobs", {}))["jobs"]
            return views
    with contextlib.closing(_open(data)) as store:
        listed = store.query(ListJobs())
        assert isinstance(listed, JobList)
        visible = [job for job in listed.jobs if is_visible(job)]
        return [job_view(job, None, None, time.time()) for job in visible]


async def job(data: Path, ref: str) -> dict[str, Any]:
    """One job's view, from whoever knows best."""
    if is_live(data):
        async with running(data) as ask:
            return await ask("job", {"ref": ref})
    with contextlib.closing(_open(data)) as store:
        row = find_job(store, ref)
        tallies = store.query(Tallies(row.runs[0].id)) if row.runs else None
        assert tallies is None or isinstance(tallies, TallyRows)
        return job_view(row, tallies, None, time.time())


def find_job(store: Store, ref: str) -> JobRow:
    found = store.query(FindJob(ref))
    assert isinstance(found, JobList)
    if not any(is_visible(job) for job in found.jobs):
        raise RefusedError(f"no job {ref!r}; `zcrawl jobs` lists them", code="no_such_job")
    return found.jobs[0]


def nobody_runs(data: Path) -> UnreachableError:
    return UnreachableError(f"no cluster runs in {data}; `zcrawl up --data {data}` starts one")


def _open(data: Path) -> Store:
    from zcrawl.roles.offline import open_readonly

    return open_readonly(data)
