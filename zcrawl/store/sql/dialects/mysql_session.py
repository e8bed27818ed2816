"""One connection to MySQL or MariaDB: few round trips, bulk statements, bounded packets.

Made by `mysql`. Statements are built as text (see `mysql_literals`) and sent through
one PyMySQL cursor.
"""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import peewee
import pymysql

from zcrawl.errors import StoreDataError
from zcrawl.model.reasons.failure import TOO_LARGE
from zcrawl.store.sql.dialects.dialect import Row, Session
from zcrawl.store.sql.dialects.mysql_errors import USELESS, code_of
from zcrawl.store.sql.dialects.mysql_literals import filled, literal, row_literal, split_rows

READ_TIMEOUT_S: Final = 8.0  # a stalled connection is noticed after this long
PATIENT_TIMEOUT_S: Final = 120.0  # the longest time of a load or a migration
IN_LENGTH: Final = 500
STATEMENT_CHARS: Final = 1_000_000  # longer statements gain nothing and hold more memory
UNION_LENGTH: Final = 100  # SELECTs in one UNION ALL: its parsing grows faster than their number
FEW_GROUPS: Final = 8  # up to this number, UPDATE … IN is cheaper than one UPDATE with a join
PACKET_MARGIN: Final = 1024


# A connection's id, and its client's address as the server's process list shows it. Ids start
# again when a server is restarted; both together identify one connection.
Seat: TypeAlias = tuple[int, str]


