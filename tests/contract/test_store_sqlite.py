"""What only the SQLite store can show: durability, full disks, damaged and foreign files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.contract.store_world import DONE, A, B, World, links, live_through, unstorable
from zcrawl.errors import (
    CommitUnknown,
    DiskFull,
    StoreCorrupt,
    StoreDataError,
    StoreError,
    StoreUnavailable,
)
from zcrawl.store.commands import TakeOver
from zcrawl.store.queries import JobList, ListJobs
from zcrawl.store.sql import schema
from zcrawl.store.sql.store import PeeweeStore, open_sqlite


def test_what_was_committed_is_there_after_a_reopen(tmp_path: Path) -> None:
    """Also in a folder that did not exist before."""
    path = tmp_path / "new" / "folder" / "z.db"
    store = open_sqlite(path)
    world = World(store)
    job = world.submit(A)
    world.finish(job.admitted[0], DONE, links=links(B))
    loaded = world.reload()
    store.close()
    store = open_sqlite(path)
    again = store.execute(TakeOver("m2", 0, 1.0))
    assert again == msgspec.structs.replace(loaded, epoch=2)
    store.close()


def test_two_processes_may_have_it_open_and_the_newer_leader_wins(tmp_path: Path) -> None:
    """The epoch lives in the file: the first one is fenced by the second."""
    first, second = open_sqlite(tmp_path / "z.db"), open_sqlite(tmp_path / "z.db")
    world = World(first)
    assert World(second).epoch == 2
    with pytest.raises(StoreError) as caught:
        world.submit(A)
    assert caught.value.code == "fenced"
    first.close()
    second.close()


def test_commands_and_queries_may_come_from_two_threads(tmp_path: Path) -> None:
    """One thread writes, another reads; neither opened the store."""
    store = open_sqlite(tmp_path / "z.db")
    replies: list[object] = []
    for work in (
        lambda: World(store).submit(A),
        lambda: replies.append(store.query(ListJobs())),
    ):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    (jobs,) = replies
    assert isinstance(jobs, JobList)
    assert len(jobs.jobs) == 1
    store.close()


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[PeeweeStore]:
    store = open_sqlite(tmp_path / "z.db")
    yield store
    store.close()


def test_a_full_disk_applies_nothing_and_work_goes_on_later(open_store: PeeweeStore) -> None:
    """SQLITE_FULL is DiskFull; the same command works once there is space."""
    world = World(open_store)
    row = world.submit(A).admitted[0]
    before = world.reload()
    connection = open_store._writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    change = world.change(row, DONE, items=(b"x" * 100_000,), links=links(B))
    with pytest.raises(DiskFull):
        world.apply(change)
    assert world.reload() == before
    connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
    assert world.apply(change).runs[0].counters.done == 1


def test_a_locked_database_is_unavailable(open_store: PeeweeStore, tmp_path: Path) -> None:
    """Somebody else holds the write lock: nothing was applied, try again."""
    world = World(open_store)
    open_store._writer.connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(tmp_path / "z.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        world.submit(A)
    other.execute("ROLLBACK")
    other.close()
    assert world.submit(A).refused == ""


def test_data_that_cannot_be_stored_is_a_data_error(open_store: PeeweeStore) -> None:
    """A lone surrogate, an integer beyond 64 bits, a wrong type: bisect and drop."""
    world = World(open_store)
    row = world.submit(A).admitted[0]
    before = world.reload()
    good = world.change(row, DONE)
    for bad in unstorable(good):
        with pytest.raises(StoreDataError):
            world.apply(bad)
    assert world.reload() == before
    assert world.apply(good).runs[0].counters.done == 1


def test_a_duplicate_key_makes_the_leader_reload(open_store: PeeweeStore) -> None:
    """The fenced leader is the only writer: a key that is there already is a bug, never ignored."""
    world = World(open_store)
    world.submit(A)
    open_store._writer.connection.execute("UPDATE sequences SET value = 0")
    with pytest.raises(CommitUnknown) as caught:
        world.submit(B)
    assert caught.value.code == "duplicate_key"


class _Connection:
    """A connection whose COMMIT fails, and whose ROLLBACK may fail too."""

    def __init__(self, inner: sqlite3.Connection, rollback_fails: bool) -> None:
        self.inner = inner
        self.rollback_fails = rollback_fails

    def execute(self, sql: str, values: object = ()) -> object:
        if sql == "COMMIT" or (sql == "ROLLBACK" and self.rollback_fails):
            raise sqlite3.OperationalError("disk I/O error")
        return self.inner.execute(sql, values)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@pytest.mark.parametrize("rollback_fails", [False, True])
def test_a_commit_that_fails_says_what_is_known(
    open_store: PeeweeStore, rollback_fails: bool
) -> None:
    """Rolled back: nothing was applied. Not rolled back: nobody knows, so the leader reloads."""
    world = World(open_store)
    before = world.reload()
    session = open_store._writer
    session.connection = _Connection(session.connection, rollback_fails)
    with pytest.raises(CommitUnknown if rollback_fails else StoreUnavailable):
        world.submit(A)
    session.connection = session.connection.inner
    if session.connection.in_transaction:
        session.connection.execute("ROLLBACK")
    assert world.reload() == before


def test_a_closed_store_is_unavailable(tmp_path: Path) -> None:
    """A late call after close gets a named error."""
    store = open_sqlite(tmp_path / "z.db")
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.execute(TakeOver("m", 0, 1.0))
    with pytest.raises(StoreUnavailable):
        store.query(ListJobs())


# ---------------------------------------------------------------- files


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    """The error names the path and says what to do."""
    path = tmp_path / "z.db"
    path.write_bytes(b"this is a letter, not a database\n" * 100)
    for readonly in (False, True):
        with pytest.raises(StoreCorrupt, match="backup") as caught:
            open_sqlite(path, readonly)
        assert str(path) in str(caught.value)
    assert path.read_bytes().startswith(b"this is a letter")


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    """Zeroes over its pages: reading or writing raises StoreCorrupt, at open or later."""
    path = tmp_path / "z.db"
    store = open_sqlite(path)
    World(store).submit(*(f"https://a.test/{i}" for i in range(2000)))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreCorrupt):
        damaged = open_sqlite(path)
        try:
            damaged.execute(TakeOver("m", 0, 1.0))
        finally:
            damaged.close()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """Its tables are not ours; nothing is added to it."""
    path = tmp_path / "z.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (id INTEGER)")
    other.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        open_sqlite(path)
    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]
    other.close()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """An old zcrawl does not touch what a newer one wrote."""
    path = tmp_path / "z.db"
    open_sqlite(path).close()
    other = sqlite3.connect(path)
    other.execute("UPDATE schema_version SET version = 99")
    other.commit()
    other.close()
    for readonly in (False, True):
        with pytest.raises(StoreError) as caught:
            open_sqlite(path, readonly)
        assert caught.value.code == "schema_newer"


def test_an_empty_database_becomes_the_newest_schema(tmp_path: Path) -> None:
    """The version is stored; opening again changes nothing."""
    path = tmp_path / "z.db"
    for _ in range(2):
        open_sqlite(path).close()
        other = sqlite3.connect(path)
        stored = other.execute("SELECT version FROM schema_version").fetchall()
        other.close()
        assert stored == [(schema.VERSION,)]


def test_a_readonly_store_reads_beside_a_writer(tmp_path: Path) -> None:
    """It sees what is committed and refuses every command."""
    path = tmp_path / "z.db"
    with pytest.raises(StoreError) as caught:
        open_sqlite(path, readonly=True)
    assert caught.value.code == "no_database"
    store = open_sqlite(path)
    World(store).submit(A)
    reader = open_sqlite(path, readonly=True)
    jobs = reader.query(ListJobs())
    assert isinstance(jobs, JobList)
    assert len(jobs.jobs) == 1
    with pytest.raises(StoreError) as caught:
        reader.execute(TakeOver("m", 0, 1.0))
    assert caught.value.code == "readonly"
    reader.close()
    store.close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The message names the path and the system's reason."""
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "z.db", tmp_path):
        with pytest.raises(StoreError) as caught:
            open_sqlite(path)
        assert caught.value.code == "store_unwritable"
        assert str(path) in str(caught.value)


