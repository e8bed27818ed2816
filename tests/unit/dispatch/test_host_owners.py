"""Which worker gets which part of a host, now and when workers come and go."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tests.unit.machine_tools import host_row, run_row, spec, worker_info
from zcrawl.dispatch.host_owners import CONFIRM_AGAIN_S, LOAD_FACTOR, UNKNOWN_ATTEMPT_S, Granter
from zcrawl.dispatch.host_state import HostState, Settlement
from zcrawl.dispatch.roster import Roster
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.pace import LONGEST_DELAY_S
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.model.host import RobotsFile
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import StoredRobots
from zcrawl.model.spec import Politeness

SPREAD = Politeness(robots=False, rate=0, concurrency=4, spread=True)
ONE_OWNER = Politeness(robots=False, rate=0, concurrency=4)
SLOW = Politeness(robots=False, rate=0.1, concurrency=1)
TIMEOUT_S = 20.0  # of a fetch, by default


class Town:
    """A granter with one run, some hosts and some workers."""

    def __init__(self, politeness: Politeness, workers: int, hosts: int = 1) -> None:
        self.roster, self.runs = Roster(), Runs()
        self.runs.put(run_row(1, spec(politeness)))
        self.granter = Granter(self.roster, self.runs)
        for n in range(1, hosts + 1):
            host = self.granter.load_host(host_row(n), 0.0, 0.0)
            host.runs.append(1)
            self.granter.renew_demand(host)
        for n in range(1, workers + 1):
            self.join(f"w{n}")

    @property
    def host(self) -> HostState:
        return self.granter.hosts[1]

    def join(self, name: str, now: float = 0.0) -> None:
        self.roster.workers[name] = worker_info(name)
        self.granter.process_joined(ProcessName(f"{name}#1"), now)

    def settle(self, host: HostState | None = None, now: float = 0.0) -> Settlement:
        """Look at a host once, and store its owners if that is asked."""
        host = host or self.host
        usable = [worker for worker in self.roster.workers.values() if worker.usable]
        result = self.granter.settle(host, usable, now)
        self.granter.check()
        in_use = sum(part.in_use for part in host.parts.values())
        assert in_use <= host.demand.concurrency, "never more than the concurrency may be in use"
        if result.owners:
            self.granter.owners_stored([(host.id, result.owners)])
        return result

    def settle_all(self, now: float = 0.0) -> None:
        for host in self.granter.hosts.values():
            for _ in range(3):
                self.settle(host, now)

    def granted(self, host: HostState | None = None) -> dict[ProcessName, int]:
        parts = (host or self.host).parts
        return {name: part.granted for name, part in parts.items() if part.granted}

    def confirm(self, name: ProcessName, now: float = 0.0) -> None:
        self.granter.confirm(name, 1, self.host.parts[name].revision, now)

    def owners(self) -> dict[int, ProcessName]:
        return {n: next(iter(self.granted(host))) for n, host in self.granter.hosts.items()}


def test_owners_are_stored_before_anything_is_granted() -> None:
    """Rule `takeover`: `hosts.owner` is committed before a host's first ASSIGN."""
    town = Town(ONE_OWNER, workers=1)
    usable = list(town.roster.workers.values())
    first = town.granter.settle(town.host, usable, 0.0)
    assert first.owners == ("w1#1",)
    assert not town.host.parts
    assert town.granter.settle(town.host, usable, 0.0) == Settlement(), "it waits for the store"
    town.granter.owners_stored([(1, first.owners)])
    assert town.settle().raised
    assert town.granted() == {"w1#1": 4}


def test_lowering_comes_before_raising() -> None:
    """A joining worker gets its part when the others have confirmed that they use less."""
    town = Town(SPREAD, workers=1)
    town.settle_all()
    assert town.granted() == {"w1#1": 4}
    town.join("w2")
    assert town.settle().lowered == ["w1#1"]
    assert town.granted() == {"w1#1": 2}, "nothing is raised while the old part may be in use"
    town.confirm(ProcessName("w1#1"))
    town.settle_all()
    assert town.granted() == {"w1#1": 2, "w2#1": 2}


