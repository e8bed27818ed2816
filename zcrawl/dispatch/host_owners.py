"""The granter: choose which worker gets which part of a host.

Called by the planner. It uses rendezvous hashing with bounded load: a host keeps its owner while
that worker is usable; a new owner is the highest-ranked worker that is not full; hosts move from an
overloaded worker when another one joins. Owners are stored before anything is granted, and a host
that a previous leader granted waits for its owners (rule `takeover`). `host_state` has the
arithmetic.
"""

from __future__ import annotations

import math

import msgspec

from zcrawl.dispatch.host_state import HostState, Part, Settlement, shares, sort_by_score
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.dispatch.runs import Runs
from zcrawl.dispatch.shared_limits import Clan, Groups
from zcrawl.frontier.domains import literal_address
from zcrawl.frontier.pace import LONGEST_DELAY_S, combined_demand
from zcrawl.frontier.robots_place import place_in, robots_group
from zcrawl.mesh.messages import Grant
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.model.host import RobotsFile
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import HostRow, StoredRobots

CONFIRM_AGAIN_S = 1.0
UNKNOWN_ATTEMPT_S = 20.0  # longest request of a run whose time limit is not known
LOAD_FACTOR = 1.25  # a worker owns at most this much more than its share of the hosts


class Granter:
    """Give workers their parts of hosts, and take parts back safely."""

    def __init__(self, roster: Roster, runs: Runs, first_revision: int = 0) -> None:
        """Start with revisions that no earlier leader used.

        So a late confirmation for an earlier leader cannot confirm a grant of this one.
        """
        self.hosts: dict[int, HostState] = {}
        self.groups = Groups(self.hosts)
        self.dirty: dict[int, None] = {}  # hosts whose parts must be reviewed
        self.news: dict[int, None] = {}  # hosts whose owners must get their new groups
        self.revision = first_revision
        self.clock_offset = 0.0  # UTC = now + clock_offset
        self._lowering: dict[
            tuple[int, ProcessName], float
        ] = {}  # (host, process) → when it was sent
        # Hosts that a worker named in HELLO and that are not loaded → (its process, until when)
        self._strangers: dict[int, tuple[ProcessName, float]] = {}
        self.capacity: dict[ProcessName, float] = {}  # measured, by `balance`
        self._roster, self._runs = roster, runs
        self._by_origin: dict[str, int] = {}
        self._owned: dict[
            ProcessName, int
        ] = {}  # process name → number of hosts that it owns or will own

    # ------------------------------------------------------------ hosts

    def load_host(self, row: HostRow, clock_offset: float, now: float) -> HostState:
        """Return the host of a row; create it if it is not in memory."""
        host = self.hosts.get(row.id)
        if host is None:
            next_at = min(row.next_at - clock_offset, now + LONGEST_DELAY_S)
            host = HostState.stored(row, next_at)
            if row.robots is not None and row.robots.until > now + clock_offset:
                self.groups.lead_robots_to(host, place_in(row.robots))
            self.hosts[row.id] = host
            self._by_origin[row.origin] = row.id
            if row.id in self._strangers:
                name, until = self._strangers.pop(row.id)
                self.assume_start(row.id, min(until, now + PERMISSION_S))
                host.inherit({name}, until)
        return host

    def inherit(self, row: HostRow, over_at: float, until: float) -> None:
        """Keep a host closed until its previous owners are heard, or until `until`.

        A previous leader granted it. Nothing that it granted runs after `over_at`.
        """
        host = self.hosts[row.id]
        host.inherit(set(row.owners), until, over_at)
        self.groups.suspect(host)

    def await_owners(self, until: float) -> None:
        """Keep inherited hosts closed until then, because workers learn only now who leads."""
        for host in self.hosts.values():
            host.await_inherited(until)

    def renew_demand(self, host: HostState) -> None:
        """Compute what the jobs of a host allow together, and its groups."""
        active = [(run, self._runs.get(run)) for run in host.runs]
        asking = {
            run: active_run.spec.politeness for run, active_run in active if active_run is not None
        }
        demands = list(asking.values())
        if self.groups.may_concern(host) or any(
            politeness.limits_domains or politeness.limits_addresses for politeness in demands
        ):
            if not host.address:
                host.locate(literal_address(host.origin))
            self.dirty.update(dict.fromkeys(self.groups.update_groups(host, asking)))
        if demands:
            demand = combined_demand(demands, host.crawl_delay_s)
            shared = host.clan is not None or host.pins  # such a host must have one owner
            if shared:
                demand = msgspec.structs.replace(demand, spread=False)
            host.set_demand(demand)
            self.dirty[host.id] = None

    def learn_address(self, host_id: int, address: str) -> None:
        """Store the address that a worker found; the host's groups may change."""
        host = self.hosts.get(host_id)
        if host is not None and self.groups.learn_address(host, address):
            self.renew_demand(host)

    def learn_robots(self, host: HostState, file: StoredRobots) -> None:
        """Store a fetched robots.txt, or the redirect to it.

        With a redirect to another host, both hosts share a pace until the file is fetched.
        """
        host.robots_fetched(file)
        before, place = host.robots_at, place_in(file)
        if place in (before, host.origin):
            return
        self.groups.lead_robots_to(host, place)
        for origin in filter(None, (before, place)):
            visited = self.hosts.get(self._by_origin.get(origin, -1))
            if (
                visited is not None
            ):  # first this host, because the other one then moves to its owner
                self.renew_demand(visited)
                self.groups.hold_back(robots_group(origin), visited.pace.next_at)
                self.news[visited.id] = None
        self.renew_demand(host)

    def _review(self, host: HostState) -> None:
        """Review a host whose parts changed, and the hosts that waited for it."""
        self.dirty[host.id] = None
        if host.clan is not None:
            self.dirty.update(dict.fromkeys(self.groups.take_refused(host)))

    # ------------------------------------------------------------ processes

    def process_joined(self, name: ProcessName, now: float) -> None:
        """Review all hosts, because they may get a better owner now."""
        for host in self.hosts.values():
            if name in host.inherited:
                host.settle_inherited(name)
                self.assume_start(host.id, now)  # its last results may still be on their way
            self._review(host)

    def process_lost(self, name: ProcessName, last_start_at: float) -> None:
        """Close the parts of a silent process.

        It starts nothing after `last_start_at` but finishes its requests, so its parts stay in use
        until the longest attempt must be over.
        """
        for host in self.hosts.values():
            part = host.parts.get(name)
            if part is None:
                continue
            self.assume_start(host.id, last_start_at)
            part.lose(last_start_at, self._longest_attempt_s(host))
            host.forget_ahead()
            self._uncount(host, name)
            self._review(host)

    def process_gone(self, name: ProcessName, now: float) -> None:
        """Remove the parts of a process that is certainly dead: it said BYE or was replaced."""
        for host in self.hosts.values():
            part = host.drop_part(name)
            inherited = name in host.inherited
            if inherited:  # so there is no need to wait for the lease's end
                host.settle_inherited(name)
                self.assume_start(host.id, now)
            elif part is not None and part.held:
                self.assume_start(host.id, now)
                host.forget_ahead()
            self._uncount(host, name)
            if inherited or part is not None:
                self._review(host)

    def confirm(self, name: ProcessName, host_id: int, revision: int, now: float) -> None:
        """Note that a worker uses its current grant: what it gave up is free now."""
        host = self.hosts.get(host_id)
        part = host.parts.get(name) if host else None
        if host is None or part is None or part.revision != revision:
            return
        if part.in_use > part.granted:
            part.confirm()
            if part.granted == 0:
                host.drop_part(name)
                self.assume_start(host.id, now)  # its last results may still be on their way
            self._review(host)

    def owners_stored(self, owners: list[tuple[int, tuple[ProcessName, ...]]]) -> None:
        """Note that the owners of these hosts are committed, and review the hosts."""
        for host_id, names in owners:
            host = self.hosts.get(host_id)
            if host is not None:
                host.owners_stored(frozenset(names))
                self.dirty[host_id] = None

    def adopt(self, worker: WorkerInfo, host_id: int, in_use: int, now: float) -> None:
        """Keep a host at a worker that said HELLO and still holds requests of it.

        The worker runs at most `in_use` of them at a time until the WELCOME arrives, so this many
        count until it confirms the grant of the WELCOME. A stored owner keeps its host unless
        another process may start requests there too; one of several owners keeps what it had.
        """
        host = self.hosts.get(host_id)
        if host is None:
            self._strangers[host_id] = (worker.name, now + PERMISSION_S + UNKNOWN_ATTEMPT_S)
            return
        part = host.ensure_part(worker.name)
        part.adopt(in_use)
        self.groups.suspect(host)
        if host.clan is not None:
            if worker.name in host.stored_owners:
                host.clan.owner = host.clan.owner or worker.name
            if host.clan.owner != worker.name:
                return
            if part.granted == 0 and self.groups.blocked_until(host, worker.name, now) is not None:
                return
        if worker.name in host.stored_owners and part.granted == 0:
            others = [other_part for name, other_part in host.parts.items() if name != worker.name]
            want = host.demand.concurrency
            if host.demand.spread and (others or host.inherited):
                want = in_use
            elif host.inherited or any(other_part.gone_at == math.inf for other_part in others):
                want = 0  # the other processes may still start requests
            if want:
                self.groups.keep_owner(host, worker.name)
                self._raise(host, part, want)
        if part.granted:
            self._count(host, host.counted | {worker.name})

    def grants_for_welcome(self, worker: WorkerInfo, now: float) -> list[Grant]:
        """Return the grants of a worker that joins; all its earlier grants are void."""
        grants = []
        for host in self.hosts.values():
            part = host.parts.get(worker.name)
            if part is not None:
                part.welcome(self._next_revision())
                if part.in_use > part.granted:
                    self._lowering[(host.id, worker.name)] = now
                grants.append(self.grant_of(host, worker.name, now))
        return grants

    def grant_of(self, host: HostState, name: ProcessName, now: float) -> Grant:
        """Return the grant message of a host for one of its owners."""
        part = host.parts[name]
        return Grant(
            host=host.id,
            origin=host.origin,
            revision=part.revision,
            concurrency=part.granted,
            interval_s=host.part_interval_s(part),
            burst=host.demand.burst,
            next_in_s=max(0.0, part.first_at - now),
            manner=host.manner,
            robots=self._robots_for(host, part, now + self.clock_offset),
            groups=self.groups.shares(host, name, now) if host.groups else [],
            address=host.address if host.pins else None,
        )

    def _robots_for(self, host: HostState, part: Part, utc: float) -> RobotsFile | None:
        """Return the robots.txt once for each owner; if the message is lost, the owner fetches
        it."""
        if host.robots is None or part.told_robots:
            return None
        part.robots_known()
        if host.robots.until <= utc:
            return None
        return RobotsFile(host.robots.status, host.robots.body, host.robots.until - utc)

    # ------------------------------------------------------------ settling

    def settle(self, host: HostState, usable: list[WorkerInfo], now: float) -> Settlement:
        """Move the parts of a host towards what they should be."""
        result = Settlement()
        if host.storing:
            return result
        host.drop_unused_parts(now)
        desired = shares(host.demand, self._rank(host, usable))
        self._count(host, set(desired))
        if desired:
            host.forget_target(desired)
        for name, part in host.parts.items():
            if part.granted > desired.get(name, 0):
                part.lower_to(desired.get(name, 0), self._next_revision())
                self._lowering[(host.id, name)] = now
                result.lowered.append(name)
        if not host.demand.spread and self._another_may_start(host, desired):
            return result  # its confirmation or loss calls this again
        if self._owners_left(host, desired, now):
            host.store_owners()
            result.owners = tuple(sorted(desired))
            return result
        room = host.room(now)
        if room <= 0:
            result.look_again_at = self._next_review_at(host, now)
            return result
        increases = {
            name: want
            for name, want in desired.items()
            if name not in host.parts or host.parts[name].granted < want
        }
        if increases and host.clan is not None:
            until = self.groups.blocked_until(host, next(iter(increases)), now)
            if until is not None:
                result.look_again_at = until
                return result
        if increases and not host.stored_owners.issuperset(increases):
            host.store_owners()
            result.owners = tuple(sorted({*host.parts, *increases}))
            return result
        for name, want in increases.items():
            part = host.ensure_part(name)
            if part.granted == 0:
                host.delay_first_start(part, now)
            if host.groups:
                self.groups.claim(host, name, now)
            self._raise(host, part, want)
            result.raised = True
        return result

    def _another_may_start(self, host: HostState, desired: dict[ProcessName, int]) -> bool:
        """Return whether a former owner has not confirmed that it starts nothing more.

        Even with room, a second owner beside it would break the pace.
        """
        return any(
            name not in desired and part.in_use > part.granted and part.gone_at == math.inf
            for name, part in host.parts.items()
        )

    def _owners_left(self, host: HostState, desired: dict[ProcessName, int], now: float) -> bool:
        """Return whether stored owners gave up the host, so that a new leader would wait in
        vain."""
        if not desired or host.parts.keys() != desired.keys():
            return False
        if host.stored_owners.issubset(desired):
            return False
        if host.is_inherited(now):
            return False
        return all(part.granted == desired[name] for name, part in host.parts.items())

    def overdue_confirmations(self, now: float) -> list[tuple[int, ProcessName]]:
        """Return lowered grants to send again: the message or its answer was lost."""
        overdue = []
        for (host_id, name), sent_at in list(self._lowering.items()):
            part = self.hosts[host_id].parts.get(name)
            if part is None or part.in_use <= part.granted:
                del self._lowering[(host_id, name)]
            elif now - sent_at >= CONFIRM_AGAIN_S:
                self._lowering[(host_id, name)] = now
                overdue.append((host_id, name))
        return overdue

    def _rank(self, host: HostState, usable: list[WorkerInfo]) -> list[ProcessName]:
        """Return workers in rendezvous order; a usable owner stays, full workers come last."""
        names = [worker.name for worker in usable]
        if host.clan is not None:
            return self._rank_clan(host, host.clan, usable, names)
        if not host.demand.spread:
            wish = host.wanted_owner
            if wish and (
                chosen := [candidate.name for candidate in usable if candidate.id == wish]
            ):
                return chosen
            if host.target in names:
                return [host.target]
            owner = next((name for name in names if name in host.counted), None)
            if owner is not None and not self._is_overloaded(owner, names):
                return [owner]
            best = self._without_full(sort_by_score(host.origin, names))
            # Move only to a worker with fewer hosts; otherwise the host would move back and forth.
            if owner is not None and self._owned.get(best[0], 0) + 1 >= self._owned[owner]:
                return [owner]
            return best
        return sort_by_score(host.origin, names)

    def _rank_clan(
        self, host: HostState, clan: Clan, usable: list[WorkerInfo], names: list[ProcessName]
    ) -> list[ProcessName]:
        """Return the one owner for all hosts of a clan; it stays while it is usable."""
        if host.wanted_owner:
            clan.wish = host.take_wish()
        wished = [candidate.name for candidate in usable if candidate.id == clan.wish]
        had = (clan.owner, *(group.owner for group in host.groups), *sorted(host.counted))
        stays = [name for name in had if name in names]
        chosen = (wished or stays or self._without_full(sort_by_score(clan.name, names)))[:1]
        if chosen and chosen[0] != clan.owner:
            self.dirty.update(dict.fromkeys(self.groups.set_owner(clan, chosen[0])))
        return chosen

    def _without_full(self, names: list[ProcessName]) -> list[ProcessName]:
        """Return the names in the same order without full workers, unless all are full."""
        most = self._most_owned(names, sum(self._owned.values()) + 1)
        return [name for name in names if self._owned.get(name, 0) < most[name]] or names

    def _is_overloaded(self, name: ProcessName, names: list[ProcessName]) -> bool:
        """Return whether a worker owns far more hosts than its share."""
        most = self._most_owned(names, sum(self._owned.values()))
        return self._owned.get(name, 0) > most[name]

    def _most_owned(self, names: list[ProcessName], total: int) -> dict[ProcessName, int]:
        """Return how many of `total` hosts each worker should own at most, by its capacity."""
        capacities = [self.capacity[name] for name in names if name in self.capacity]
        usual = sum(capacities) / len(capacities) if capacities else 1.0
        slots = {name: self.capacity.get(name, usual) for name in names}
        share = LOAD_FACTOR * total / sum(slots.values()) if names else 0.0
        return {name: math.ceil(round(share * slots[name], 9)) for name in names}

    def _next_review_at(self, host: HostState, now: float) -> float:
        """Return when the first process that may still fetch must have stopped."""
        moments = [part.gone_at for part in host.parts.values()]
        if host.inherited and host.inherited_until > now:
            moments.append(host.inherited_until)
        return min(moments, default=math.inf)

    def _raise(self, host: HostState, part: Part, want: int) -> None:
        """Grant as much of `want` as the other parts leave."""
        others = sum(
            other_part.in_use for other_part in host.parts.values() if other_part is not part
        )
        part.raise_to(min(want, host.demand.concurrency - others), self._next_revision())

    def _next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def _count(self, host: HostState, names: set[ProcessName]) -> None:
        """Set the owners for whose load the host counts."""
        for name in host.counted - names:
            self._owned[name] -= 1
        for name in names - host.counted:
            self._owned[name] = self._owned.get(name, 0) + 1
        host.count_owners(names)

    def _uncount(self, host: HostState, name: ProcessName) -> None:
        """Remove a process from the owners for whose load the host counts."""
        self._count(host, host.counted - {name})

    def _longest_attempt_s(self, host: HostState) -> float:
        """Return how long a request to the host may run."""
        active = [self._runs.get(run) for run in host.runs]
        return (
            max((active_run.spec.attempt_s for active_run in active if active_run), default=0.0)
            + 1.0
        )

    def assume_start(self, host_id: int, moment: float) -> None:
        """Delay the next start, as if a request that nobody reported had started at `moment`."""
        host = self.hosts[host_id]
        host.put_off_until(moment + host.demand.interval_s)
        self.groups.may_have_started(host, moment)

    def check(self) -> None:
        for host in self.hosts.values():
            if host.id not in self.dirty:  # otherwise the next plan adapts its parts to its demand
                host.check()
        self.groups.check(self.dirty)
        owned = sum(self._owned.values())
        assert owned == sum(len(host.counted) for host in self.hosts.values()), (
            "hosts per worker are counted"
        )
