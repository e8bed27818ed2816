"""Use the database of a data folder or a cluster without a master: read it, or cancel a job when no
leader answers.

Cancelling changes rows only: no spec is read, no leader is started. The same transaction raises the
epoch (G4), so it is safe even if a master runs, hangs or sleeps: the next write of that master is
fenced, and it reloads the stored state.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Any

from zcrawl.errors import RefusedError, UsageError, ZcrawlError
from zcrawl.model.people import AuditEntry
from zcrawl.model.reasons.cluster import NO_SUCH_RUN, RUN_ENDED
from zcrawl.model.reasons.storage import NO_DATABASE
from zcrawl.roles.client import who_asks
from zcrawl.roles.place import DATABASE
from zcrawl.store.commands import CancelOffline, ClientAction, RunChanged
from zcrawl.store.ports import Store
from zcrawl.store.queries import JobList, JobRow, ListJobs
from zcrawl.store.rules import run_reply
from zcrawl.store.sql.dialects.sqlite_files import check_mark
from zcrawl.telemetry.views import chosen_run

HOLDER = "offline"


def open_readonly(data: Path) -> Store:
    """Open the database for reading; UsageError if there is none, as in a mistyped folder."""
    return _open(data, readonly=True)


def open_writable(data: Path) -> Store:
    """Open the database for writing. This migrates an older schema, so call it only if no other
    process uses the folder, or if the epoch fences that process."""
    return _open(data, readonly=False)


def _open(data: Path, *, readonly: bool) -> Store:
    path = data / DATABASE
    check_mark(path)
    if not path.is_file():
        raise UsageError(
            f"there is no database in {data}; `zcrawl crawl URL --data {data}` makes one",
            code=NO_DATABASE,
        )
    from zcrawl.store.sql import light

    light.load()
    from zcrawl.store.sql.store import open_sqlite

    return open_sqlite(path, readonly=readonly)


def cancel(store: Store, job: JobRow, now: float, number: int | None = None) -> dict[str, Any]:
    """End a run of a job, by default the newest; return the same answer as a leader."""
    run = chosen_run(job, number)
    what, by = "cancel --offline", who_asks()
    line = AuditEntry(now, by, "", "data folder", "", HOLDER, what, job.name)
    request = secrets.token_hex(16)
    client_action = ClientAction(request, what, by, HOLDER, now, changed=1, audit=line)
    outcome = store.execute(CancelOffline(HOLDER, run.id, now, client_action))
    assert isinstance(outcome, RunChanged)
    if outcome.row is None or outcome.refused not in ("", RUN_ENDED):
        raise RefusedError(f"job {job.id} has no run {run.id}", code=NO_SUCH_RUN)
    return run_reply(outcome.row, 0 if outcome.refused else 1)


def unfinished_specs(data: Path) -> list[tuple[str, bytes]]:
    """Return the job's name and the spec of each unfinished run; empty if the database cannot be
    read, because the next step then reports the error."""
    try:
        store = open_readonly(data)
    except ZcrawlError:
        return []
    with contextlib.closing(store):
        listed = store.query(ListJobs())
    assert isinstance(listed, JobList)
    return [(job.name, run.spec) for job in listed.jobs for run in job.runs if not run.state.ended]