def test_no_statement_scans_or_sorts_a_big_table(open_store: PeeweeStore) -> None:
    """Every statement of a run's life finds its requests, pages and items by an index."""
    statements: list[str] = []
    for session in (open_store._writer, open_store._reader):
        session.connection.set_trace_callback(statements.append)
    world = World(open_store)
    live_through(world)
    for session in (open_store._writer, open_store._reader):
        session.connection.set_trace_callback(None)
    explained = 0
    for sql in statements:
        if sql.startswith(("SELECT", "UPDATE", "DELETE")):
            rows = open_store._writer.connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            plan = "; ".join(row[3] for row in rows)
            explained += 1
            tables = ("requests", "q", "p", "pages", "items", "i")
            for table in (*tables, "known_pages", "k", "fingerprints", "f"):
                assert f"SCAN {table} " not in f"{plan} ".replace(";", " "), (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)
    assert explained > 50


def test_an_older_schema_is_brought_to_what_new_databases_have(tmp_path: Path) -> None:
    """Migration 2 by the models: columns and tables are the same on both ways."""
    open_sqlite(tmp_path / "new.db").close()
    open_sqlite(tmp_path / "old.db").close()
    columns = {
        "hosts": ("slow", "failures", "opens", "address"),
        "pages": ("canonical", "alternates", "files"),
        "jobs": (
            *("state", "version", "owner", "updated_at"),
            *("schedule_from", "due_done", "due_held", "due_note", "held"),
        ),
        "runs": (
            *("unchanged", "recall", "canonical", "idle_s", "unfetched"),
            *("version", "cause", "due_at", "params", "chain", "missing"),
            *("feed_run", "feed_at"),
        ),
        "requests": ("known",),
        "outputs": ("problem", "progress"),
    }
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.execute("DROP INDEX run_job_due_at")
        for table in (
            "robots",
            "known_pages",
            "fingerprints",
            "history",
            "job_versions",
            "run_parents",
            "users",
            "tokens",
            "audit",
            "hash_keys",
        ):
            old.execute(f"DROP TABLE {table}")
        old.execute("DELETE FROM sequences WHERE name IN ('known', 'tokens', 'audit')")
        for table, names in columns.items():
            for name in names:
                old.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        old.execute("UPDATE schema_version SET version = 1")
    old.close()
    open_sqlite(tmp_path / "old.db").close()
    assert _tables(tmp_path / "old.db") == _tables(tmp_path / "new.db")


def _tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    database = sqlite3.connect(path)
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    columns = {
        name: [row[1:] for row in database.execute(f"PRAGMA table_info({name})")] for name in names
    }
    database.close()
    return columns
