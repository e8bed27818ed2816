"""Choose where a command sends its request: to the cluster of the configuration, to the cluster
that runs in the data folder, or to the database of the folder.

In a data folder reads go to the running cluster, or else to the database. Actions go to the running
cluster, or else to a temporary master without workers: only a leader may write, so even a `pause`
in an idle folder needs one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from zcrawl.cli.base import Settings
from zcrawl.errors import RefusedError, StoreUnavailable, UnreachableError
from zcrawl.model.reasons.cluster import NO_SUCH_JOB, NO_SUCH_RUN
from zcrawl.model.snapshot import EmbeddedSnapshot
from zcrawl.model.spec import ScheduleDefaults
from zcrawl.model.states import RunState
from zcrawl.store.ports import Store
from zcrawl.store.queries import (
    NEWEST,
    ChainRuns,
    FindJob,
    JobList,
    JobRow,
    JobVersions,
    ListJobs,
    ReadChain,
    ReadRemovable,
    ReadRuns,
    ReadVersions,
    RemovableRuns,
    RunRows,
    Tallies,
    TallyRows,
)
from zcrawl.telemetry.schedules import chain_view, schedule_view
from zcrawl.telemetry.views import (
    ME,
    MOST_REMOVABLE,
    LiveRun,
    chosen_run,
    is_listed,
    is_visible,
    job_view,
    present_runs,
    removable_view,
    run_listed,
    versions_view,
)
from zcrawl.text.spelling import near_names

MOST_CHAIN: Final = 500  # runs of a chain
AWAY: Final = StoreUnavailable.code
MOST_NAMES: Final = 10  # jobs that a message lists
STOPPED: Final = "stopped"  # a state that only views have; it is never stored
NOBODY_RUNS: Final = "nobody runs it; --resume"

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Cluster(Protocol):
    """The methods of `roles.embedded.EmbeddedCluster` that the CLI needs."""

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]: ...

    def snapshot(self) -> EmbeddedSnapshot: ...

    async def drain(self, timeout_s: float) -> None: ...

    async def flush_outputs(self, runs: Collection[int] = ()) -> None: ...


def is_live(settings: Settings) -> bool:
    """Return whether a cluster runs. A configured cluster is assumed to run."""
    from zcrawl.roles.client import is_live as live

    return settings.in_cluster or live(settings.data)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Ask]:
    """Connect to the running cluster; UnreachableError if there is none."""
    if not is_live(settings):
        raise nobody_runs(settings.data)
    from zcrawl.roles import cluster
    from zcrawl.roles.client import MeshClient, controls_in

    if settings.in_cluster:
        masters = await cluster.find_masters(settings.config)
        controls = [master.control for master in masters]
        keys = cluster.client_keys(settings.config)
    else:
        controls, keys = controls_in(settings.data), None
    async with MeshClient(controls, keys=keys) as client:
        yield _explaining(client.ask)


@contextlib.asynccontextmanager
async def for_actions(settings: Settings) -> AsyncIterator[Ask]:
    """Connect to the running cluster, or start a temporary one in the data folder."""
    if is_live(settings):
        async with running(settings) as ask:
            yield ask
        return
    from zcrawl.roles.embedded import EmbeddedCluster
    from zcrawl.roles.vault import read_vault

    open_database(settings).close()  # a mistyped folder is an error, not a new database
    cluster = EmbeddedCluster(
        settings.data,
        0,
        outputs=settings.output_rights(),
        retention=settings.retention(),
        schedule_defaults=settings.schedule_defaults(),
        vault=read_vault(settings.config, private=True),
    )
    async with cluster:
        yield _explaining(cluster.ask)


def _explaining(ask: Ask) -> Ask:
    """Wrap `ask` so that refusals list the existing jobs, or say that the database is away."""

    async def asking(op: str, args: dict[str, Any]) -> dict[str, Any]:
        try:
            return await ask(op, args)
        except RefusedError as error:
            if error.code == AWAY:
                raise database_away(error) from None
            if error.code != NO_SUCH_JOB or "ref" not in args:
                raise
        names = [view["name"] for view in (await ask("jobs", {}))["jobs"]]
        raise no_such_job(str(args["ref"]), names)

    return asking


async def jobs(
    settings: Settings, tag: str = "", owner: str = "", *, archived: bool = False
) -> dict[str, Any]:
    """Return all job views, or those with a tag or of an owner (`me`: who asks), under `jobs`."""
    if is_live(settings):
        given = {"tag": tag, "archived": archived, "owner": owner}
        async with running(settings) as ask:
            return await ask("jobs", {name: value for name, value in given.items() if value})
    if owner == ME:
        from zcrawl.roles.client import who_asks

        owner = who_asks()
    with contextlib.closing(open_database(settings)) as store:
        listed = store.query(ListJobs())
        assert isinstance(listed, JobList)
        visible = [job for job in listed.jobs if is_listed(job, tag, owner, archived=archived)]
        now, defaults = time.time(), settings.schedule_defaults()
        return {
            "jobs": [stopped(job_view(job, None, None, now, None, defaults)) for job in visible]
        }


async def job(settings: Settings, ref: str, run: int | None = None) -> dict[str, Any]:
    """Return the view of one job, for the given run or for the newest."""
    if is_live(settings):
        async with running(settings) as ask:
            return await ask("job", {"ref": ref} | ({} if run is None else {"run": run}))
    with contextlib.closing(open_database(settings)) as store:
        return _stored_job(store, find_job(store, ref), run, settings.schedule_defaults())


async def run(settings: Settings, number: int) -> dict[str, Any]:
    """Return the view of the job of a run, for that run."""
    if is_live(settings):
        async with running(settings) as ask:
            return await ask("run", {"run": number})
    with contextlib.closing(open_database(settings)) as store:
        job_list = store.query(FindJob("", number))
        assert isinstance(job_list, JobList)
        if not any(map(is_visible, job_list.jobs)):
            text = f"no run {number}; `zcrawl runs` lists them"
            raise RefusedError(text, code=NO_SUCH_RUN)
        return _stored_job(store, job_list.jobs[0], number, settings.schedule_defaults())


def _stored_job(
    store: Store, row: JobRow, run: int | None, defaults: ScheduleDefaults
) -> dict[str, Any]:
    """Return the view of a job in a data folder that nobody uses."""
    if not present_runs(row) and run is None:
        return job_view(row, None, None, time.time(), None, defaults)
    shown = chosen_run(row, run)
    tallies, chain = store.query(Tallies(shown.id)), store.query(ReadChain(shown.id, MOST_CHAIN))
    assert isinstance(tallies, TallyRows) and isinstance(chain, ChainRuns)
    view = job_view(row, tallies, None, time.time(), shown, defaults)
    return stopped(view) | chain_view(chain.rows)


async def runs(settings: Settings, ref: str, limit: int) -> dict[str, Any]:
    """Return the newest runs of a job, or of all jobs, under `runs`."""
    if is_live(settings):
        async with running(settings) as ask:
            return await ask("runs", {"limit": limit} | ({"ref": ref} if ref else {}))
    with contextlib.closing(open_database(settings)) as store:
        if ref:
            rows = present_runs(find_job(store, ref))[:limit]
        else:
            outcome = store.query(ReadRuns(NEWEST, limit))
            assert isinstance(outcome, RunRows)
            rows = outcome.rows
    return {"runs": [stopped(run_listed(row, LiveRun(), time.time())) for row in rows]}


async def schedules(settings: Settings, ref: str = "", limit: int = 1) -> dict[str, Any]:
    """Return the schedules of all jobs that have one, or of one job, under `jobs`."""
    if is_live(settings):
        async with running(settings) as ask:
            return await ask("schedule", {"limit": limit} | ({"ref": ref} if ref else {}))
    with contextlib.closing(open_database(settings)) as store:
        if ref:
            rows = [find_job(store, ref)]
        else:
            listed = store.query(ListJobs())
            assert isinstance(listed, JobList)
            rows = [row for row in listed.jobs if is_visible(row) and row.schedule_from]
    now, defaults = time.time(), settings.schedule_defaults()
    return {"jobs": [schedule_view(row, now, limit, defaults) for row in rows]}


async def versions(settings: Settings, ref: str) -> dict[str, Any]:
    """Return the versions of a job's spec under `versions`."""
    if is_live(settings):
        async with running(settings) as ask:
            return await ask("versions", {"ref": ref})
    with contextlib.closing(open_database(settings)) as store:
        row = find_job(store, ref)
        outcome = store.query(ReadVersions(row.id))
        assert isinstance(outcome, JobVersions)
        return {"versions": versions_view(row, outcome.rows)}


