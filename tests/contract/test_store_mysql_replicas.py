"""One replicated MySQL database under several addresses: who is written to, what a loss costs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.contract.store_world import DONE, A, B, C, World, links
from tests.servers.mariadb import Mariadb, mariadb
from zcrawl.errors import Fenced, StoreUnavailable
from zcrawl.store.commands import Loaded, Reload, TakeOver
from zcrawl.store.queries import JobList, ListJobs
from zcrawl.store.store_peewee import open_mysql

# ---------------------------------------------------------------- several addresses


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Mariadb, Mariadb]]:
    """A primary and its replica."""
    with mariadb(server_id=11) as primary, mariadb(server_id=12) as replica:
        if not primary.is_mariadb:
            pytest.skip("the replication commands here are MariaDB's")
        replica.replicate_from(primary)
        yield primary, replica


@pytest.fixture
def replicated(pair: tuple[Mariadb, Mariadb]) -> Iterator[tuple[Mariadb, Mariadb, str]]:
    primary, replica = pair
    for server, readonly in ((primary, False), (replica, True)):
        if server.process is None:
            server.start()
        server.set_readonly(readonly)
    replica.do("START SLAVE")
    name = primary.new_database()
    replica.catch_up(primary)
    yield primary, replica, name


def test_the_writable_address_is_chosen_wherever_it_stands(
    replicated: tuple[Mariadb, Mariadb, str],
) -> None:
    """The replica may come first in the list."""
    primary, replica, name = replicated
    store = open_mysql([replica.url(name), primary.url(name)])
    assert World(store).submit(A).refused == ""
    assert f":{primary.port}/" in store._dialect.where
    store.close()


def test_the_loss_of_the_primary_moves_to_the_promoted_replica(
    replicated: tuple[Mariadb, Mariadb, str],
) -> None:
    """Everything that was answered is on the new primary, and work goes on in the same epoch."""
    primary, replica, name = replicated
    store = open_mysql([primary.url(name), replica.url(name)])
    world = World(store)
    row = world.submit(A).admitted[0]
    world.finish(row, DONE, links=links(B))
    replica.catch_up(primary)
    primary.stop(kill=True)
    with pytest.raises(StoreUnavailable):
        world.submit(C, request="r", name="n")
    replica.do("STOP SLAVE", "SET GLOBAL read_only = 0")
    store._breakers["writer"].succeeded()
    assert world.submit(C, request="r", name="n").repeated is False
    assert world.reload().watermarks == {("w1", 7): 1}
    assert len(world.ask(ListJobs(), JobList).jobs) == 2  # the reader followed
    store.close()


def test_a_demoted_primary_is_left_by_writer_and_reader(
    replicated: tuple[Mariadb, Mariadb, str],
) -> None:
    """A planned switch: the old primary lives on, but nothing is read from it any more."""
    primary, replica, name = replicated
    store = open_mysql([primary.url(name), replica.url(name)])
    world = World(store)
    world.submit(A)
    replica.catch_up(primary)
    primary.set_readonly(True)
    replica.do("STOP SLAVE", "SET GLOBAL read_only = 0")
    with pytest.raises(StoreUnavailable):
        world.submit(B, request="r", name="n")
    world.submit(B, request="r", name="n")
    assert len(world.ask(ListJobs(), JobList).jobs) == 2
    store.close()


def test_a_new_primary_that_is_behind_is_not_taken_in_silence(
    replicated: tuple[Mariadb, Mariadb, str],
) -> None:
    """A replica that lacks acknowledged commits fences the leader, which then loads what is there,
    under an epoch that was never used."""
    primary, replica, name = replicated
    store = open_mysql([primary.url(name), replica.url(name)])
    world = World(store)
    row = world.submit(A, B).admitted[0]
    replica.catch_up(primary)
    replica.do("STOP SLAVE")
    world.finish(row, DONE)
    primary.stop(kill=True)
    replica.do("SET GLOBAL read_only = 0")
    with pytest.raises(Fenced) as caught:
        world.reload()
    assert caught.value.code == "store_behind"
    loaded = world.do(TakeOver("m1", 1, 1.0), Loaded)
    assert loaded.epoch == 2
    assert [lane.queued for lane in loaded.lanes] == [2]
    store.close()


def test_a_new_primary_with_a_lower_epoch_fences_and_the_epoch_still_rises(
    replicated: tuple[Mariadb, Mariadb, str],
) -> None:
    """Also a takeover that the replica never heard of is not repeated under the same number."""
    primary, replica, name = replicated
    store = open_mysql([primary.url(name), replica.url(name)])
    world = World(store)
    replica.catch_up(primary)
    replica.do("STOP SLAVE")
    assert World(store).epoch == 2
    primary.stop(kill=True)
    replica.do("SET GLOBAL read_only = 0")
    with pytest.raises(Fenced):
        store.execute(Reload(2, 1.0))
    assert world.do(TakeOver("m1", 2, 1.0), Loaded).epoch == 3
    store.close()


def test_a_readonly_store_reads_from_a_replica_when_nothing_else_is_there(
    replicated: tuple[Mariadb, Mariadb, str],
) -> None:
    """People can look while no server takes writes."""
    primary, replica, name = replicated
    store = open_mysql([primary.url(name)])
    World(store).submit(A)
    replica.catch_up(primary)
    primary.stop(kill=True)
    reader = open_mysql([primary.url(name), replica.url(name)], readonly=True)
    jobs = reader.query(ListJobs())
    assert isinstance(jobs, JobList) and len(jobs.jobs) == 1
    reader.close()
    store.close()
    assert msgspec.structs.asdict(jobs.jobs[0])["name"] == "job1"
