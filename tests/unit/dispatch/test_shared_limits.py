"""Hosts that share a limit: who has them, when they move, and how the leader paces them."""

from __future__ import annotations

import math

import pytest

from tests.unit.machine_tools import run_row, spec, worker_info
from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.roster import Roster
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.robots_place import ELSEWHERE, RobotsWay, robots_group
from zcrawl.model.process_name import NOBODY, ProcessName
from zcrawl.model.rows import HostRow, StoredRobots
from zcrawl.model.spec import Politeness

PLAIN = Politeness(robots=False, rate=0)
DOMAIN = Politeness(robots=False, rate=0, spread=True, domain_rate=2.0, domain_concurrency=3)
STRICTER = Politeness(robots=False, rate=0, domain_rate=0.5)
ADDRESS = Politeness(robots=False, rate=0, address_rate=1.0)
BOTH = Politeness(robots=False, rate=0, domain_rate=1.0, address_rate=1.0)


class Town:
    """A granter with workers and hosts by name; what it lowers is confirmed when a test says so."""

    def __init__(self, *demands: Politeness, workers: int = 3) -> None:
        self.roster, self.runs = Roster(), Runs()
        for run, demand in enumerate(demands, 1):
            self.runs.put(run_row(run, spec(demand)))
        self.granter = Granter(self.roster, self.runs)
        self.unconfirmed: list[tuple[ProcessName, int]] = []
        for n in range(1, workers + 1):
            self.roster.workers[f"w{n}"] = worker_info(f"w{n}")
            self.granter.process_joined(ProcessName(f"w{n}#1"), 0.0)

    def host(self, origin: str, *runs: int, address: str = "") -> HostState:
        row = HostRow(len(self.granter.hosts) + 1, origin, (), 0.0, 0.0, address=address)
        host = self.granter.load_host(row, 0.0, 0.0)
        host.runs += runs or (1,)
        self.granter.renew_demand(host)
        return host

    def settle(self, now: float = 0.0) -> float:
        """Look at all hosts until nothing changes; when to look again."""
        look_again = math.inf
        while self.granter.dirty:
            dirty, self.granter.dirty = self.granter.dirty, {}
            usable = [worker for worker in self.roster.workers.values() if worker.usable]
            for host_id in dirty:
                result = self.granter.settle(self.granter.hosts[host_id], usable, now)
                self.unconfirmed += [(name, host_id) for name in result.lowered]
                look_again = min(look_again, result.look_again_at)
                if result.owners:
                    self.granter.owners_stored([(host_id, result.owners)])
        self.granter.check()
        return look_again

    def confirm(self, now: float = 0.0) -> None:
        for name, host_id in self.unconfirmed:
            part = self.granter.hosts[host_id].parts[name]
            self.granter.confirm(name, host_id, part.revision, now)
        self.unconfirmed.clear()

    def owner(self, host: HostState) -> ProcessName:
        granted = [name for name, part in host.parts.items() if part.granted]
        assert len(granted) <= 1
        return granted[0] if granted else NOBODY


def test_all_hosts_of_a_domain_have_one_owner() -> None:
    """Also if their job would allow them to be spread; other domains go elsewhere."""
    town = Town(DOMAIN)
    ours = [town.host(f"http://h{n}.ours.test") for n in range(6)]
    others = [town.host(f"http://h.other{n}.test") for n in range(24)]
    town.settle()
    assert len({town.owner(host) for host in ours}) == 1
    assert len({town.owner(host) for host in others}) == 3


def leads_to(origin: str) -> StoredRobots:
    return stored_way("http://a.test/robots.txt", f"{origin}/r", until=100.0)


def stored_way(*urls: str, until: float) -> StoredRobots:
    file = RobotsWay(urls).pack(60.0)
    return StoredRobots(file.status, file.body, until)