def test_a_confirmation_of_an_older_word_frees_nothing() -> None:
    """Only the newest revision counts."""
    town = Town(SPREAD, workers=1)
    town.settle_all()
    old = town.host.parts[ProcessName("w1#1")].revision
    town.join("w2")
    town.settle()
    town.granter.confirm(ProcessName("w1#1"), 1, old, 0.0)
    assert town.host.parts[ProcessName("w1#1")].in_use == 4


def test_an_unconfirmed_lowering_is_said_again() -> None:
    """The word may be lost; after the confirmation nobody is asked any more."""
    town = Town(SPREAD, workers=1)
    town.settle_all()
    town.join("w2")
    town.settle(now=5.0)
    assert town.granter.overdue_confirmations(5.0) == []
    again = 5.0 + CONFIRM_AGAIN_S
    assert town.granter.overdue_confirmations(again) == [(1, "w1#1")]
    assert town.granter.overdue_confirmations(again) == []
    town.confirm(ProcessName("w1#1"))
    assert town.granter.overdue_confirmations(again + 9.0) == []


def test_an_inherited_host_is_closed_until_its_owner_is_heard() -> None:
    """Rule `takeover`: somebody may still be fetching there."""
    town = Town(ONE_OWNER, workers=0)
    town.granter.inherit(host_row(1, owners=(ProcessName("w1#1"),)), 30.0, 30.0)
    town.join("w2")
    result = town.settle(now=1.0)
    assert not town.host.parts
    assert result.look_again_at == 30.0
    town.join("w1")
    town.settle_all(now=2.0)
    assert sum(town.granted().values()) == 4


def test_an_inherited_host_is_free_when_the_stored_lease_has_ended() -> None:
    """An owner that never speaks again does not keep its host for ever."""
    town = Town(ONE_OWNER, workers=0)
    town.granter.inherit(host_row(1, owners=(ProcessName("w1#1"),)), 30.0, 30.0)
    town.join("w2")
    town.settle_all(now=29.9)
    assert town.granted() == {}
    town.settle_all(now=30.0)
    assert town.granted() == {"w2#1": 4}


def test_an_inherited_host_is_free_when_its_owner_is_certainly_dead() -> None:
    """The supervisor saw it die: the host keeps its pace, and does not wait for the lease."""
    town = Town(SLOW, workers=0)
    town.granter.inherit(host_row(1, owners=(ProcessName("w1#1"),)), 300.0, 300.0)
    town.join("w2")
    town.granter.process_gone(ProcessName("w1#1"), 5.0)
    assert town.granter.dirty
    town.settle_all(now=5.0)
    assert town.granted() == {"w2#1": 1}
    assert town.host.parts[ProcessName("w2#1")].first_at == 5.0 + town.host.demand.interval_s


def test_a_lost_workers_part_stays_in_use_until_the_longest_attempt_is_over() -> None:
    """G5: it may be cut off and still fetching what it started."""
    town = Town(ONE_OWNER, workers=1)
    town.settle_all()
    town.host.parts[ProcessName("w1#1")].held = 3
    del town.roster.workers["w1"]
    town.granter.process_lost(ProcessName("w1#1"), last_start_at=7.0)
    town.join("w2")
    for now in (10.0, 7.0 + TIMEOUT_S):
        town.settle_all(now)
        assert town.host.parts[ProcessName("w1#1")].in_use == 3
        assert sum(town.granted().values()) <= 1, "only what it cannot be using is free"
    town.settle_all(now=7.0 + TIMEOUT_S + 1.0)
    assert town.granted() == {"w2#1": 4}
    assert "w1#1" not in town.host.parts


def test_a_dead_workers_part_is_free_at_once() -> None:
    """Its supervisor saw it die: it can use nothing."""
    town = Town(ONE_OWNER, workers=1)
    town.settle_all()
    del town.roster.workers["w1"]
    town.granter.process_gone(ProcessName("w1#1"), 5.0)
    town.join("w2")
    town.settle_all(now=5.0)
    assert town.granted() == {"w2#1": 4}


