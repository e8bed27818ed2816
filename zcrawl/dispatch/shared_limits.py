"""Limits that several hosts share: per registered domain and per IP address.

A part of the granter and the planner, used only if a job asks for such limits. A host belongs to
the group of its registered domain, and to the group of its address as soon as a worker has looked
it up (the worker reports the address before it sends a request). A host whose robots.txt is
redirected to another host shares a group with that host until the file is fetched
(`frontier.robots_place`); the group has the slower limits of both. Hosts that are linked by groups
are a *clan*.

The invariant: **no two processes may start or run requests to hosts of one clan at the same time.**
So one worker keeps all paces of a clan (`worker.shared_limits`), and the limits hold exactly, for
all jobs together, without a message before each request. Three rules follow:

- All hosts of a clan have one owner. They get a new one only when no other process can have a part
  of any of them: each part is confirmed as given up, lost and over, or gone (`blocked_until`).
- A new owner of a group waits one interval after the last start of the previous one (`claim`). A
  new leader does not know the previous owners, so it waits one interval after it took over, and
  after each process that had a host of the group was heard. Only owners and addresses are stored.
- A worker connects only to the address of the group (`Grant.address`).

The leader estimates the pace of each group, because requests that cannot start soon would use up
their worker's credit. Hosts that wait for a group are queued there, not in `due_hosts`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

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


NEAR_S = 0.25  # a request that can start within this time counts as one that starts now
# Rule `permission`: a worker holds at most concurrency + 5 s × rate URLs of one host.
HOLD_S = LOOKAHEAD_S
UNPACED_AHEAD = 8  # extra URLs that a worker holds if the group has no rate


class Clan(msgspec.Struct, eq=False):
    """Hosts that are linked by their groups. One process owns them all."""

    name: str  # key of its first group, used for rendezvous hashing
    owner: ProcessName = NOBODY  # process that has or will have its hosts
    wish: str = ""  # worker id that a person chose
    hosts: dict[int, None] = msgspec.field(default_factory=dict)
    suspects: dict[int, None] = msgspec.field(
        default_factory=dict
    )  # hosts that another process may still have
    refused: dict[int, None] = msgspec.field(
        default_factory=dict
    )  # hosts that wait for the suspects


class AllRuns(msgspec.Struct, frozen=True):
    """All runs of a host together, where a single run could ask for a limit."""

    host: int


Asker: TypeAlias = int | AllRuns  # a run, or a host for all its runs
Limit: TypeAlias = tuple[float, int]  # seconds between two starts, requests at a time; 0: none


class LimitGroup(msgspec.Struct, eq=False):
    """Hosts of one registered domain, or at one address, that a job limits together."""

    key: str
    asks: dict[Asker, Limit] = msgspec.field(default_factory=dict)
    members: dict[Asker, int] = msgspec.field(
        default_factory=dict
    )  # asker → number of its hosts here
    hosts: int = 0
    pace: Pace = msgspec.field(default_factory=Pace)  # the leader's estimate, for dispatch
    concurrency: int = 0  # 0: unlimited
    revision: int = 0
    clan: Clan | None = None
    owner: ProcessName = NOBODY  # the last process that got a host of the group
    first_at: float = 0.0  # that process starts nothing before this moment
    last_start_at: float = -math.inf  # latest possible start by any other process
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
        """Return when the next URL of the group may be sent."""
        return self.pace.ready_at() - LOOKAHEAD_S

    def turns(self, now: float) -> int:
        """Return how many of the waiting hosts can get a request now."""
        free = self.hold_limit - self.held
        if self.pace.interval_s > 0.0:
            free = min(free, (now - self.ready_at()) // self.pace.interval_s + 1)
        return max(0, int(min(free, len(self.waiting))))

    def strictest(self) -> tuple[float, int]:
        """Return the slowest limits of all jobs together."""
        interval_s = max((interval for interval, _ in self.asks.values()), default=0.0)
        limits = [most for _, most in self.asks.values() if most]
        return interval_s, min(limits, default=0)


CALL_AGAIN_S = 1.0  # hosts that wait for the end of a lease are tried again this often
MOST_IDLE = 50_000  # groups without hosts that stay in memory


class Groups:
    """All groups and clans."""

    def __init__(self, hosts: dict[int, HostState]) -> None:
        self.by_key: dict[str, LimitGroup] = {}
        self.began = -math.inf  # when this leader took over from another one
        self._hosts = hosts
        self._revision = 0
        self._turn = 0
        self._visitors: dict[str, int] = {}  # origin → hosts whose robots.txt is there
        self._alarms: list[tuple[float, int, str]] = []

    # ------------------------------------------------------------ who belongs to what

    def update_groups(self, host: HostState, asking: Mapping[int, Politeness]) -> list[int]:
        """Put the host into the groups that its runs ask for; return hosts to review."""
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
        self._add_robots_limit(host, asking, limits)
        moved: list[int] = []
        for group in host.groups:
            if group.key not in limits:
                moved += self.take_refused(host)  # the refused hosts may wait for this one
                self._leave(host, group)
        for key, asks in limits.items():
            group = self.by_key.setdefault(key, LimitGroup(key))
            if group not in host.groups:
                moved += self._join(host, group)
            self._count_runs(host, group, asks)
        return moved

    def _add_robots_limit(
        self,
        host: HostState,
        asking: Mapping[int, Politeness],
        limits: dict[str, dict[Asker, Limit]],
    ) -> None:
        """Add the limit that a host shares with the host of its robots.txt."""
        if host.robots_at:
            asks: dict[Asker, Limit] = {
                run: (_interval(politeness.rate), politeness.concurrency)
                for run, politeness in asking.items()
            }
            if asks:
                limits[robots_group(host.robots_at)] = asks
            else:
                self.lead_robots_to(host, "")  # a later run follows the redirect again
        if host.origin in self._visitors:
            demand = combined_demand(list(asking.values()), host.crawl_delay_s)
            slow_s = 0.0 if host.manner is None else host.manner.slow_s
            interval_s = max(demand.interval_s, host.crawl_delay_s, slow_s)
            limits[robots_group(host.origin)] = {
                AllRuns(host.id): (interval_s, demand.concurrency if asking else 0)
            }

    def lead_robots_to(self, host: HostState, place: str) -> None:
        """Set the origin that the robots.txt of the host redirects to; empty: none."""
        for origin, more in ((host.robots_at, -1), (place, +1)):
            if origin:
                count = self._visitors.pop(origin, 0) + more
                if count:
                    self._visitors[origin] = count
        host.lead_robots_to(place)

    def may_concern(self, host: HostState) -> bool:
        """Return whether the host is in a group, or may need one whatever its jobs ask for."""
        return bool(host.groups or host.robots_at) or host.origin in self._visitors

    def hold_back(self, key: str, moment: float) -> None:
        """Let the hosts of a group start nothing before that moment."""
        group = self.by_key.get(key)
        if group is not None:
            group.first_at = max(group.first_at, moment)

    def learn_address(self, host: HostState, text: str) -> bool:
        """Store the address that a worker found; return whether it is new."""
        address = plain_address(text)
        if not address or address == host.address:
            return False
        host.locate(address)
        return True

    def _join(self, host: HostState, group: LimitGroup) -> list[int]:
        """Add a host to a group and its clan; return hosts to review."""
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
        """Merge two clans: the larger one keeps its owner. Return the hosts that changed clan."""
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
        """Remove a host from a group.

        The rest of the clan stays together, even if only this host linked it.
        """
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
        """Set which runs ask for the limits of a group because of this host."""
        for asker in host.askers[group.key]:
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

    def blocked_until(self, host: HostState, owner: ProcessName, now: float) -> float | None:
        """Return None if only `owner` may start requests to hosts of the clan.

        Otherwise return until when another process may; inf means until that process confirms.
        """
        clan = host.clan
        while clan is not None and clan.suspects:
            suspect = next(iter(clan.suspects))
            other = self._hosts[suspect]
            until = _in_others_hands_until(other, owner, now)
            if until is not None:
                clan.refused[host.id] = None
                return until
            if other.inherited:  # its previous owner never said HELLO
                self.may_have_started(other, other.inherited_until)
            del clan.suspects[suspect]
        return None

    def suspect(self, host: HostState) -> None:
        """Note that a process other than the clan's owner may have a part of the host."""
        if host.clan is not None:
            host.clan.suspects[host.id] = None

    def take_refused(self, host: HostState) -> list[int]:
        """Return the hosts that were refused because of this clan: they may try again."""
        if host.clan is None:
            return []
        refused, host.clan.refused = list(host.clan.refused), {}
        return refused

    def set_owner(self, clan: Clan, owner: ProcessName) -> list[int]:
        """Give the whole clan another owner; return its hosts."""
        clan.owner = owner
        clan.suspects = dict(clan.hosts)
        return list(clan.hosts)

    def claim(self, host: HostState, name: ProcessName, now: float) -> None:
        """Give the paces of the host's groups to a process that gets a part of the host."""
        for group in host.groups:
            if group.owner != name:
                since = now if group.owner else max(self.began, group.last_start_at)
                group.owner = name
                group.first_at = max(group.first_at, since + group.pace.interval_s)

    def may_have_started(self, host: HostState, moment: float) -> None:
        """Note that a process which gives up the host may have started a request until then."""
        for group in host.groups:
            group.last_start_at = max(group.last_start_at, moment)

    def keep_owner(self, host: HostState, name: ProcessName) -> None:
        """Leave the paces of the host's groups to a process that had them before the takeover."""
        for group in host.groups:
            group.owner, group.first_at = name, 0.0

    def shares(self, host: HostState, name: ProcessName, now: float) -> list[GroupShare]:
        """Return the limits that the owner of a host must keep.

        The group of a robots.txt also permits requests to its host, so it is sent only when no
        other process can start a request there.
        """
        place = robots_group(host.robots_at) if host.robots_at else ""
        closed = bool(place) and self.blocked_until(host, name, now) is not None
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
        """Return whether one more URL of the host may be sent; queue the host if not."""
        group = self.obstacle(host, now)
        if group is None:
            return True
        group.waiting[host.id] = None
        ready_at = group.ready_at()
        self._arm(group, ready_at if ready_at > now else now + CALL_AGAIN_S)
        return False

    def obstacle(self, host: HostState, now: float) -> LimitGroup | None:
        """Return the first group that admits no URL of the host now."""
        for group in host.groups:
            if group.ready_at() > now or group.held >= group.hold_limit:
                return group
        return None

    def sent(self, host: HostState, now: float) -> None:
        """Advance the paces of the host's groups."""
        for group in host.groups:
            group.pace.take(now)

    def leases_changed(self, host: HostState, more: int) -> None:
        """Add to the count of the host's requests at workers."""
        host.leases_changed(more)
        for group in host.groups:
            group.held += more
            if more < 0 and group.waiting:
                self._arm(group, group.ready_at())

    def due(self, now: float) -> list[int]:
        """Take the hosts whose turn it is out of the queues and return them."""
        called: list[int] = []
        while self._alarms and self._alarms[0][0] <= now:
            moment, _, key = heapq.heappop(self._alarms)
            group = self.by_key.get(key)
            if group is None or group.alarm_at != moment:
                continue  # an earlier alarm was handled
            group.alarm_at = math.inf
            for host_id in list(group.waiting)[: group.turns(now)]:
                del group.waiting[host_id]
                called.append(host_id)
            if group.waiting:
                later = group.ready_at() + group.pace.interval_s
                self._arm(group, later if later > now else now + CALL_AGAIN_S)
        return called

    def next_due_at(self) -> float:
        """Return when the next queue has to be looked at."""
        return self._alarms[0][0] if self._alarms else math.inf

    def _arm(self, group: LimitGroup, moment: float) -> None:
        """Set the alarm of a group, unless it has an earlier one."""
        if moment < group.alarm_at:
            group.alarm_at = moment
            self._turn += 1
            heapq.heappush(self._alarms, (moment, self._turn, group.key))

    def check(self, dirty: Mapping[int, None]) -> None:
        members: dict[str, list[HostState]] = {}
        for host in self._hosts.values():
            assert (host.clan is None) == (not host.groups), "a host has a clan if it has a group"
            for group in host.groups:
                assert group.clan is host.clan, "a clan holds all hosts of its groups"
                members.setdefault(group.key, []).append(host)
            clan = host.clan
            if clan is None or host.id in dirty or host.storing:
                continue  # the next plan adapts its parts
            having = {name for name, part in host.parts.items() if part.granted}
            assert having <= {clan.owner}, "all hosts of a clan have one owner"
            if having and not clan.suspects:
                for other in map(self._hosts.__getitem__, clan.hosts):
                    assert all(n == clan.owner or not p.granted for n, p in other.parts.items())
        for group in self.by_key.values():
            hosts = members.get(group.key, [])
            assert group.hosts == len(hosts), "the hosts of a group are counted"
            assert group.held == sum(host.leased for host in hosts), (
                "the leases of a group are counted"
            )
            assert not group.waiting or group.alarm_at < math.inf, (
                "a group with waiting hosts has an alarm"
            )


def _interval(rate: float) -> float:
    """Return the seconds between two starts at this rate; 0: unlimited."""
    return 1.0 / rate if rate > 0 else 0.0


def _in_others_hands_until(host: HostState, owner: ProcessName, now: float) -> float | None:
    """Return until when another process may use the host; None: no other does."""
    if host.inherited and now < host.inherited_until:
        return host.inherited_until
    moments = [
        part.gone_at
        for name, part in host.parts.items()
        if name != owner and part.in_use > 0 and part.gone_at > now
    ]
    return max(moments, default=None)
