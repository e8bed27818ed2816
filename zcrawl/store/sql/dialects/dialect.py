"""The differences between databases, as two interfaces: a `Dialect` connects, locks and translates
errors; a `Session` is one connection with the few calls that the store's statements need.

Statements are the same for all databases and are written with `?`. Bulk writes have no common form,
so each is a method of Session that every database implements in its own way.
Implemented by `sqlite` and `mysql`; used by `sql.store*`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import peewee

from zcrawl.errors import StoreError

Row = Sequence[Any]


class Session(abc.ABC):
    """One connection, used by one thread at a time."""

    database: peewee.Database  # for the schema only
    connection: Any  # of the driver: statements do not use peewee's query builder

    # ------------------------------------------------------------ statements

    @abc.abstractmethod
    def all(self, sql: str, values: Row = ()) -> Sequence[Any]: ...

    @abc.abstractmethod
    def fetch_row(self, sql: str, values: Row = ()) -> Any: ...

    @abc.abstractmethod
    def run(self, sql: str, values: Row = ()) -> int:
        """Run a statement; return the number of matching rows, also if their values stay equal."""

    @abc.abstractmethod
    def all_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> Iterator[Any]:
        """Yield rows of `sql`, whose `{}` is an IN list; `before` fills the marks before it."""

    @abc.abstractmethod
    def run_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> None: ...

    @abc.abstractmethod
    def all_each(self, parts: Sequence[tuple[str, Row]]) -> list[Sequence[Any]]:
        """Return the rows of several SELECTs of the same columns, in few round trips."""

    def utc(self) -> float:
        """Return the time of the server's clock, which all masters share; 0: it has none."""
        return 0.0

    # ------------------------------------------------------------ bulk writes

    @abc.abstractmethod
    def insert_many(self, table: str, columns: str, rows: Sequence[Row]) -> None: ...

    @abc.abstractmethod
    def update_many(self, table: str, columns: Sequence[str], key: str, rows: Iterable[Row]) -> int:
        """Update rows, each given as new values and then the key; return how many matched."""

    @abc.abstractmethod
    def put_many(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        """Set `columns` of the rows with these keys, or insert rows with defaults elsewhere."""

    @abc.abstractmethod
    def add_many(self, table: str, keys: str, column: str, rows: Sequence[Row]) -> None:
        """Add to `column` of the rows with these keys, or insert them."""

    # ------------------------------------------------------------ transactions

    @abc.abstractmethod
    def begin_write(self) -> None: ...

    @abc.abstractmethod
    def begin_read(self) -> None:
        """Begin a consistent read: until `roll_back`, all rows are of one moment."""

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def roll_back(self) -> bool:
        """Roll back; return whether it is certain that nothing was applied. Never raises."""

    @property
    @abc.abstractmethod
    def lost(self) -> bool:
        """Return whether the connection is lost, so that a new one is needed."""

    @abc.abstractmethod
    def be_patient(self, patient: bool) -> None:
        """Allow statements that take long (a load, a migration), or only short ones again."""

    def close(self) -> None:
        self.database.close()


class Dialect(Protocol):
    """One database, named by its URLs or its path."""

    readonly: bool
    where: str  # for messages; without a password
    lock_epoch: (
        str  # SELECT epoch, commits with a lock: the first statement of a leader's transaction
    )
    index_statements: tuple[str, ...]

    def connect(self, role: str) -> Session:
        """Open a connection, for one thread at a time; `role`: writer, reader."""

    def table_options(self, session: Session) -> str:
        """Return the text after the columns in CREATE TABLE."""

    def migration_lock(self, session: Session) -> AbstractContextManager[None]:
        """Return a context manager in which no other process changes the schema."""

    def before_takeover(self, session: Session, shard: int) -> None:
        """Free the lock of `lock_epoch`, in case a paused leader holds it."""

    def keep_leading(self, session: Session, epoch: int) -> None:
        """Store the new connection of a leader's writer, so that a later leader can kill it."""

    def committed(self, commits: int) -> None:
        """Note that a leader's transaction is durable, and how many commits the database has."""

    def close(self) -> None:
        """Release resources after the store has closed its connections."""

    def error(self, error: BaseException) -> StoreError | None:
        """Return the error of the port; None: not an error of the database."""

    def commit_error(self, error: Exception, rolled_back: bool) -> StoreError:
        """Return the error of a failed COMMIT; `rolled_back` is the result of `roll_back`."""
