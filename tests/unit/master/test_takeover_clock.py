"""A new leader goes by the database's clock: those of masters may differ by hours."""

from __future__ import annotations

import pytest

from zcrawl.master.events import CommandDone, Elected, Execute
from zcrawl.master.master import Master
from zcrawl.master.takeover import LEASE_S
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import HostRow, LaneCount
from zcrawl.store.commands import Loaded, TakeOver

NOW, DATABASE = 100.0, 1_000_000.0


def take_over(own_clock: float, lease_until: float, database: float = DATABASE) -> Master:
    """A master that elects itself with this wall clock, over a host that a dead worker owns."""
    master = Master("m1", seen_slots=16)
    (execute,) = master.handle(Elected(1, alone=False), NOW, own_clock)
    assert isinstance(execute, Execute)
    assert isinstance(execute.command, TakeOver)
    host = HostRow(1, "http://a.test", (ProcessName("w1#1"),), 0.0, 0.0)
    loaded = Loaded(
        epoch=2,
        lease_until=lease_until,
        runs=[],
        lanes=[LaneCount(1, 1, 1)],
        hosts=[host],
        watermarks={},
        sweeps=[],
        utc=database,
    )
    master.handle(CommandDone(execute.command, loaded), NOW, own_clock)
    return master


def closed_for(master: Master) -> float:
    assert master.leader is not None
    return master.leader.state.planner.hosts[1].inherited_until - NOW


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_wrong_clock_of_its_own_changes_nothing(hours: int) -> None:
    """Neither is a host opened while its owner may use it, nor closed for an hour."""
    master = take_over(DATABASE + 3600 * hours, DATABASE + 15.0)
    assert closed_for(master) == pytest.approx(15.0 + 20.0)


def test_a_lease_from_the_future_ends_all_the_same() -> None:
    """The database's own clock was set back, or its replica's is behind."""
    assert closed_for(take_over(DATABASE, DATABASE + 7_200.0)) == pytest.approx(LEASE_S + 20.0)


def test_without_a_clock_of_the_database_its_own_counts() -> None:
    """SQLite: there is one machine, and one clock."""
    assert closed_for(take_over(500.0, 515.0, database=0.0)) == pytest.approx(15.0 + 20.0)
