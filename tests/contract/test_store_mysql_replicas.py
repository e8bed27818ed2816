"""One replicated MySQL database under several addresses: who is written to, what a loss costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec
import pytest

from tests.contract.store_world import DONE, A, B, C, World, links
from tests.servers.mariadb import Mariadb, mariadb
from zcrawl.errors import Fenced, StoreUnavailable
from zcrawl.store.commands import Loaded, Reload, TakeOver
from zcrawl.store.queries import JobList, ListJobs
from zcrawl.store.sql.store import PeeweeStore, open_mysql


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Mariadb, Mariadb]]:
    """A primary and its replica."""
    with mariadb(server_id=11) as primary, mariadb(server_id=12) as replica:
        replica.replicate_from(primary)
        yield primary, replica


@dataclasses.dataclass
class Replicated:
    """A database on a primary and its replica, and the store that knows both addresses."""

    primary: Mariadb
    replica: Mariadb
    name: str
    store: PeeweeStore

    def promote(self) -> None:
        """The replica takes writes from here on, with what it has."""
        self.replica.stop_replica()
        self.replica.set_readonly(False)

    def catch_up(self) -> None:
        self.replica.catch_up(self.primary)

    def part(self) -> None:
        """From here on the replica hears of nothing new."""
        self.catch_up()
        self.replica.stop_replica()


@pytest.fixture
def pair(servers: tuple[Mariadb, Mariadb]) -> Iterator[Replicated]:
    primary, replica = servers
    for server, readonly in ((primary, False), (replica, True)):
        if server.process is None:
            server.start()
        server.set_readonly(readonly)
    replica.start_replica()
    name = primary.new_database()
    replica.catch_up(primary)
    store = open_mysql([primary.url(name), replica.url(name)])
    yield Replicated(primary, replica, name, store)
    store.close()


def test_the_writable_address_is_chosen_wherever_it_stands(pair: Replicated) -> None:
    """The replica may come first in the list."""
    store = open_mysql([pair.replica.url(pair.name), pair.primary.url(pair.name)])
    assert World(store).submit(A).refused == ""
    assert f":{pair.primary.port}/" in store._dialect.where
    store.close()


def test_the_loss_of_the_primary_moves_to_the_promoted_replica(pair: Replicated) -> None:
    """Everything that was answered is on the new primary, and work goes on in the same epoch."""
    world = World(pair.store)
    row = world.submit(A).admitted[0]
    world.finish(row, DONE, links=links(B))
    pair.catch_up()
    pair.primary.stop(kill=True)
    with pytest.raises(StoreUnavailable):
        world.submit(C, request="r", name="n")
    pair.promote()
    pair.store._breakers["writer"].succeeded()
    assert world.submit(C, request="r", name="n").repeated is False
    assert world.reload().watermarks == {("w1", 7): 1}
    assert len(world.ask(ListJobs(), JobList).jobs) == 2  # the reader followed


def test_a_demoted_primary_is_left_by_writer_and_reader(pair: Replicated) -> None:
    """A planned switch: the old primary lives on, but nothing is read from it any more."""
    world = World(pair.store)
    world.submit(A)
    pair.catch_up()
    pair.primary.set_readonly(True)
    pair.promote()
    with pytest.raises(StoreUnavailable):
        world.submit(B, request="r", name="n")
    world.submit(B, request="r", name="n")
    assert len(world.ask(ListJobs(), JobList).jobs) == 2


def test_a_new_primary_that_is_behind_is_not_taken_in_silence(pair: Replicated) -> None:
    """A replica that lacks acknowledged commits fences the leader, which then loads what is there,
    under an epoch that was never used."""
    world = World(pair.store)
    row = world.submit(A, B).admitted[0]
    pair.part()
    world.finish(row, DONE)
    pair.primary.stop(kill=True)
    pair.promote()
    with pytest.raises(Fenced) as caught:
        world.reload()
    assert caught.value.code == "store_behind"
    loaded = world.do(TakeOver("m1", 1, 1.0), Loaded)
    assert loaded.epoch == 2
    assert [lane.queued for lane in loaded.lanes] == [2]


def test_a_new_primary_with_a_lower_epoch_fences_and_the_epoch_still_rises(
    pair: Replicated,
) -> None:
    """Also a takeover that the replica never heard of is not repeated under the same number."""
    world = World(pair.store)
    pair.part()
    assert World(pair.store).epoch == 2
    pair.primary.stop(kill=True)
    pair.promote()
    with pytest.raises(Fenced):
        pair.store.execute(Reload(2, 1.0))
    assert world.do(TakeOver("m1", 2, 1.0), Loaded).epoch == 3


def test_a_readonly_store_reads_from_a_replica_when_nothing_else_is_there(
    pair: Replicated,
) -> None:
    """People can look while no server takes writes."""
    World(pair.store).submit(A)
    pair.catch_up()
    pair.primary.stop(kill=True)
    urls = [pair.primary.url(pair.name), pair.replica.url(pair.name)]
    reader = open_mysql(urls, readonly=True)
    jobs = reader.query(ListJobs())
    assert isinstance(jobs, JobList)
    assert len(jobs.jobs) == 1
    reader.close()
    assert msgspec.structs.asdict(jobs.jobs[0])["name"] == "job1"