@pytest.mark.parametrize("known_first", [True, False])
def test_hosts_whose_robots_txt_is_at_another_host_share_its_pace_until_they_have_it(
    known_first: bool,
) -> None:
    """All have one owner, the slowest demand of all counts, and the visited host's last request
    too; who has the file leaves, and with the last one the visited host."""
    town = Town(
        Politeness(rate=4.0, concurrency=3), Politeness(rate=0.5, concurrency=2, spread=True)
    )
    asking = [town.host(f"http://h{n}.test") for n in range(4)]
    if known_first:
        visited = town.host("https://there.test", 2)
        town.settle()
        visited.pace.next_at = 7.0
    for host in asking:
        town.granter.learn_robots(host, leads_to("https://there.test"))
    if not known_first:
        visited = town.host("https://there.test", 2)
    for now in (1.0, 2.0, 3.0):
        town.settle(now)
        town.confirm(now)
    (owner,) = {town.owner(host) for host in (*asking, visited)}
    assert owner
    (share,) = town.granter.grant_of(asking[0], owner, 3.0).groups
    assert (share.key, share.interval_s, share.concurrency) == (
        robots_group("https://there.test"),
        2.0,
        2,
    )
    assert share.next_in_s == (4.0 if known_first else 0.0)
    assert not known_first or visited.id in town.granter.news, "its owner hears of it"
    for host in asking:
        assert visited.groups
        town.granter.learn_robots(host, StoredRobots(200, b"", 100.0))
        assert host.groups == ()
    assert visited.groups == ()
    assert visited.clan is None
    for now in (4.0, 5.0):
        town.settle(now)
        town.confirm(now)
    assert visited.demand.spread, "as before"


def test_nobody_goes_for_a_robots_txt_while_another_worker_may_ask_there() -> None:
    """Three workers have parts of the host it leads to: the visitor is told of the group, which
    lets it go there, only when all but its own owner have given theirs up."""
    town = Town(Politeness(rate=1.0, concurrency=3, spread=True), Politeness(rate=1.0))
    visited, visitor = town.host("https://there.test", 1), town.host("http://a.test", 2)
    town.settle()
    assert len(visited.parts) == 3
    town.granter.learn_robots(visitor, leads_to("https://there.test"))
    town.settle(1.0)
    assert len(town.unconfirmed) >= 2
    for name in visitor.parts:
        assert town.granter.grant_of(visitor, name, 1.0).groups == []
    for now in (2.0, 3.0):
        town.confirm(now)
        town.settle(now)
    owner = town.owner(visitor)
    assert owner == town.owner(visited) != ""
    (share,) = town.granter.grant_of(visitor, owner, 3.0).groups
    assert share.key == robots_group("https://there.test")


def test_a_new_leader_knows_the_hosts_whose_robots_txt_is_elsewhere() -> None:
    """From what is stored; a way that is too old is not gone any more, a damaged one leads
    nowhere."""
    town = Town(PLAIN)
    for number, (file, place) in enumerate(
        [
            (leads_to("https://there.test"), "https://there.test"),
            (stored_way("https://there.test/r", until=-1.0), ""),
            (StoredRobots(ELSEWHERE, b"damaged", 100.0), ""),
            (StoredRobots(200, b"", 100.0), ""),
        ],
        start=1,
    ):
        row = HostRow(number, f"http://h{number}.test", (), 0.0, 0.0, robots=file)
        assert town.granter.load_host(row, 0.0, 0.0).robots_at == place


def test_a_job_that_does_not_ask_is_not_concerned() -> None:
    """Its hosts belong to no group, and are spread as ever."""
    town = Town(Politeness(robots=False, rate=0, spread=True))
    host = town.host("http://h1.ours.test")
    town.settle()
    assert host.groups == ()
    assert host.clan is None
    assert len(host.parts) == 3
    assert town.granter.grant_of(host, ProcessName("w1#1"), 0.0).groups == []
    assert town.granter.grant_of(host, ProcessName("w1#1"), 0.0).address is None


