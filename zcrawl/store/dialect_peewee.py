"""What differs between databases: how to connect, begin, lock, index, and read their errors.

`store_peewee` holds one dialect and everything else speaks through `Session`. Statements are
written with `?`; a dialect with another placeholder translates once, here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import peewee

from zcrawl.errors import (
    CommitUnknown,
    DiskFull,
    StoreCorrupt,
    StoreDataError,
    StoreError,
    StoreUnavailable,
)

BUSY_TIMEOUT_S = 5.0
CACHE_KIB = 16 * 1024
CHECKPOINT_PAGES = 4_000  # 16 MB of WAL: fewer checkpoints, each page is written back less often

# IN lists are padded to one of these lengths, so that few statements fill the statement cache.
IN_LENGTHS = (1, 4, 16, 64, 200, 500)

_UNIQUE = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}
_BAD_DATA = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}
_AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}


class Session:
    """One connection, seen through the five calls that the store's statements need."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = self.connection.execute(sql, values).fetchall()
        return rows

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The number of rows that were changed."""
        return int(self.connection.execute(sql, values).rowcount)

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.connection.executemany(sql, rows)

    def all_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> Iterator[Any]:
        """Rows of `sql`, whose `{}` stands for an IN list; `before` fills the marks before it."""
        for chunk in padded(values):
            marks = ",".join("?" * len(chunk))
            yield from self.connection.execute(sql.format(marks), (*before, *chunk))

    def run_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> None:
        for chunk in padded(values):
            marks = ",".join("?" * len(chunk))
            self.connection.execute(sql.format(marks), (*before, *chunk))


def padded(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Chunks whose lengths are among IN_LENGTHS; the last value is repeated."""
    rest = list(values)
    longest = IN_LENGTHS[-1]
    for start in range(0, len(rest), longest):
        chunk = rest[start : start + longest]
        length = next(n for n in IN_LENGTHS if n >= len(chunk))
        yield chunk + chunk[-1:] * (length - len(chunk))


def connection_of(database: peewee.Database) -> Any:
    """The driver's own connection: statements go past peewee's query builder."""
    return database.connection()  # type: ignore[no-untyped-call]


class SqliteDialect:
    """SQLite in WAL mode. One writer at a time is its own rule, so BEGIN IMMEDIATE is the lock."""

    begin_write = "BEGIN IMMEDIATE"
    begin_read = "BEGIN"
    lock_epoch = "SELECT epoch FROM leaders WHERE shard = ?"
    field_types: ClassVar[dict[str, str]] = {"ZC_ID": "INTEGER", "ZC_BYTES": "BLOB"}
    # Partial: a final row leaves the index instead of moving within it, so the index stays as
    # small as the frontier and a sweep or a lane count reads queued rows only. (MySQL has no
    # partial index: there it is (run, state, host, prio, depth, seq).)
    index_statements = (
        "CREATE INDEX requests_queued ON requests (run, host, prio, depth, seq) WHERE state = 0",
        "CREATE INDEX requests_failed ON requests (run, seq) WHERE state >= 2",
    )

    def __init__(self, path: Path, readonly: bool) -> None:
        self.path = path
        self.readonly = readonly

    def connect(self) -> peewee.SqliteDatabase:
        """An open connection that any one thread at a time may use."""
        mode = "ro" if self.readonly else "rwc"
        database = peewee.SqliteDatabase(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            thread_safe=False,
            autoconnect=False,
            check_same_thread=False,
            field_types=self.field_types,
        )
        database.connect()
        try:
            self._prepare(connection_of(database))
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, connection: Any) -> None:
        if not self.readonly:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute("PRAGMA synchronous = full")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # is it a database?

    def error(self, error: BaseException) -> StoreError | None:
        """The error as the port names it; None: not an error of the database."""
        if isinstance(error, peewee.PeeweeException) and error.args:
            error = error.args[0] if isinstance(error.args[0], BaseException) else error
        if isinstance(error, OverflowError | UnicodeEncodeError | sqlite3.DataError):
            return StoreDataError(f"this cannot be stored: {error}")
        if isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError):
            if "closed" in str(error):
                return StoreUnavailable(f"{self.path} is closed")
            return StoreDataError(f"this cannot be stored: {error}")
        if isinstance(error, sqlite3.Error):
            return self._sqlite_error(error)
        if isinstance(error, peewee.PeeweeException):
            return StoreUnavailable(f"{self.path}: {error}")
        return None

    def _sqlite_error(self, error: sqlite3.Error) -> StoreError:
        extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        code = extended & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(f"{self.path}: the disk is full; free some space, then go on")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreCorrupt(
                f"{self.path} is damaged or no database ({error}); restore it from a backup, or "
                "move it and its -wal and -shm files away to start anew"
            )
        if extended in _UNIQUE:
            # The fenced leader is the only writer: a key that is there twice means that its
            # picture of the database is wrong. Nothing was applied, but it must reload.
            return CommitUnknown(f"{self.path}: {error}", code="duplicate_key")
        if code in _BAD_DATA:
            return StoreDataError(f"this cannot be stored: {error}")
        if code in _AWAY:
            return StoreUnavailable(f"{self.path}: {error}")
        return StoreError(f"{self.path}: {error}")
