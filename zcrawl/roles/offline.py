"""A data folder's database for those who only read, with or without a cluster running there."""

from __future__ import annotations

from pathlib import Path

from zcrawl.errors import UsageError
from zcrawl.roles.place import DATABASE
from zcrawl.store.ports import Store


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
