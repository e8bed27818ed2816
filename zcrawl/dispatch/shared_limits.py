"""Limits that several hosts share: per registered domain and per IP address.

A part of the granter and the planner, idle until a job asks. A host belongs to the group of its
registered domain, known at once, and to that of its address, known when a worker has looked it up
(it reports the address and sends nothing). A host whose robots.txt is redirected to another host
is in a group with that one until the file is fetched (`frontier.robots_place`): its limits are the
slowest of both. Hosts that are linked by groups are a *clan*.

The invariant: **of the hosts of one clan, no process starts a request while another process may
start or be running one.** So one worker keeps all paces of a clan, as it keeps those of its hosts
(`worker.shared_limits`), and the limits hold exactly, for all jobs together, without anybody asking
anybody before a request. What follows from it:

- all hosts of a clan get one owner, and a new one only when every part that others had in any of
  them is confirmed as given up, lost and over, or gone (`blocked`)
- whoever gets a group that somebody else had before starts an interval later: whatever the other
  one did, it did before (`claim`). A new leader does not know who had what, so a whole interval
  passes after it took over, and after it has heard of each process that had a host of the group.
  Nothing of this has to be stored but owners and addresses.
- a worker connects to no other address than the one of the group (`Grant.address`)

For dispatch the leader keeps an estimate of each group's pace: what cannot start soon would use up
its worker's credit. Hosts that wait for a group stand in its line, not in the planner's heap.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from zcrawl.frontier.domains import plain_address, registered_domain
from zcrawl.frontier.pace import Pace, combined_demand
from zcrawl.frontier.robots_place import robots_group
from zcrawl.mesh.timing import LOOKAHEAD_S
from zcrawl.model.host import GroupShare
from zcrawl.model.process_name import NOBODY, ProcessName
from zcrawl.model.spec import Politeness

if TYPE_CHECKING:
    from zcrawl.dispatch.host_state import HostState


NEAR_S = 0.25  # what its pace allows so soon is sent by the credit for what starts now
# Rule `permission`: of one host a worker holds concurrency + 5 s × rate URLs at most.
HOLD_S = LOOKAHEAD_S
UNPACED_AHEAD = 8  # URLs that a worker holds beyond what may run, where only a number limits them


class Clan(msgspec.Struct, eq=False):
    """Hosts that are linked by their groups. One process has them all."""

    name: str  # of the group that it began with: what rendezvous hashing sees
    owner: ProcessName = NOBODY  # process that has, or is to have, its hosts
    wish: str = ""  # a person's: the id of a worker
    hosts: dict[int, None] = msgspec.field(default_factory=dict)
    suspects: dict[int, None] = msgspec.field(default_factory=dict)  # others may have them
    refused: dict[int, None] = msgspec.field(default_factory=dict)  # wait for suspects


class AllRuns(NamedTuple):
    """All runs of a host together, as one that asks for a limit."""

    host: int


Asker: TypeAlias = int | AllRuns  # a run, or a host for all its runs
Limit: TypeAlias = tuple[float, int]  # seconds between two starts, requests at a time; 0: none


class LimitGroup(msgspec.Struct, eq=False):
    """All hosts of one registered domain, or at one address, that a job limits together."""

    key: str
    asks: dict[Asker, Limit] = msgspec.field(default_factory=dict)
    members: dict[Asker, int] = msgspec.field(default_factory=dict)  # who asks → its hosts here
    hosts: int = 0
    pace: Pace = msgspec.field(default_factory=Pace)  # the leader's estimate, for dispatch
    concurrency: int = 0  # 0: unlimited
    revision: int = 0
    clan: Clan | None = None
    owner: ProcessName = NOBODY  # process that was last given any host of it
    first_at: float = 0.0  # that process starts nothing before this moment
    last_start_at: float = -math.inf  # of any other process, at the latest
    held: int = 0  # open leases of its hosts
    waiting: dict[int, None] = msgspec.field(default_factory=dict)  # hosts, in turn
    alarm_at: float = math.inf  # when the first of them is called

    @property
    def hold_limit(self) -> float:
        """How many URLs of all its hosts a worker may hold."""
        interval = self.pace.interval_s
        if interval <= 0.0:
            return self.concurrency + UNPACED_AHEAD if self.concurrency else math.inf
        ahead = math.ceil(HOLD_S / interval) + 1
        return ahead + (self.concurrency or math.ceil(NEAR_S / interval))

    def ready_at(self) -> float:
        """When one more URL of it may be dispatched."""
        return self.pace.ready_at() - LOOKAHEAD_S

    def turns(self, now: float) -> int:
        """How many of those that wait can go now."""
        free = self.hold_limit - self.held
        if self.pace.interval_s > 0.0:
            free = min(free, (now - self.ready_at()) // self.pace.interval_s + 1)
        return max(0, int(min(free, len(self.waiting))))

    def strictest(self) -> tuple[float, int]:
        """For all jobs together the slowest demand wins."""
        interval_s = max((interval for interval, _ in self.asks.values()), default=0.0)
        limits = [most for _, most in self.asks.values() if most]
        return interval_s, min(limits, default=0)


CALL_AGAIN_S = 1.0  # those who wait for a lease to end are called this often in any case
MOST_IDLE = 50_000  # groups without hosts that are remembered


class Groups:
    def __init__(self, hosts: dict[int, HostState]) -> None:
        self.by_key: dict[str, LimitGroup] = {}
        self.began = -math.inf  # when this leader took over from another one
        self._hosts = hosts
        self._revision = 0
        self._turn = 0
        self._visitors: dict[str, int] = {}  # origin → hosts whose robots.txt is there
        self._alarms: list[tuple[float, int, str]] = []

    # ------------------------------------------------------------ who belongs to what

    def follow(self, host: HostState, asking: Mapping[int, Politeness]) -> list[int]:
        """These runs have rows of the host. Hosts whose owner is to be looked at again."""
        limits: dict[str, dict[Asker, Limit]] = {}
        pins = False
        for run, each in asking.items():
            if each.limits_domains:
                ask = _interval(each.domain_rate), each.domain_concurrency
                limits.setdefault(f"domain {registered_domain(host.origin)}", {})[run] = ask
            if each.limits_addresses:
                pins = True
                if host.address:
                    ask = _interval(each.address_rate), each.address_concurrency
                    limits.setdefault(f"address {host.address}", {})[run] = ask
        host.pin(pins)
        self._want_robots(host, asking, limits)
        moved: list[int] = []
        for group in host.groups:
            if group.key not in limits:
                moved += self.released(host)  # it may be what they wait for
                self._leave(host, group)
        for key, asks in limits.items():
            group = self.by_key.setdefault(key, LimitGroup(key))
            if group not in host.groups:
                moved += self._join(host, group)
            self._count_runs(host, group, asks)
        return moved

    def _want_robots(
        self,
        host: HostState,
        asking: Mapping[int, Politeness],
        limits: dict[str, dict[Asker, Limit]],
    ) -> None:
        if host.robots_at:
            asks: dict[Asker, Limit] = {
                run: (_interval(politeness.rate), politeness.concurrency)
                for run, politeness in asking.items()
            }
            if asks:
                limits[robots_group(host.robots_at)] = asks
            else:
                self.lead(host, "")  # a later run finds the way again
        if host.origin in self._visitors:
            demand = combined_demand(list(asking.values()), host.crawl_delay_s)
            slow_s = 0.0 if host.manner is None else host.manner.slow_s
            interval_s = max(demand.interval_s, host.crawl_delay_s, slow_s)
            limits[robots_group(host.origin)] = {
                AllRuns(host.id): (interval_s, demand.concurrency if asking else 0)
            }

    def lead(self, host: HostState, place: str) -> None:
        """Its robots.txt is at that origin; empty: it is known, or where it should be."""
        for origin, more in ((host.robots_at, -1), (place, +1)):
            if origin:
                count = self._visitors.pop(origin, 0) + more
                if count:
                    self._visitors[origin] = count
        host.lead_robots_to(place)

    def concern(self, host: HostState) -> bool:
        """Whether it belongs to a group, or may have to, whatever its jobs ask for."""
        return bool(host.groups or host.robots_at) or host.origin in self._visitors

    def hold_back(self, key: str, moment: float) -> None:
        """The hosts of a group start nothing before that moment."""
        group = self.by_key.get(key)
        if group is not None:
            group.first_at = max(group.first_at, moment)

    def learn_address(self, host: HostState, text: str) -> bool:
        """A worker found the host there; whether that is news."""
        address = plain_address(text)
        if not address or address == host.address:
            return False
        host.locate(address)
        return True

    def _join(self, host: HostState, group: LimitGroup) -> list[int]:
        host.join_group(group)
        group.hosts += 1
        group.held += host.leased
        clan = group.clan
        if clan is None:
            clan = group.clan = host.clan or Clan(group.key)
        if host.clan is None:
            host.set_clan(clan)
            clan.hosts[host.id] = clan.suspects[host.id] = None
            return [host.id]
        return [] if host.clan is clan else self._merge(host.clan, clan)

    def _merge(self, clan: Clan, other: Clan) -> list[int]:
        """The larger one takes the smaller one in, and keeps its owner."""
        kept, gone = (clan, other) if len(clan.hosts) >= len(other.hosts) else (other, clan)
        kept.owner = kept.owner or gone.owner
        for host_id in gone.hosts:
            host = self._hosts[host_id]
            host.set_clan(kept)
            for group in host.groups:
                group.clan = kept
        kept.hosts.update(gone.hosts)
        kept.suspects.update(gone.hosts)
        kept.refused.update(gone.refused)
        return list(gone.hosts)

    def _leave(self, host: HostState, group: LimitGroup) -> None:
        """The rest of the clan stays together, also if only this host linked it."""
        self._count_runs(host, group, {})
        host.leave_group(group)
        group.waiting.pop(host.id, None)
        group.held -= host.leased
        group.hosts -= 1
        if not group.hosts:
            group.clan = None
            if len(self.by_key) > MOST_IDLE:
                del self.by_key[group.key]
        clan = host.clan
        if clan is not None and not host.groups:
            for names in (clan.hosts, clan.suspects, clan.refused):
                names.pop(host.id, None)
            host.set_clan(None)

    def _count_runs(self, host: HostState, group: LimitGroup, asks: Mapping[Asker, Limit]) -> None:
        for asker in host.asked[group.key]:
            group.members[asker] -= 1
            if not group.members[asker]:
                del group.members[asker], group.asks[asker]
        host.set_askers(group, tuple(asks))
        for asker, ask in asks.items():
            group.members[asker] = group.members.get(asker, 0) + 1
            group.asks[asker] = ask
        interval_s, concurrency = group.strictest()
        if (interval_s, concurrency) != (group.pace.interval_s, group.concurrency):
            self._revision += 1
            group.revision = self._revision
            group.pace.interval_s, group.concurrency = interval_s, concurrency

    # ------------------------------------------------------------ owners

    def blocked(self, host: HostState, owner: ProcessName, now: float) -> float | None:
        """None: only `owner` may start requests to any host of the clan. Else until when another
        may; inf: until it confirms."""
        clan = host.clan
        while clan is not None and clan.suspects:
            suspect = next(iter(clan.suspects))
            other = self._hosts[suspect]
            until = _in_others_hands_until(other, owner, now)
            if until is not None:
                clan.refused[host.id] = None
                return until
            if other.inherited:  # its owner was never heard of
                self.may_have_started(other, other.inherited_until)
            del clan.suspects[suspect]
        return None

    def suspect(self, host: HostState) -> None:
        """Somebody else than the owner of its clan may have a part of it."""
        if host.clan is not None:
            host.clan.suspects[host.id] = None

    def released(self, host: HostState) -> list[int]:
        """A part of it was given up: those who were refused for its sake may ask again."""
        if host.clan is None:
            return []
        refused, host.clan.refused = list(host.clan.refused), {}
        return refused

    def choose(self, clan: Clan, owner: ProcessName) -> list[int]:
        """Another owner for the whole clan; the hosts that this concerns."""
        clan.owner = owner
        clan.suspects = dict(clan.hosts)
        return list(clan.hosts)

    def claim(self, host: HostState, name: ProcessName, now: float) -> None:
        """A process gets a part of the host, and with it the paces of its groups."""
        for group in host.groups:
            if group.owner != name:
                since = now if group.owner else max(self.began, group.last_start_at)
                group.owner = name
                group.first_at = max(group.first_at, since + group.pace.interval_s)

    def may_have_started(self, host: HostState, moment: float) -> None:
        """A process that gives up the host may have asked it until then."""
        for group in host.groups:
            group.last_start_at = max(group.last_start_at, moment)

    def goes_on(self, host: HostState, name: ProcessName) -> None:
        """A process that an earlier leader gave the host goes on with paces that it knows."""
        for group in host.groups:
            group.owner, group.first_at = name, 0.0

    def shares(self, host: HostState, name: ProcessName, now: float) -> list[GroupShare]:
        """The limits that its owner has to keep. A group for the sake of a robots.txt allows one
        to go where it is: not told before nobody else may start anything there."""
        place = robots_group(host.robots_at) if host.robots_at else ""
        closed = bool(place) and self.blocked(host, name, now) is not None
        return [
            GroupShare(
                group.key,
                group.revision,
                group.pace.interval_s,
                group.concurrency,
                max(0.0, group.first_at - now),
            )
            for group in host.groups
            if not (closed and group.key == place)
        ]

    # ------------------------------------------------------------ dispatch

    def admits(self, host: HostState, now: float) -> bool:
        """Whether one more URL of the host may be sent; if not, it stands in line."""
        group = self.obstacle(host, now)
        if group is None:
            return True
        group.waiting[host.id] = None
        ready_at = group.ready_at()
        self._arm(group, ready_at if ready_at > now else now + CALL_AGAIN_S)
        return False

    def obstacle(self, host: HostState, now: float) -> LimitGroup | None:
        """The first of its groups that admits no URL of the host now."""
        for group in host.groups:
            if group.ready_at() > now or group.held >= group.hold_limit:
                return group
        return None

    def sent(self, host: HostState, now: float) -> None:
        for group in host.groups:
            group.pace.take(now)

    def leased(self, host: HostState, more: int) -> None:
        """So many more of its requests are in workers' hands, or fewer."""
        host.leases_changed(more)
        for group in host.groups:
            group.held += more
            if more < 0 and group.waiting:
                self._arm(group, group.ready_at())

    def due(self, now: float) -> list[int]:
        """Hosts whose turn it is."""
        called: list[int] = []
        while self._alarms and self._alarms[0][0] <= now:
            moment, _, key = heapq.heappop(self._alarms)
            group = self.by_key.get(key)
            if group is None or group.alarm_at != moment:
                continue  # it was called earlier
            group.alarm_at = math.inf
            for host_id in list(group.waiting)[: group.turns(now)]:
                del group.waiting[host_id]
                called.append(host_id)
            if group.waiting:
                later = group.ready_at() + group.pace.interval_s
                self._arm(group, later if later > now else now + CALL_AGAIN_S)
        return called

    def next_due_at(self) -> float:
        return self._alarms[0][0] if self._alarms else math.inf

    def _arm(self, group: LimitGroup, moment: float) -> None:
        if moment < group.alarm_at:
            group.alarm_at = moment
            self._turn += 1
            heapq.heappush(self._alarms, (moment, self._turn, group.key))

    def check(self, dirty: Mapping[int, None]) -> None:
        members: dict[str, list[HostState]] = {}
        for host in self._hosts.values():
            assert (host.clan is None) == (not host.groups), "who has a group has a clan"
            for group in host.groups:
                assert group.clan is host.clan, "a clan holds all hosts of its groups"
                members.setdefault(group.key, []).append(host)
            clan = host.clan
            if clan is None or host.id in dirty or host.storing:
                continue  # its parts follow with the next plan
            having = {name for name, part in host.parts.items() if part.granted}
            assert having <= {clan.owner}, "all hosts of a clan have one owner"
            if having and not clan.suspects:
                for other in map(self._hosts.__getitem__, clan.hosts):
                    assert all(n == clan.owner or not p.granted for n, p in other.parts.items())
        for group in self.by_key.values():
            hosts = members.get(group.key, [])
            assert group.hosts == len(hosts), "members are counted"
            assert group.held == sum(host.leased for host in hosts), "leases are counted"
            assert not group.waiting or group.alarm_at < math.inf, "who waits is called"


def _interval(rate: float) -> float:
    return 1.0 / rate if rate > 0 else 0.0


def _in_others_hands_until(host: HostState, owner: ProcessName, now: float) -> float | None:
    if host.inherited and now < host.inherited_until:
        return host.inherited_until
    moments = [
        part.gone_at
        for name, part in host.parts.items()
        if name != owner and part.in_use > 0 and part.gone_at > now
    ]
    return max(moments, default=None)
