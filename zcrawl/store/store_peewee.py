"""The store on a relational database. One command is one fenced transaction; errors of the
database are given their names here, once.

`open_sqlite` makes one: a writer's and a reader's connection, each used by one thread at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, assert_never

import peewee

from zcrawl.errors import CommitUnknown, DiskFull, StoreError, StoreUnavailable
from zcrawl.store import (
    store_peewee_apply,
    store_peewee_load,
    store_peewee_read,
    store_peewee_runs,
    store_peewee_submit,
)
from zcrawl.store.commands import (
    AddSeeds,
    AdvanceOutput,
    ApplyResults,
    ChangeRun,
    Command,
    CommandOutcome,
    CountCrash,
    ExtendLease,
    GrantHosts,
    Reload,
    RetryDead,
    SubmitJob,
    Sweep,
    TakeOver,
)
from zcrawl.store.dialect_peewee import Session, SqliteDialect, connection_of
from zcrawl.store.queries import (
    FindJob,
    ListJobs,
    Query,
    QueryOutcome,
    ReadFailed,
    ReadItems,
    ReadOutputs,
    Refill,
    Tallies,
)
from zcrawl.store.rules import check_epoch
from zcrawl.store.schema_peewee import migrate, read_version

T = TypeVar("T")


def open_sqlite(path: Path | str, readonly: bool = False) -> PeeweeStore:
    """Open or make the database file; its folder is made too. `readonly` writes nothing."""
    path = Path(path)
    if readonly and not path.is_file():
        raise StoreError(f"there is no database at {path}", code="no_database")
    try:
        if not readonly:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab"):  # the system's own words, where SQLite says "unable to open"
                pass
    except OSError as error:
        raise StoreError(
            f"cannot write the database {path}: {error.strerror}; choose another data folder or "
            "correct its rights",
            code="store_unwritable",
        ) from error
    store = PeeweeStore(SqliteDialect(path, readonly))
    store.open()
    return store


class PeeweeStore:
    """Implements `store.ports.Store`."""

    def __init__(self, dialect: SqliteDialect) -> None:
        self._dialect = dialect
        self._databases: list[peewee.Database] = []

    # ------------------------------------------------------------ open and close

    def open(self) -> None:
        """Connect twice and bring the schema up to date."""
        try:
            self._named(self._open)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        dialect = self._dialect
        for _ in ("writer", "reader"):
            self._databases.append(dialect.connect())
        self._writer, self._reader = (Session(connection_of(db)) for db in self._databases)
        where = str(dialect.path)
        if dialect.readonly:
            if read_version(self._databases[0], self._writer, where) == 0:
                raise StoreError(f"{where} is empty: no crawl was started here", code="no_database")
            return
        self._transaction(
            lambda: migrate(self._databases[0], self._writer, dialect.index_statements, where)
        )

    def close(self) -> None:
        while self._databases:
            self._databases.pop().close()

    # ------------------------------------------------------------ the port

    def execute(self, command: Command) -> CommandOutcome:
        if self._dialect.readonly:
            raise StoreError(f"{self._dialect.path} was opened to be read only", code="readonly")
        return self._named(lambda: self._transaction(lambda: self._run(command)))

    def query(self, query: Query) -> QueryOutcome:
        return self._named(lambda: self._answer(query))

    # ------------------------------------------------------------ transactions

    def _named(self, work: Callable[[], T]) -> T:
        """Foreign errors become errors of the port; everything else passes."""
        try:
            return work()
        except Exception as error:
            named = self._dialect.error(error)
            if named is None:
                raise
            raise named from error

    def _transaction(self, work: Callable[[], T]) -> T:
        connection = self._writer.connection
        connection.execute(self._dialect.begin_write)
        try:
            outcome = work()
        except BaseException:
            self._roll_back()
            raise
        try:
            connection.execute("COMMIT")
        except Exception as error:
            rolled_back = self._roll_back()
            named = self._dialect.error(error)
            if isinstance(named, DiskFull):
                raise named from error  # SQLite rolls such a commit back by itself
            if not rolled_back:
                raise CommitUnknown(f"{self._dialect.path}: the commit failed: {error}") from error
            if isinstance(named, StoreUnavailable):
                raise named from error
            raise StoreUnavailable(f"{self._dialect.path}: {error}") from error
        return outcome

    def _roll_back(self) -> bool:
        """Whether it is certain that nothing was applied."""
        connection = self._writer.connection
        with contextlib.suppress(Exception):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
                return True
        return False

    def _run(self, command: Command) -> CommandOutcome:
        session = self._writer
        shard = command.shard if isinstance(command, TakeOver) else 0
        locked = session.one(self._dialect.lock_epoch, (shard,))
        stored: int | None = None if locked is None else locked[0]
        if isinstance(command, TakeOver):
            return store_peewee_load.take_over(session, command, stored)
        check_epoch(command.epoch, stored or 0)
        match command:
            case Reload():
                return store_peewee_load.load(session, command.epoch)
            case ApplyResults():
                return store_peewee_apply.apply_results(session, command)
            case SubmitJob():
                return store_peewee_submit.submit_job(session, command)
            case AddSeeds():
                return store_peewee_submit.add_seeds(session, command)
            case ChangeRun():
                return store_peewee_runs.change_run(session, command)
            case Sweep():
                return store_peewee_runs.sweep(session, command)
            case RetryDead():
                return store_peewee_runs.retry_dead(session, command)
            case CountCrash():
                return store_peewee_runs.count_crash(session, command)
            case GrantHosts():
                return store_peewee_load.grant_hosts(session, command)
            case ExtendLease():
                return store_peewee_load.extend_lease(session, command)
            case AdvanceOutput():
                return store_peewee_load.advance_output(session, command)
            case _:
                assert_never(command)

    def _answer(self, query: Query) -> QueryOutcome:
        session = self._reader
        connection = session.connection
        connection.execute(self._dialect.begin_read)
        try:
            match query:
                case Refill():
                    return store_peewee_read.refill(session, query)
                case ListJobs():
                    return store_peewee_read.list_jobs(session)
                case FindJob():
                    return store_peewee_read.find_job(session, query)
                case Tallies():
                    return store_peewee_read.tallies(session, query)
                case ReadItems():
                    return store_peewee_read.read_items(session, query)
                case ReadFailed():
                    return store_peewee_read.read_failed(session, query)
                case ReadOutputs():
                    return store_peewee_read.read_outputs(session, query)
                case _:
                    assert_never(query)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