async def removable(settings: Settings, ref: str) -> list[dict[str, Any]]:
    """Return the runs that retention removes, of a job or of all; nothing is changed."""
    if is_live(settings):
        async with running(settings) as ask:
            reply = await ask("prune", {"ref": ref, "dry_run": True})
        views: list[dict[str, Any]] = reply["runs"]
        return views
    with contextlib.closing(open_database(settings)) as store:
        number = find_job(store, ref).id if ref else None
        query = ReadRemovable(time.time(), settings.retention(), MOST_REMOVABLE, number)
        outcome = store.query(query)
        assert isinstance(outcome, RemovableRuns)
        return [removable_view(row) for row in outcome.rows]


def stopped(view: dict[str, Any]) -> dict[str, Any]:
    """Return the view of a job in a data folder without a master: a running run is stopped.

    The database still says running, because a killed process cannot change it."""
    if view["state"] in (RunState.PENDING, RunState.RUNNING):
        view = {**view, "state": STOPPED, "reason": NOBODY_RUNS}
    if "runs" in view:
        view = {**view, "runs": [stopped(run) for run in view["runs"]]}
    return view


def find_job(store: Store, ref: str) -> JobRow:
    job_list = store.query(FindJob(ref))
    assert isinstance(job_list, JobList)
    if not any(is_visible(job) for job in job_list.jobs):
        listed = store.query(ListJobs())
        assert isinstance(listed, JobList)
        raise no_such_job(ref, [job.name for job in listed.jobs if is_visible(job)])
    return job_list.jobs[0]


