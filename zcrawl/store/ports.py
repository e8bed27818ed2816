"""What the leader asks of a store: commands that write in one fenced transaction each, and
queries that read. The database is the truth; the leader's memory is a window on it.

Who calls: the master's machines make commands and queries as data, the master loop runs commands
on one writer thread in order and queries on one reader thread, and hands the outcome back as an
event. Backends: `sql.store` (SQLite, MySQL, MariaDB) and `testing.store.store`; one contract suite
runs on all.

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
