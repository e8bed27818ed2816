"""A data folder's database for those who only read, with or without a cluster running there."""

from __future__ import annotations

import contextlib
from pathlib import Path

from zcrawl.errors import UsageError, ZcrawlError
from zcrawl.roles.place import DATABASE
from zcrawl.store.ports import Store
from zcrawl.store.queries import JobList, ListJobs


def open_readonly(data: Path) -> Store:
    """UsageError when there is no database: a mistyped folder is an error, not an empty crawl."""
    path = data / DATABASE
    if not path.is_file():
        raise UsageError(
            f"there is no database in {data}; `zcrawl crawl URL --data {data}` makes one",
            code="no_database",
        )
    from zcrawl.store import light_peewee

    light_peewee.load()
    from zcrawl.store.store_peewee import open_sqlite

    return open_sqlite(path, readonly=True)


def unfinished_specs(data: Path) -> list[tuple[str, bytes]]:
    """The job's name and the spec of each run that has not ended; none where no database can be
    read: whoever goes on with the folder is told why."""
    try:
        store = open_readonly(data)
    except ZcrawlError:
        return []
    with contextlib.closing(store):
        listed = store.query(ListJobs())
    assert isinstance(listed, JobList)
    return [(job.name, run.spec) for job in listed.jobs for run in job.runs if not run.state.ended]
