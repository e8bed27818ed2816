"""What differs between databases, as two ports: a `Dialect` connects, locks and names errors, a
`Session` is one connection with the few calls that the store's statements need.

Statements are the same for all databases and are written with `?`; where a bulk write has no
common form, a Session method says what is meant and each database does it its own way.
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
    connection: Any  # the driver's own: statements go past peewee's query builder

    # ------------------------------------------------------------ statements

    @abc.abstractmethod
    def all(self, sql: str, values: Row = ()) -> Sequence[Any]: ...

    @abc.abstractmethod
    def one(self, sql: str, values: Row = ()) -> Any: ...

    @abc.abstractmethod
    def run(self, sql: str, values: Row = ()) -> int:
        """The number of rows that were found to be changed, also those that stayed equal."""

    @abc.abstractmethod
    def all_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> Iterator[Any]:
        """Rows of `sql`, whose `{}` stands for an IN list; `before` fills the marks before it."""

    @abc.abstractmethod
    def run_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> None: ...

    @abc.abstractmethod
    def all_each(self, parts: Sequence[tuple[str, Row]]) -> list[Sequence[Any]]:
        """The rows of several SELECTs of the same columns, in as few round trips as it takes."""

    def utc(self) -> float:
        """The server's clock, which all masters share; 0: it has none of its own."""
        return 0.0

    # ------------------------------------------------------------ bulk writes

    @abc.abstractmethod
    def insert_many(self, table: str, columns: str, rows: Sequence[Row]) -> None: ...

    @abc.abstractmethod
    def update_many(self, table: str, columns: Sequence[str], key: str, rows: Iterable[Row]) -> int:
        """Each row gives the columns' new values, then the key; the number of rows found."""

    @abc.abstractmethod
    def put_many(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        """Set `columns` of the rows with these keys, or insert them: others have defaults."""

    @abc.abstractmethod
    def add_many(self, table: str, keys: str, column: str, rows: Sequence[Row]) -> None:
        """The same, but add to what is there."""

    # ------------------------------------------------------------ transactions

    @abc.abstractmethod
    def begin_write(self) -> None: ...

    @abc.abstractmethod
    def begin_read(self) -> None:
        """What is read from here on to `roll_back` belongs to one moment."""

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def roll_back(self) -> bool:
        """Whether it is certain that nothing was applied. Never raises."""

    @property
    @abc.abstractmethod
    def lost(self) -> bool:
        """Nothing can be asked of it any more: connect again."""

    @abc.abstractmethod
    def be_patient(self, patient: bool) -> None:
        """Allow statements that take long (a load, a migration), or only short ones again."""

    def close(self) -> None:
        self.database.close()


class Dialect(Protocol):
    """One database, as its URLs or its path name it."""

    readonly: bool
    where: str  # for messages; without a password
    lock_epoch: (
        str  # SELECT epoch, commits with a lock: the first statement of a leader's transaction
    )
    index_statements: tuple[str, ...]

    def connect(self, role: str) -> Session:
        """An open connection that any one thread at a time may use; `role`: writer, reader."""

    def table_options(self, session: Session) -> str:
        """What follows the columns in CREATE TABLE."""

    def migration_lock(self, session: Session) -> AbstractContextManager[None]:
        """Nobody else changes the schema within it."""

    def before_takeover(self, session: Session, shard: int) -> None:
        """Free the lock of `lock_epoch`, should a paused leader hold it."""

    def keep_leading(self, session: Session, epoch: int) -> None:
        """A leader's writer has a new connection: whoever takes over must know it."""

    def committed(self, commits: int) -> None:
        """A transaction of a leader is durable: the database holds so many now."""

    def close(self) -> None:
        """The store is closed, and its connections with it."""

    def error(self, error: BaseException) -> StoreError | None:
        """The error as the port names it; None: not an error of the database."""

    def commit_error(self, error: Exception, rolled_back: bool) -> StoreError:
        """What a failed COMMIT means; `rolled_back` is what `roll_back` said after it."""
