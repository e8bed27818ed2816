"""The contract of a store: a run that is cancelled without a leader, and leaders beside it."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from tests.contract.store_world import DONE, A, B, C, World
from tests.contract.test_store_mysql_faults import hold_the_lock
from tests.servers.mariadb import Mariadb
from zcrawl.errors import Fenced
from zcrawl.model.rows import RunCounters
from zcrawl.model.states import RunState
from zcrawl.store.commands import (
    CancelOffline,
    ClientAction,
    ExtendLease,
    Loaded,
    RunChanged,
    TakeOver,
)
from zcrawl.store.sql.store import PeeweeStore, open_mysql, open_sqlite

BY = ClientAction("r-offline", "cancel --offline", "ann@laptop", "offline", 150.0, changed=1)


def cancel(run: int, action: ClientAction | None = BY) -> CancelOffline:
    return CancelOffline("offline", run, 150.0, action)


def test_an_offline_cancel_fences_the_leader_in_the_same_transaction(world: World) -> None:
    """What the leader of the epoch before writes is refused; the next one sees the run ended."""
    a, b = world.submit(A, B).admitted
    other = world.submit(C, name="other").run
    world.finish(a, DONE)
    changed = world.do(cancel(a.run), RunChanged)
    assert changed.refused == ""
    assert changed.row is not None
    row = changed.row
    assert (row.state, row.reason, row.ended_at) == (RunState.CANCELLED, "cancelled", 150.0)
    assert row.counters == RunCounters(2, 0, done=1, skipped=1, items=1, bytes=10)
    with pytest.raises(Fenced):
        world.finish(b, DONE)
    with pytest.raises(Fenced):
        world.do(ExtendLease(world.epoch, 999.0), RunChanged)
    loaded = world.do(TakeOver("m2", 0, 200.0), Loaded)
    assert loaded.epoch == world.epoch + 2
    assert loaded.sweeps == [a.run]
    assert {run.id: str(run.state) for run in loaded.runs} == {
        a.run: "cancelled",
        other: "pending",
    }
    assert world.tallies(a.run).skipped == {"cancelled": 1}
    assert [action.by for action in world.tallies(a.run).actions if "offline" in action.what] == [
        BY.by
    ]


def test_an_offline_cancel_that_changes_nothing_fences_nobody(world: World) -> None:
    """A run that has ended, or does not exist, is refused; the leader goes on in its epoch."""
    run = world.submit(A).run
    world.change_run(run, RunState.CANCELLED)
    assert world.do(cancel(run), RunChanged).refused == "run_ended"
    assert world.do(cancel(99), RunChanged).refused == "no_such_run"
    assert world.submit(B, name="other").refused == ""


def test_an_offline_cancel_reads_no_spec(tmp_path: Path) -> None:
    """A spec that nobody can read does not keep its run alive; another process may have it open."""
    leader, beside = open_sqlite(tmp_path / "z.db"), open_sqlite(tmp_path / "z.db")
    world = World(leader)
    row = world.submit(A).admitted[0]
    leader._writer.run("UPDATE runs SET spec = ?", (b"\xff[[[",))
    leader._writer.run("UPDATE jobs SET spec = ?", (b"\xff[[[",))
    outcome = beside.execute(cancel(row.run))
    assert isinstance(outcome, RunChanged)
    assert outcome.refused == ""
    with pytest.raises(Fenced):
        world.reload()
    loaded = leader.execute(TakeOver("m1", 0, 200.0))
    assert isinstance(loaded, Loaded)
    assert loaded.sweeps == [row.run]
    beside.close()
    leader.close()


def test_a_leader_that_sleeps_in_a_transaction_does_not_delay_an_offline_cancel(
    mysql_store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """Its connection is killed, as by a takeover; when it wakes, nothing of it is written."""
    world = World(mysql_store)
    row = world.submit(A).admitted[0]
    asleep = hold_the_lock(mysql_store)
    beside = open_mysql([mariadb_server.url(database)])
    outcome = beside.execute(cancel(row.run))
    assert isinstance(outcome, RunChanged)
    assert outcome.refused == ""
    with pytest.raises(pymysql.OperationalError, match=r"2013|2006|1927"):
        asleep.run("UPDATE runs SET done = 99")
    with pytest.raises(Fenced):
        world.submit(B)
    beside.close()
