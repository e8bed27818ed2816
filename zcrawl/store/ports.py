"""The interface of a store: commands that each write in one fenced transaction, and queries.
The database has the complete state; the leader's memory holds a part of it.

The master's machines create commands and queries as data. The master loop runs commands in order on
one writer thread and queries on one reader thread, and returns each outcome as an event. Backends:
`sql.store` (SQLite, MySQL, MariaDB) and `testing.store.store`; one contract suite runs on all.

Guarantees of every backend:
- A command is one transaction. Its first statement is the epoch check, with a lock (G4): a lower
  epoch than the stored one raises `Fenced` and nothing is written.
- `StoreDataError` and `StoreUnavailable` mean that nothing was applied; `CommitUnknown` that it
  may have been.
- `ApplyResults` moves watermarks strictly forward; a request that is final never changes (G3).
- Times are UTC seconds.
"""

from __future__ import annotations

from typing import Protocol

from zcrawl.store.commands import Command, CommandOutcome
from zcrawl.store.queries import Query, QueryOutcome


class Store(Protocol):
    """One store; `execute` is called by one thread at a time, `query` by another."""

    def execute(self, command: Command) -> CommandOutcome: ...

    def query(self, query: Query) -> QueryOutcome: ...

    def close(self) -> None: ...
