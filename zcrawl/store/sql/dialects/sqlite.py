"""The store on SQLite: connections, bulk statements, and errors.

SQLite never loses a connection and runs statements without a round trip, so bulk writes are
`executemany` of a prepared statement.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
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
from zcrawl.model.reasons.storage import DUPLICATE_KEY
from zcrawl.store.sql.dialects.dialect import Row, Session
from zcrawl.store.sql.dialects.sqlite_files import CommitMark, is_full, readonly_uri

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
_OF_THE_DISK = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
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


class SqliteSession(Session):
    def __init__(self, database: peewee.Database) -> None:
        self.database = database
        self.connection = database.connection()  # type: ignore[no-untyped-call]

    def all(self, sql: str, values: Row = ()) -> list[Any]:
        rows: list[Any] = self.connection.execute(sql, values).fetchall()
        return rows

    def fetch_row(self, sql: str, values: Row = ()) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def run(self, sql: str, values: Row = ()) -> int:
        return int(self.connection.execute(sql, values).rowcount)

    def all_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> Iterator[Any]:
        for chunk in padded(values):
            marks = ",".join("?" * len(chunk))
            yield from self.connection.execute(sql.format(marks), (*before, *chunk))

    def run_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> None:
        for chunk in padded(values):
            marks = ",".join("?" * len(chunk))
            self.connection.execute(sql.format(marks), (*before, *chunk))

    def all_each(self, parts: Sequence[tuple[str, Row]]) -> list[Sequence[Any]]:
        return [self.all(sql, values) for sql, values in parts]

    def insert_many(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        if rows:
            self.connection.executemany(_insert(table, columns), rows)

    def update_many(self, table: str, columns: Sequence[str], key: str, rows: Iterable[Row]) -> int:
        given = list(rows)
        if not given:
            return 0
        statement = _update(table, tuple(columns), key)
        return int(self.connection.executemany(statement, given).rowcount)

    def put_many(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        if rows:
            changes = ", ".join(f"{column} = excluded.{column}" for column in columns.split(", "))
            put = f" ON CONFLICT ({keys}) DO UPDATE SET {changes}"
            self.connection.executemany(_insert(table, f"{keys}, {columns}") + put, rows)

    def add_many(self, table: str, keys: str, column: str, rows: Sequence[Row]) -> None:
        if rows:
            add = f" ON CONFLICT ({keys}) DO UPDATE SET {column} = {column} + excluded.{column}"
            self.connection.executemany(_insert(table, f"{keys}, {column}") + add, rows)

    def begin_write(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def begin_read(self) -> None:
        self.connection.execute("BEGIN")

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def roll_back(self) -> bool:
        with contextlib.suppress(Exception):  # whatever it is, the caller hears "not certain"
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
                return True
        return False

    @property
    def lost(self) -> bool:
        return False

    def be_patient(self, patient: bool) -> None:
        """Do nothing: only the wait for the lock has a timeout here."""


@functools.lru_cache(maxsize=64)
def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


@functools.lru_cache(maxsize=64)
def _update(table: str, columns: tuple[str, ...], key: str) -> str:
    changes = ", ".join(f"{column} = ?" for column in columns)
    return f"UPDATE {table} SET {changes} WHERE {key} = ?"


def padded(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield chunks whose lengths are in IN_LENGTHS; the last value is repeated."""
    rest = list(values)
    longest = IN_LENGTHS[-1]
    for start in range(0, len(rest), longest):
        chunk = rest[start : start + longest]
        length = next(n for n in IN_LENGTHS if n >= len(chunk))
        yield chunk + chunk[-1:] * (length - len(chunk))