@pytest.mark.parametrize("how", ["lost", "gone", "revoked"])
def test_a_next_owner_keeps_its_distance_from_the_last_start(how: str) -> None:
    """G5: the old owner may have started a request that nobody has reported yet."""
    town = Town(SLOW, workers=1)
    town.settle_all()
    town.host.parts[ProcessName("w1#1")].held = 1
    worker = town.roster.workers.pop("w1")
    town.join("w2")
    if how == "lost":
        town.granter.process_lost(ProcessName("w1#1"), last_start_at=100.0)
    elif how == "gone":
        town.granter.process_gone(ProcessName("w1#1"), 100.0)
    else:
        worker.draining = True
        town.settle(now=99.0)
        town.confirm(ProcessName("w1#1"), now=100.0)
    town.settle_all(now=100.0 + TIMEOUT_S + 1.0)
    assert town.granted() == {"w2#1": 1}
    assert town.host.parts[ProcessName("w2#1")].first_at >= 110.0


def test_a_host_keeps_its_owner_when_an_unrelated_worker_joins() -> None:
    """Rendezvous hashing: only as many hosts move as the newcomer's share."""
    town = Town(ONE_OWNER, workers=4, hosts=200)
    town.settle_all()
    before = town.owners()
    town.join("w5")
    moving = 0
    for host in town.granter.hosts.values():
        moving += len(town.settle(host).lowered)
    assert moving <= 40, "no more than a fifth moves"
    kept = {n: before[n] for n, host in town.granter.hosts.items() if town.granted(host)}
    assert kept.items() <= before.items()


def test_no_worker_owns_much_more_than_its_share() -> None:
    """Bounded load: the rendezvous order gives way when a worker is full."""
    town = Town(ONE_OWNER, workers=5, hosts=200)
    town.settle_all()
    load = Counter(town.owners().values())
    assert sum(load.values()) == 200
    assert len(load) == 5
    assert max(load.values()) <= math.ceil(LOAD_FACTOR * 200 / 5)


def test_the_same_workers_give_the_same_owners() -> None:
    """A new leader decides as the old one did, whoever said HELLO first."""
    town, other = Town(ONE_OWNER, workers=0), Town(ONE_OWNER, workers=0)
    for name in ("w1", "w2", "w3"):
        town.join(name)
    for name in ("w3", "w1", "w2"):
        other.join(name)
    town.settle_all()
    other.settle_all()
    assert town.granted() == other.granted()


def test_a_draining_worker_loses_its_hosts() -> None:
    """They move when it has confirmed."""
    town = Town(ONE_OWNER, workers=1)
    town.settle_all()
    town.roster.workers["w1"].draining = True
    town.join("w2")
    assert town.settle().lowered == ["w1#1"]
    assert town.granted() == {}
    town.confirm(ProcessName("w1#1"))
    town.settle_all()
    assert town.granted() == {"w2#1": 4}


def test_an_owner_that_speaks_to_a_new_leader_goes_on() -> None:
    """Rule `takeover`: what workers report as running is adopted."""
    town = Town(ONE_OWNER, workers=0)
    town.host.stored_owners = frozenset({ProcessName("w1#1")})
    town.granter.inherit(host_row(1, owners=(ProcessName("w1#1"),)), 30.0, 30.0)
    worker = town.roster.workers["w1"] = worker_info("w1")
    town.granter.process_joined(ProcessName("w1#1"), 0.0)
    town.granter.adopt(worker, 1, 2, 0.0)
    assert town.granted() == {"w1#1": 4}
    assert [grant.concurrency for grant in town.granter.grants_for_welcome(worker, 0.0)] == [4]


def test_a_host_that_becomes_known_after_a_worker_greeted_with_it_waits_for_that_worker() -> None:
    """All its rows were settled, and then a new one was admitted: the worker may still start what
    it held."""
    town = Town(ONE_OWNER, workers=0)
    worker = town.roster.workers["w1"] = worker_info("w1")
    town.granter.adopt(worker, 99, 1, 0.0)
    host = town.granter.load_host(host_row(99), 0.0, 1.0)
    assert host.room(1.0) == 0
    assert host.pace.next_at >= PERMISSION_S
    assert host.room(PERMISSION_S + UNKNOWN_ATTEMPT_S) > 0