def test_the_strictest_of_the_jobs_that_ask_counts() -> None:
    """And no longer than it has rows there."""
    town = Town(DOMAIN, STRICTER)
    first_host, second_host = (
        town.host("http://a.ours.test", 1),
        town.host("http://b.ours.test", 1, 2),
    )
    (group,) = first_host.groups
    assert (group.pace.interval_s, group.concurrency) == (2.0, 3)
    before = group.revision
    second_host.runs.remove(2)
    town.granter.renew_demand(second_host)
    assert (group.pace.interval_s, group.concurrency) == (0.5, 3)
    assert group.revision > before, "workers are told"


def test_a_clan_moves_only_when_all_of_it_is_free() -> None:
    """A new owner starts nothing while the old one may run a request to any of its hosts, and
    then an interval later."""
    town = Town(DOMAIN, workers=2)
    first_host, second_host = town.host("http://a.ours.test"), town.host("http://b.ours.test")
    town.settle()
    old = town.owner(first_host)
    town.roster.workers[old.partition("#")[0]].draining = True
    town.granter.dirty |= {first_host.id: None, second_host.id: None}
    town.settle(10.0)
    assert town.owner(first_host) == town.owner(second_host) == ""
    assert len(town.unconfirmed) == 2
    second = town.unconfirmed.pop()
    town.confirm(11.0)
    town.settle(11.0)
    assert town.owner(first_host) == town.owner(second_host) == "", (
        "the other host may still be fetched"
    )
    town.unconfirmed.append(second)
    town.confirm(12.0)
    town.settle(12.0)
    new = town.owner(first_host)
    assert new
    assert new == town.owner(second_host)
    assert new != old
    (share,) = town.granter.grant_of(first_host, new, 12.0).groups
    assert share.next_in_s == 0.5


def test_a_lost_worker_keeps_its_clan_closed_until_its_requests_must_be_over() -> None:
    """It may live: it starts nothing after its permission, but finishes what runs."""
    town = Town(DOMAIN, workers=2)
    first_host, second_host = town.host("http://a.ours.test"), town.host("http://b.ours.test")
    town.settle()
    old = town.owner(first_host)
    first_host.parts[old].held = 1
    del town.roster.workers[old.partition("#")[0]]
    town.granter.process_lost(old, 17.0)
    until = town.settle(20.0)
    assert until == 17.0 + 20.0 + 1.0, "the longest attempt"
    assert town.owner(second_host) == "", "also a host that it was not fetching"
    town.granter.dirty |= {first_host.id: None, second_host.id: None}
    town.settle(until)
    assert town.owner(first_host) == town.owner(second_host) != ""


def test_an_address_is_known_when_a_worker_has_found_it() -> None:
    """Until then the grant asks for it; then the host is where the others of its address are."""
    town = Town(ADDRESS)
    first = town.host("http://one.test", address="192.0.2.1")
    names = [town.host(f"http://n{n}.test") for n in range(6)]
    town.settle()
    for host in names:
        assert host.groups == ()
        assert town.granter.grant_of(host, town.owner(host), 0.0).address == ""
        town.granter.learn_address(host.id, "::ffff:192.0.2.1")
    town.settle()
    town.confirm()
    town.settle()
    assert {town.owner(host) for host in names} == {town.owner(first)}
    assert town.granter.grant_of(names[0], town.owner(first), 0.0).address == "192.0.2.1"
    town.granter.learn_address(first.id, "nonsense")
    assert first.address == "192.0.2.1"


def test_an_address_in_the_url_is_known_at_once() -> None:
    """Nobody has to look it up."""
    town = Town(ADDRESS)
    first_host, second_host = town.host("http://192.0.2.7:81"), town.host("http://192.0.2.7:82")
    assert first_host.groups == second_host.groups != ()