class SqliteDialect:
    """SQLite in WAL mode. One writer at a time is its own rule, so BEGIN IMMEDIATE is the lock."""

    lock_epoch = "SELECT epoch, commits FROM leaders WHERE shard = ?"
    field_types: ClassVar[dict[str, str]] = {"ZC_ID": "INTEGER", "ZC_BYTES": "BLOB"}
    # Partial indexes: a final row is removed instead of moved, so the index stays as small as the
    # frontier, and a sweep or a lane count reads queued rows only.
    index_statements: tuple[str, ...] = (
        "CREATE INDEX requests_queued ON requests (run, host, prio, depth, seq) WHERE state = 0",
        "CREATE INDEX requests_failed ON requests (run, seq) WHERE state >= 2",
    )

    def __init__(self, path: Path, readonly: bool) -> None:
        self.where = str(path)
        self.readonly = readonly
        self._path = path
        self._mark = CommitMark(path)

    def committed(self, commits: int) -> None:
        with contextlib.suppress(OSError):  # the commit is valid; an older mark only detects less
            self._mark.write(commits)

    def close(self) -> None:
        self._mark.close()

    def connect(self, role: str) -> SqliteSession:
        whole = f"{self._path.absolute().as_uri()}?mode=rwc"
        database = peewee.SqliteDatabase(
            readonly_uri(self._path) if self.readonly else whole,
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            thread_safe=False,
            autoconnect=False,
            check_same_thread=False,
            field_types=self.field_types,
        )
        database.connect()
        session = SqliteSession(database)
        try:
            self._prepare(session.connection)
        except BaseException:
            database.close()
            raise
        return session

    def _prepare(self, connection: Any) -> None:
        if not self.readonly:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute("PRAGMA synchronous = full")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # is it a database?

    def table_options(self, session: Session) -> str:
        return ""

    def migration_lock(self, session: Session) -> AbstractContextManager[None]:
        return contextlib.nullcontext()  # the migration's own BEGIN IMMEDIATE is enough

    def before_takeover(self, session: Session, shard: int) -> None:
        """Do nothing: all writers are on this machine, and a dead process holds no lock."""

    def keep_leading(self, session: Session, epoch: int) -> None:
        """Never called: a SQLite connection is never lost."""

    def error(self, error: BaseException) -> StoreError | None:
        error = _raw(error)
        if isinstance(error, OverflowError | UnicodeEncodeError | sqlite3.DataError):
            return StoreDataError(f"this cannot be stored: {error}")
        if isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError):
            return StoreDataError(f"this cannot be stored: {error}")
        if isinstance(error, sqlite3.Error):
            return self._sqlite_error(error)
        if isinstance(error, peewee.PeeweeException):
            return StoreUnavailable(f"{self.where}: {error}")
        return None

    def commit_error(self, error: Exception, rolled_back: bool) -> StoreError:
        named = self.error(error)
        if _code(error) == sqlite3.SQLITE_FULL and named is not None:
            return named  # SQLite rolls such a commit back by itself
        if not rolled_back:
            return CommitUnknown(f"{self.where}: the commit failed: {error}")
        if isinstance(named, StoreUnavailable):
            return named
        return StoreUnavailable(f"{self.where}: {error}")

    def _sqlite_error(self, error: sqlite3.Error) -> StoreError:
        extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        code = _code(error)
        if code == sqlite3.SQLITE_FULL or (code in _OF_THE_DISK and is_full(self._path)):
            return DiskFull(f"{self.where}: the disk is full; free some space, then continue")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreCorrupt(
                f"{self.where} is damaged or no database ({error}); restore it from a backup, or "
                f"move all {self._path.name}* files away to start with an empty one"
            )
        if extended in _UNIQUE:
            # The fenced leader is the only writer, so a duplicate key means that its memory
            # differs from the database. Nothing was applied, but it must reload.
            return CommitUnknown(f"{self.where}: {error}", code=DUPLICATE_KEY)
        if code in _BAD_DATA:
            return StoreDataError(f"this cannot be stored: {error}")
        if code in _AWAY:
            return StoreUnavailable(f"{self.where}: {error}")
        return StoreError(f"{self.where}: {error}")


def _raw(error: BaseException) -> BaseException:
    """Return the error of SQLite without peewee's wrapping."""
    if isinstance(error, peewee.PeeweeException) and error.args:
        return error.args[0] if isinstance(error.args[0], BaseException) else error
    return error


def _code(error: BaseException) -> int:
    return int(getattr(_raw(error), "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