def test_of_two_stored_owners_of_one_host_the_first_that_greets_gets_no_grant() -> None:
    """The other may be the one that starts requests there now: it keeps what runs, and gives back
    the rest, until the other one has greeted too."""
    town = Town(ONE_OWNER, workers=0)
    town.host.stored_owners = frozenset({ProcessName("w1#1"), ProcessName("w2#1")})
    town.granter.inherit(host_row(1, owners=(ProcessName("w1#1"), ProcessName("w2#1"))), 30.0, 30.0)
    worker = town.roster.workers["w1"] = worker_info("w1")
    town.granter.process_joined(ProcessName("w1#1"), 0.0)
    town.granter.adopt(worker, 1, 2, 0.0)
    assert town.granted() == {}
    assert [grant.concurrency for grant in town.granter.grants_for_welcome(worker, 0.0)] == [0]
    town.join("w2")
    town.host.wanted_owner = "w2"
    town.settle_all(now=1.0)
    assert town.granted() == {}, "it has not confirmed"
    town.confirm(ProcessName("w1#1"))
    town.settle_all(now=1.0)
    assert town.granted() == {"w2#1": 4}


def test_owners_that_are_gone_are_not_stored_for_ever() -> None:
    """The next leader would wait for them."""
    town = Town(ONE_OWNER, workers=1)
    town.settle_all()
    town.host.stored_owners = frozenset({ProcessName("w1#1"), ProcessName("w9#1")})
    town.granter.dirty[1] = None
    result = town.settle(now=1.0)
    assert result.owners == ("w1#1",)
    assert town.host.stored_owners == {"w1#1"}
    assert town.settle(now=1.0).owners == ()


def test_a_stranger_that_is_still_fetching_counts_but_gets_nothing() -> None:
    """What runs is in use in any case."""
    town = Town(ONE_OWNER, workers=0)
    worker = town.roster.workers["w1"] = worker_info("w1")
    town.granter.adopt(worker, 1, 3, 0.0)
    assert town.host.room(0.0) == 1
    assert [grant.concurrency for grant in town.granter.grants_for_welcome(worker, 0.0)] == [0]


def test_a_stored_pace_from_a_wrong_clock_is_clamped() -> None:
    """A next_at in the far future is a clock error, not a wish."""
    town = Town(ONE_OWNER, workers=0)
    host = town.granter.load_host(host_row(7, next_at=1e12), 0.0, 50.0)
    assert host.pace.next_at == 50.0 + LONGEST_DELAY_S


def test_a_stored_robots_txt_is_given_to_each_owner_once_while_it_is_fresh() -> None:
    """With what is left of its time; what has expired is asked for again by whoever needs it."""
    town = Town(ONE_OWNER, workers=1)
    town.settle_all()
    town.granter.clock_offset = 1_000.0
    town.host.robots = StoredRobots(200, b"packed", until=1_060.0)
    given = town.granter.grant_of(town.host, ProcessName("w1#1"), 10.0).robots
    assert given == RobotsFile(200, b"packed", 50.0)
    assert town.granter.grant_of(town.host, ProcessName("w1#1"), 11.0).robots is None, "it has it"
    town.host.parts[ProcessName("w1#1")].told_robots = False
    assert town.granter.grant_of(town.host, ProcessName("w1#1"), 61.0).robots is None, (
        "it has expired"
    )


def test_a_host_does_not_go_to_and_fro_between_workers_that_are_equally_full() -> None:
    """It was never granted: each time its owner was stored, another one was chosen."""
    town = Town(ONE_OWNER, workers=5, hosts=4)
    for host in town.granter.hosts.values():
        host.wanted_owner = "w1" if host.id in (1, 4) else f"w{host.id}"
        town.settle(host)
        host.wanted_owner = ""
    chosen = []
    for _ in range(6):
        town.settle(town.granter.hosts[4])
        chosen.append(tuple(town.granter.hosts[4].counted))
    assert len(set(chosen[1:])) == 1, chosen
    assert town.granted(town.granter.hosts[4])
