"""An upgrade: a database of schema 16, with jobs in it, while a master of that version leads.

The first takeover by this version brings the schema up to date. Until then the old master goes on;
afterwards it cannot lead again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.contract.store_world import DONE, A, B, World
from zcrawl.errors import Fenced, StoreUnavailable
from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import Reload
from zcrawl.store.queries import FindJob, JobList, ListJobs
from zcrawl.store.sql.store import open_sqlite

NEW_COLUMNS = {
    "jobs": (
        *("state", "version", "owner", "updated_at"),
        *("schedule_from", "due_done", "due_held", "due_note"),
    ),
    "runs": (
        *("version", "cause", "due_at", "params", "chain", "missing"),
        *("feed_run", "feed_at"),
    ),
}
NEW_TABLES = ("job_versions", "run_parents", "users", "tokens", "audit", "hash_keys")
OLD_TAKEOVER = "UPDATE leaders SET epoch = epoch + 1, holder = 'old', taken_at = 5 WHERE shard = 0"


def an_old_database(path: Path) -> sqlite3.Connection:
    """Schema 16, as its own version made it: a running job, an ended one, and one whose only run
    is deleted and waits to be swept. The connection is that of the old leader."""
    store = open_sqlite(path)
    world = World(store)
    world.submit(A, B, name="running")
    ended = world.submit(A, name="ended")
    world.finish(ended.admitted[0], DONE)
    world.change_run(world.submit(A, name="deleted").run, RunState.DELETED)
    store.close()
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("DROP INDEX run_job_due_at")
    for table in NEW_TABLES:
        old.execute(f"DROP TABLE {table}")
    for table, names in NEW_COLUMNS.items():
        for name in names:
            old.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    old.execute("ALTER TABLE leaders RENAME COLUMN held_by TO holder")
    old.execute("UPDATE runs SET state = 'running', started_at = 100 WHERE state = 'pending'")
    old.execute("DELETE FROM sequences WHERE name IN ('tokens', 'audit')")
    old.execute("UPDATE schema_version SET version = 16")
    return old


def test_an_old_leader_goes_on_until_this_version_takes_over(tmp_path: Path) -> None:
    """A follower of this version changes nothing, and says what it waits for."""
    path = tmp_path / "z.db"
    with contextlib.closing(an_old_database(path)) as old:
        store = open_sqlite(path)
        with pytest.raises(StoreUnavailable, match="older zcrawl"):
            store.query(ListJobs())
        with pytest.raises((StoreUnavailable, Fenced)):
            store.execute(Reload(99, 0.0))
        assert old.execute("SELECT version FROM schema_version").fetchone() == (16,)
        old.execute(OLD_TAKEOVER)
        old.execute("UPDATE runs SET done = 0 WHERE id = 1")
        world = World(store)
        assert old.execute("SELECT version FROM schema_version").fetchone() != (16,)
        rows = {row.name: row for row in world.reload().runs}
        assert rows["running"].state is RunState.RUNNING
        assert (rows["running"].version, rows["running"].counters.pending) == (1, 2)
        store.close()


def test_jobs_of_the_old_version_have_their_states(tmp_path: Path) -> None:
    """A job whose runs are all deleted was a deleted job: its name is free, others are active."""
    path = tmp_path / "z.db"
    an_old_database(path).close()
    store = open_sqlite(path)
    world = World(store)
    states = {job.name: job.state for job in world.ask(ListJobs(), JobList).jobs}
    assert states == {
        "running": JobState.ACTIVE,
        "ended": JobState.ACTIVE,
        "deleted": JobState.DELETED,
    }
    assert world.submit(A, name="deleted", request="new").refused == ""
    assert world.submit(A, name="ended", request="taken").refused == "name_exists"
    again = world.submit(A, name="ended", mode="update", spec=b'{"name":"2"}', request="u")
    (job,) = world.ask(FindJob("ended"), JobList).jobs
    assert (job.version, job.runs[0].id) == (2, again.run)
    store.close()


def test_an_upgraded_database_has_a_hash_key_of_its_own(tmp_path: Path) -> None:
    """32 random bytes, made once: another takeover keeps them, another database has others."""
    keys = []
    for name in ("a.db", "b.db"):
        an_old_database(tmp_path / name).close()
        for _ in range(2):
            store = open_sqlite(tmp_path / name)
            World(store)
            store.close()
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            ((key,),) = database.execute("SELECT value FROM hash_keys").fetchall()
            names = database.execute("SELECT name FROM sequences WHERE value = 0").fetchall()
        assert {("tokens",), ("audit",)} <= set(names)
        keys.append(key)
    assert len(keys[0]) == 32
    assert keys[0] != keys[1]


def test_an_old_master_cannot_take_over_again(tmp_path: Path) -> None:
    """It would not see pending runs. One that is started anew refuses the schema by its name."""
    path = tmp_path / "z.db"
    with contextlib.closing(an_old_database(path)) as old:
        store = open_sqlite(path)
        World(store)
        with pytest.raises(sqlite3.OperationalError, match="holder"):
            old.execute(OLD_TAKEOVER)
        store.close()


def test_a_data_folder_of_the_old_version_can_be_looked_at_after_it_was_used(
    tmp_path: Path,
) -> None:
    """Reading alone does not migrate."""
    path = tmp_path / "z.db"
    an_old_database(path).close()
    readonly = open_sqlite(path, readonly=True)
    with pytest.raises(StoreUnavailable, match="older zcrawl"):
        readonly.query(ListJobs())
    store = open_sqlite(path)
    World(store)
    store.close()
    outcome = readonly.query(ListJobs())
    assert isinstance(outcome, JobList)
    assert len(outcome.jobs) == 3
    readonly.close()
