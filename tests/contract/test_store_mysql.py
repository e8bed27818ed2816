"""What only the MySQL store can show about what it stores: its types and limits, its statements."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.store_world import (
    DONE,
    QUEUED,
    A,
    B,
    C,
    World,
    link,
    links,
    live_through,
    page,
    timeless,
    unstorable,
)
from tests.servers.mariadb import Mariadb
from zcrawl.errors import CommitUnknown, StoreDataError, StoreError, StoreUnavailable
from zcrawl.model.rows import LaneWant, Refilled
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Loaded, TakeOver
from zcrawl.store.queries import Items, JobList, ListJobs, ReadItems, Refill
from zcrawl.store.sql.dialects.mysql_session import MysqlSession
from zcrawl.store.sql.store import PeeweeStore, open_mysql


@pytest.fixture
def store(mysql_store: PeeweeStore) -> PeeweeStore:
    return mysql_store


# ---------------------------------------------------------------- values


def test_data_that_cannot_be_stored_is_a_data_error(store: PeeweeStore) -> None:
    """A lone surrogate, a number out of range, a wrong type, too long a text: bisect and drop."""
    world = World(store)
    row = world.submit(A).admitted[0]
    before = world.reload()
    good = world.change(row, DONE)
    long = msgspec.structs.replace(link(B), url="https://a.test/" + "x" * 9_000)
    for bad in (
        *unstorable(good),
        msgspec.structs.replace(good, reason="x" * 256),
        msgspec.structs.replace(good, links=(long,)),
        msgspec.structs.replace(good, due_at=float("inf")),
        msgspec.structs.replace(good, items=(b"x" * 17_000_000,)),
    ):
        with pytest.raises(StoreDataError):
            world.apply(bad)
    assert world.reload() == before
    assert world.apply(good).runs[0].counters.done == 1


def test_what_looks_like_sql_is_only_data(store: PeeweeStore) -> None:
    """Quotes, backslashes, percent signs, marks, braces and zero bytes come back as they were."""
    world = World(store)
    nasty = "a'b\"c\\d%s{}?\0\n\r\x1a'; DROP TABLE jobs; -- \\'"
    rows = world.submit(A, B, name=nasty).admitted
    data = bytes(range(256)) + nasty.encode()
    world.finish(rows[0], DONE, items=(data,), page=msgspec.structs.replace(page(A), title=nasty))
    world.finish(rows[1], RequestState.DEAD, reason=nasty)
    assert world.run_row(rows[0].run).name == nasty
    assert world.failures(rows[0].run) == [(B, RequestState.DEAD, nasty)]
    assert world.tallies(rows[0].run).failed == {nasty: 1}
    assert world.ask(ReadItems(rows[0].run, 0, 9), Items).rows[0].data == data
    (title,) = store._writer.fetch_row("SELECT title FROM pages")
    assert title == nasty


def test_names_are_compared_byte_by_byte(store: PeeweeStore) -> None:
    """Neither case, nor accents, nor a space at the end make two names one."""
    world = World(store)
    names = ["job", "Job", "job ", "jöb", "job\u0301"]
    for name in names:
        assert world.submit(A, name=name).refused == ""
    assert world.submit(A, name="job").refused == "name_exists"
    rows = world.submit(A, B, C).admitted
    for row, reason in zip(rows, ("dns", "dns ", "DNS"), strict=True):
        world.finish(row, RequestState.DEAD, reason=reason)
    assert world.tallies(rows[0].run).failed == {"dns": 1, "dns ": 1, "DNS": 1}


def test_times_come_back_exactly(store: PeeweeStore) -> None:
    """Also when many rows with different values are updated by one statement."""
    world = World(store)
    rows = world.submit(*(f"https://a.test/{i}" for i in range(40))).admitted
    due = [1_763_286_000.123457 + i / 7 for i in range(40)]
    world.apply(
        *(
            world.change(row, QUEUED, due_at=at, attempts=i, reason=f"r{i}", status=500 + i)
            for i, (row, at) in enumerate(zip(rows, due, strict=True))
        )
    )
    lane = LaneWant(rows[0].run, rows[0].host, None, 50)
    ((_, lane_rows, _),) = world.ask(Refill((lane,)), Refilled).lanes
    assert [(row.due_at, row.attempts) for row in lane_rows] == [
        (at, i) for i, at in enumerate(due)
    ]


def test_a_batch_above_the_packet_limit_is_split(store: PeeweeStore) -> None:
    """40 MB of items in one command: several statements, one transaction."""
    world = World(store)
    rows = world.submit(*(f"https://a.test/{i}" for i in range(10))).admitted
    changes = [world.change(row, DONE, items=(b"x" * 4_000_000,)) for row in rows]
    assert world.apply(*changes).runs[0].counters.items == 10
    stored_items = world.ask(ReadItems(rows[0].run, 0, 20), Items).rows
    assert [len(item.data) for item in stored_items] == [4_000_000] * 10


def test_many_lanes_and_keys_take_few_statements(store: PeeweeStore) -> None:
    """A refill of 250 lanes and a batch of 600 results are a handful of round trips."""
    world = World(store)
    urls = [f"https://h{i % 250}.test/{i}" for i in range(600)]
    admitted = world.submit(*urls).admitted
    lanes = tuple(LaneWant(admitted[0].run, host, None, 5) for host in range(1, 251))
    counted = count_statements(store)
    refilled = world.ask(Refill(lanes), Refilled).lanes
    assert [row.url for _, rows, _ in refilled for row in rows] == sorted(
        urls, key=lambda url: (int(url[9:].split(".")[0]), urls.index(url))
    )
    assert counted() <= 5
    world.apply(
        *(world.change(row, DONE, host_next_at=float(row.seq), links=links(A)) for row in admitted)
    )
    assert counted() <= 30


def count_statements(store: PeeweeStore) -> CountStatements:
    return CountStatements([store._writer, store._reader])


class CountStatements:
    """Questions that the server counted on these connections since the last call."""

    def __init__(self, sessions: list[object]) -> None:
        self._sessions = [session for session in sessions if isinstance(session, MysqlSession)]
        self._last = self._questions()

    def _questions(self) -> int:
        status = "SHOW SESSION STATUS LIKE 'Questions'"
        return sum(int(session.fetch_row(status)[1]) for session in self._sessions)

    def __call__(self) -> int:
        before, self._last = self._last, self._questions()
        return self._last - before - len(self._sessions)


def test_an_update_counts_the_rows_it_finds(store: PeeweeStore) -> None:
    """Also those that have the value already, as SQLite counts."""
    world = World(store)
    world.submit(A)
    session = store._writer
    for _ in range(2):
        assert session.run("UPDATE jobs SET created_at = 5") == 1
    assert session.update_many("jobs", ("created_at",), "id", [(5.0, 1), (5.0, 99)]) == 1


def test_a_duplicate_key_makes_the_leader_reload(store: PeeweeStore) -> None:
    """The fenced leader is the only writer: a key that is there already is never ignored."""
    world = World(store)
    world.submit(A)
    store._writer.run("UPDATE sequences SET value = 0")
    with pytest.raises(CommitUnknown) as caught:
        world.submit(B)
    assert caught.value.code == "duplicate_key"
    assert len(world.ask(ListJobs(), JobList).jobs) == 1


def test_no_statement_scans_a_big_table(
    store: PeeweeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every statement of a run's life finds its requests, pages and items by an index."""
    statements: list[str] = []
    send = MysqlSession._send

    def spy(self: MysqlSession, sql: str) -> int:
        statements.append(sql)
        return send(self, sql)

    world = World(store)
    first = world.submit(*(f"https://b.test/{i}" for i in range(300)))
    for row in first.admitted[:250]:  # a table this small would be scanned whatever its indexes
        world.finish(row, DONE)
    monkeypatch.setattr(MysqlSession, "_send", spy)
    live_through(world)
    monkeypatch.undo()
    explained = 0
    session = store._writer
    assert isinstance(session, MysqlSession)
    for sql in list(statements):
        if sql.startswith(("SELECT", "(SELECT", "UPDATE", "DELETE")):
            explained += 1
            rows = session.all(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
            names = [column[0] for column in session._cursor.description]
            for row in rows:
                table, access = row[names.index("table")], row[names.index("type")]
                if table in ("requests", "q", "p", "pages", "items", "i"):
                    assert access != "ALL", (sql, row)
    assert explained > 50


# ---------------------------------------------------------------- life


def test_what_was_committed_is_there_after_a_reopen(mariadb_server: Mariadb, database: str) -> None:
    """Another process sees the same."""
    store = open_mysql([mariadb_server.url(database)])
    world = World(store)
    world.finish(world.submit(A).admitted[0], DONE, links=links(B))
    loaded = world.reload()
    store.close()
    store = open_mysql([mariadb_server.url(database)])
    state = store.execute(TakeOver("m2", 0, 1.0))
    assert isinstance(state, Loaded)
    assert timeless(state) == msgspec.structs.replace(loaded, epoch=2)
    store.close()


def test_a_closed_store_is_unavailable(store: PeeweeStore) -> None:
    """A late call after close gets a named error and opens nothing."""
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.execute(TakeOver("m", 0, 1.0))
    with pytest.raises(StoreUnavailable):
        store.query(ListJobs())


def test_a_readonly_store_reads_and_refuses_commands(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """It makes no tables either."""
    World(store).submit(A)
    reader = open_mysql([mariadb_server.url(database)], readonly=True)
    assert reader.query(ListJobs()) == store.query(ListJobs())
    with pytest.raises(StoreError) as caught:
        reader.execute(TakeOver("m", 0, 1.0))
    assert caught.value.code == "readonly"
    reader.close()
    empty = mariadb_server.new_database()
    with pytest.raises(StoreError) as caught:
        open_mysql([mariadb_server.url(empty)], readonly=True)
    assert caught.value.code == "no_database"
    assert mariadb_server.do(f"SHOW TABLES FROM {empty}") == []
    mariadb_server.drop(empty)