class MysqlSession(Session):
    def __init__(self, database: peewee.Database) -> None:
        self.database = database
        self.connection = database.connection()  # type: ignore[no-untyped-call]
        self.max_packet = 1 << 20  # until the server says more
        self.seat: Seat = (self.connection.thread_id(), "")
        self._cursor = self.connection.cursor()
        self._open_transaction = False
        self.is_current: Callable[[], bool] = lambda: True  # is its server still the one in use?

    # ------------------------------------------------------------ statements

    def _send(self, sql: str) -> int:
        data = sql.encode()
        if len(data) > self.max_packet - PACKET_MARGIN:
            raise StoreDataError(
                f"a statement of {len(data):,} bytes: the server takes {self.max_packet:,} "
                "(max_allowed_packet)",
                code=TOO_LARGE,
            )
        try:
            return int(self._cursor.execute(data))
        except pymysql.err.MySQLError as error:
            if code_of(error) in USELESS:
                self.abandon()  # the caller gets the error, and the next call connects again
            raise

    def all(self, sql: str, values: Row = ()) -> Sequence[Any]:
        self._send(filled(sql, values))
        rows: Sequence[Any] = self._cursor.fetchall()
        return rows

    def fetch_row(self, sql: str, values: Row = ()) -> Any:
        self._send(filled(sql, values))
        return self._cursor.fetchone()

    def run(self, sql: str, values: Row = ()) -> int:
        return self._send(filled(sql, values))

    def utc(self) -> float:
        (seconds,) = self.fetch_row("SELECT UNIX_TIMESTAMP(CURRENT_TIMESTAMP(6))")
        return float(seconds)

    def all_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> Iterator[Any]:
        for statement in _in_lists(sql, before, values):
            self._send(statement)
            yield from self._cursor.fetchall()

    def run_in(self, sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> None:
        for statement in _in_lists(sql, before, values):
            self._send(statement)

    def all_each(self, parts: Sequence[tuple[str, Row]]) -> list[Sequence[Any]]:
        """Run the parts as a UNION ALL whose rows begin with the number of their part."""
        answers: list[list[Any]] = [[] for _ in parts]
        for start in range(0, len(parts), UNION_LENGTH):
            chunk = parts[start : start + UNION_LENGTH]
            selects = [
                f"(SELECT {start + i} AS part, {filled(sql, values).removeprefix('SELECT ')})"
                for i, (sql, values) in enumerate(chunk)
            ]
            self._send(" UNION ALL ".join(selects))
            for number, *row in self._cursor.fetchall():
                answers[number].append(tuple(row))
        return list(answers)

    # ------------------------------------------------------------ bulk writes

    def insert_many(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        self._insert(f"INSERT INTO {table} ({columns}) VALUES ", rows, "")

    def put_many(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        changes = ", ".join(f"{column} = VALUES({column})" for column in columns.split(", "))
        put = f" ON DUPLICATE KEY UPDATE {changes}"
        self._insert(f"INSERT INTO {table} ({keys}, {columns}) VALUES ", rows, put)

    def add_many(self, table: str, keys: str, column: str, rows: Sequence[Row]) -> None:
        add = f" ON DUPLICATE KEY UPDATE {column} = {column} + VALUES({column})"
        self._insert(f"INSERT INTO {table} ({keys}, {column}) VALUES ", rows, add)

    def _insert(self, prefix: str, rows: Sequence[Row], suffix: str) -> None:
        most = min(STATEMENT_CHARS, self.max_packet // 4)  # a character takes 4 bytes at most
        for statement in split_rows(prefix, (row_literal(row) for row in rows), suffix, most):
            self._send(statement)

    def update_many(self, table: str, columns: Sequence[str], key: str, rows: Iterable[Row]) -> int:
        """Update rows with few statements: one for all rows with equal values, or a join with a
        table of literals. Row by row, each would cost a round trip."""
        groups: dict[Row, list[Any]] = defaultdict(list)
        for row in rows:
            groups[tuple(row[:-1])].append(row[-1])
        if len(groups) > FEW_GROUPS:
            given = [(*values, row_key) for values, keys in groups.items() for row_key in keys]
            return self._update_joined(table, tuple(columns), key, given)
        changes = ", ".join(f"{column} = ?" for column in columns)
        sql = f"UPDATE {table} SET {changes} WHERE {key} IN ({{}})"
        return sum(
            self._send(statement)
            for values, keys in groups.items()
            for statement in _in_lists(sql, tuple(values), keys)
        )

    def _update_joined(
        self, table: str, columns: tuple[str, ...], key: str, rows: Sequence[Row]
    ) -> int:
        head, tail = _join_update(table, columns, key)
        count = 0
        for start in range(0, len(rows), IN_LENGTH):
            chunk = rows[start : start + IN_LENGTH]
            names = (*columns, key)
            first = ", ".join(
                f"{literal(value)} AS {name}" for value, name in zip(chunk[0], names, strict=True)
            )
            rest = "".join(f" UNION ALL SELECT {row_literal(row)[1:-1]}" for row in chunk[1:])
            count += self._send(f"{head}SELECT {first}{rest}{tail}")
        return count

    # ------------------------------------------------------------ transactions

    def begin_write(self) -> None:
        self._send("START TRANSACTION")
        self._open_transaction = True

    def begin_read(self) -> None:
        self._send("START TRANSACTION READ ONLY")
        self._open_transaction = True

    def commit(self) -> None:
        self._send("COMMIT")
        self._open_transaction = False

    def roll_back(self) -> bool:
        if self._open_transaction and not self.lost:
            self._open_transaction = False
            with contextlib.suppress(Exception):  # whatever it is, the caller hears "not certain"
                self._send("ROLLBACK")
                return True
            self.abandon()  # its state is unknown; the server rolls back when the client is gone
        return False

    @property
    def lost(self) -> bool:
        return not self.connection.open or not self.is_current()

    def abandon(self) -> None:
        """Drop the connection without a message; the dialect kills its rest on the server."""
        with contextlib.suppress(Exception):  # it is being thrown away
            self.connection._force_close()

    def be_patient(self, patient: bool) -> None:
        self.connection._read_timeout = PATIENT_TIMEOUT_S if patient else READ_TIMEOUT_S


def _in_lists(sql: str, before: tuple[Any, ...], values: Iterable[Any]) -> Iterator[str]:
    head, tail = sql.split("{}")
    head = filled(head, before)
    rest = [literal(value) for value in values]
    for start in range(0, len(rest), IN_LENGTH):
        yield head + ",".join(rest[start : start + IN_LENGTH]) + tail


@functools.lru_cache(maxsize=64)
def _join_update(table: str, columns: tuple[str, ...], key: str) -> tuple[str, str]:
    changes = ", ".join(f"t.{column} = v.{column}" for column in columns)
    return f"UPDATE {table} t JOIN (", f") v ON t.{key} = v.{key} SET {changes}"