def database_away(error: RefusedError) -> UnreachableError:
    """Return the error for a missing database. Masters try again until it is back."""
    return UnreachableError(
        f"the database is away: {error}; the masters continue when it is back", code=AWAY
    )


def no_such_job(ref: str, names: Sequence[str]) -> RefusedError:
    """Return the error for an unknown job, with the most similar name or all names."""
    near = near_names(ref, names)
    if near:
        what = f"did you mean {near[0]!r}? `zcrawl jobs` lists all"
    elif names:
        more = "" if len(names) <= MOST_NAMES else f" and {len(names) - MOST_NAMES} more"
        what = f"there are: {', '.join(names[:MOST_NAMES])}{more}"
    else:
        what = "there are no jobs here yet"
    return RefusedError(f"no job {ref!r}; {what}", code=NO_SUCH_JOB)


def nobody_runs(data: Path) -> UnreachableError:
    return UnreachableError(f"no cluster runs in {data}; `zcrawl up --data {data}` starts one")


def open_database(settings: Settings, *, writable: bool = False) -> Store:
    """Open the database of the cluster or of the data folder; read-only unless `writable`."""
    if settings.in_cluster:
        from zcrawl.roles.cluster import open_store

        return open_store(settings.config, readonly=not writable)
    if writable:
        from zcrawl.roles.offline import open_writable

        return open_writable(settings.data)
    from zcrawl.roles.offline import open_readonly

    return open_readonly(settings.data)


def stale_note(reply: dict[str, Any]) -> str | None:
    """Return a note about an answer that does not come from a leader, or None."""
    stale = reply.get("stale")
    if not stale:
        return None
    silent = stale["leader_silent_s"]
    since = "" if silent is None else f" for {silent:.0f} s"
    why = f" ({stale['why']})" if stale.get("why") else ""
    return f"no leader{since}{why}: {stale['answered_by']} answers from the database"