def test_domains_that_share_an_address_become_one_clan() -> None:
    """A host belongs to both groups, so whoever has it must have both."""
    town = Town(BOTH)
    left = [town.host(f"http://{n}.left.test", address="192.0.2.1") for n in "ab"]
    right = [town.host(f"http://{n}.right.test", address="192.0.2.2") for n in "abcd"]
    town.settle()
    town.granter.learn_address(right[0].id, "192.0.2.1")
    town.settle()
    town.confirm()
    town.settle()
    assert len({town.owner(host) for host in (*left, *right)}) == 1
    assert left[0].clan is right[3].clan


def test_a_host_that_no_job_limits_any_more_is_free() -> None:
    """The groups are left; another job may spread it."""
    town = Town(DOMAIN, Politeness(robots=False, rate=0, spread=True))
    host = town.host("http://a.ours.test", 1, 2)
    town.settle()
    assert (host.clan is None, host.demand.spread) == (False, False)
    host.runs.remove(1)
    town.granter.renew_demand(host)
    town.settle()
    assert (host.clan is None, host.demand.spread) == (True, True)
    assert host.groups == ()


def test_a_new_leader_keeps_an_interval_to_whatever_was_before() -> None:
    """It does not know who had which group."""
    town = Town(DOMAIN, workers=1)
    town.granter.groups.began = 100.0
    host = town.host("http://a.ours.test")
    town.settle(100.2)
    (share,) = town.granter.grant_of(host, ProcessName("w1#1"), 100.2).groups
    assert share.next_in_s == pytest.approx(0.3)


def test_dispatch_follows_the_pace_of_the_group_and_the_line_of_its_hosts() -> None:
    """A hundred hosts that wait are not all looked at for each page: one is called, in turn."""
    town = Town(Politeness(robots=False, rate=0, domain_rate=4.0))
    hosts = [town.host(f"http://h{n}.ours.test") for n in range(100)]
    groups = town.granter.groups
    called, sent, now = [h.id for h in hosts], [], 0.0
    looked = 0
    while now < 30.0:
        for host_id in called:
            looked += 1
            host = town.granter.hosts[host_id]
            if groups.admits(host, now):
                groups.sent(host, now)
                groups.leases_changed(host, +1)
                sent.append(host_id)
                groups.leases_changed(host, -1)  # answered at once
        now = max(now + 0.001, min(groups.next_due_at(), now + 0.5))
        called = groups.due(now)
        groups.check(town.granter.dirty)
    assert sent == [host.id for host in hosts]
    assert looked <= 3 * 100


def test_what_workers_hold_of_a_group_is_bounded() -> None:
    """Whatever the number of its hosts; a lease that ends lets the next one go."""
    town = Town(Politeness(robots=False, rate=0, domain_concurrency=2))
    hosts = [town.host(f"http://h{n}.ours.test") for n in range(40)]
    groups, held = town.granter.groups, []
    for host in hosts:
        if groups.admits(host, 0.0):
            groups.leases_changed(host, +1)
            held.append(host)
    assert len(held) == 2 + 8
    assert groups.due(0.5) == []
    groups.leases_changed(held[0], -1)
    assert groups.due(0.5) == [hosts[10].id]


def test_an_interval_passes_after_a_former_owner_was_heard_of() -> None:
    """A worker that slept through the change of leaders may have asked just before it says HELLO;
    one that is never heard of, until the end of the old leader's lease."""
    for heard in (True, False):
        town = Town(DOMAIN, workers=1)
        town.granter.groups.began = 100.0
        row = HostRow(1, "http://a.ours.test", (ProcessName("w9#1"),), 0.0, 0.0)
        host = town.granter.load_host(row, 0.0, 100.0)
        host.runs.append(1)
        town.granter.renew_demand(host)
        town.granter.inherit(row, 130.0, 130.0)
        assert town.settle(101.0) == 130.0
        now = 130.0
        if heard:
            now = 102.0
            town.granter.process_joined(ProcessName("w9#1"), now)
        town.granter.dirty[host.id] = None
        town.settle(now)
        (share,) = town.granter.grant_of(host, ProcessName("w1#1"), now).groups
        assert share.next_in_s == pytest.approx(0.5)
