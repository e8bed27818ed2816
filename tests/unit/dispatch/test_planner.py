"""Which request goes to which worker now."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.unit.machine_tools import host_row, row, run_row, spec, worker_info
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.roster import Roster
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.frontier import Frontier
from zcrawl.mesh.messages import Assignment
from zcrawl.mesh.timing import LOOKAHEAD_S
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import QueuedRow, RunCounters
from zcrawl.model.spec import Politeness, Scope
from zcrawl.model.states import RunState

FREE = Politeness(robots=False, rate=0, concurrency=50, spread=False)
SPREAD = Politeness(robots=False, rate=0, concurrency=50, spread=True)


class Office:
    """A planner and everything that it reads; what it sends is collected."""

    def __init__(
        self, politeness: Politeness = FREE, workers: int = 1, scope: Scope | None = None
    ) -> None:
        self.roster, self.leases = Roster(), Leases()
        self.frontier, self.runs = Frontier(), Runs()
        self.planner = Planner(1, self.roster, self.leases, self.frontier, self.runs)
        self.spec = spec(politeness, scope)
        self.runs.put(run_row(1, self.spec))
        self.now = 100.0
        self.seqs = itertools.count(1)
        for n in range(1, workers + 1):
            self.join(f"w{n}")

    def join(self, name: str, slots: int = 4) -> None:
        self.roster.workers[name] = worker_info(name, slots=slots)
        self.planner.granter.process_joined(ProcessName(f"{name}#1"), self.now)

    def add(self, count: int, host: int = 1, run: int = 1) -> list[QueuedRow]:
        self.planner.granter.load_host(host_row(host), 0.0, self.now)
        rows = [row(next(self.seqs), run=run, host=host) for _ in range(count)]
        for queued_row in rows:
            self.frontier.insert(queued_row)
            self.planner.lane_opened(run, host)
        return rows

    def plan(self, after_s: float = 0.0) -> list[tuple[str, Assignment]]:
        """Plan, store owners and plan again, as the leader does."""
        self.now += after_s
        sent = []
        for _ in range(3):
            plan = self.planner.plan(self.now)
            self.planner.owners_stored(plan.owners)
            for sending in plan.sendings.values():
                sent += [(sending.worker.id, url) for url in sending.urls]
            self.planner.check()
            if not plan.owners:  # else the next round goes on with them
                self.planner.check_awake(self.now)
            self.leases.check()
            self.frontier.check()
        return sent

    def receive(self, seq: int) -> None:
        """Its result is here and committed."""
        lease = self.leases.by_seq[seq]
        self.leases.receive(lease)
        self.planner.lease_left(lease.worker, lease.row)
        self.planner.close_lease(lease)

    def crash(self, name: str) -> list[QueuedRow]:
        """The worker dies and comes back empty-handed; its rows are returned."""
        info = self.roster.workers[name]
        leases = self.leases.of_worker(info)
        rows = [lease.row for lease in leases]
        self.planner.process_gone(info.name, self.now)
        for lease in leases:
            self.planner.close_lease(lease)
        self.join(name)
        return rows


def test_an_older_result_does_not_bring_a_host_forward() -> None:
    """Two results of one host arrive in the wrong order: the later moment counts, and nothing is
    sent to the host so early that it would start before."""
    office = Office(FREE)
    office.add(1)
    office.planner.learn_pace(1, office.now + 500.0, 0.0)
    office.planner.learn_pace(1, office.now + 1.0, 0.0)
    assert office.plan() == []
    assert office.plan(400.0) == []
    assert [url.seq for _, url in office.plan(100.0)] == [1]


def test_dispatch_stops_at_the_workers_credit() -> None:
    """Rule `credit`: prefetch is 1.25 × slots; credit returns with a received result."""
    office = Office()
    office.add(30)
    sent = office.plan()
    assert len(sent) == 5
    assert office.plan(1.0) == []
    office.receive(sent[0][1].seq)
    assert len(office.plan()) == 1


def test_a_request_is_sent_once_in_order() -> None:
    """Breadth first, with its lease, its attempt number and its host's grant."""
    office = Office()
    rows = office.add(5)
    sent = [url for _, url in office.plan()]
    assert [url.seq for url in sent] == [queued_row.seq for queued_row in rows]
    assert [url.attempt for url in sent] == [1] * 5
    assert {(1, url.n) for url in sent} == {lease.token for lease in office.leases.by_seq.values()}


def test_a_worker_holds_no_more_of_one_host_than_rule_8_allows() -> None:
    """Concurrency + 5 s × rate at most, however much credit it has."""
    office = Office(Politeness(robots=False, rate=1.0, concurrency=2))
    office.join("w1", slots=100)
    office.add(50)
    sent = [pair for _ in range(60) for pair in office.plan(1.0)]
    assert len(sent) == 2 + 5, "its concurrency, and what its pace allows in 5 s"


def test_dispatch_runs_ahead_of_the_pace_by_the_lookahead_only() -> None:
    """A slow host's URLs stay in the frontier until they are nearly due."""
    office = Office(Politeness(robots=False, rate=0.5, concurrency=4))
    office.add(10)
    assert len(office.plan()) == 3, "to start after 0, 2 and 4 s"
    assert office.plan(6.0 - LOOKAHEAD_S - 0.01) == []
    assert office.planner.next_due_at() == pytest.approx(100.0 + 6.0 - LOOKAHEAD_S)
    assert len(office.plan(0.02)) == 1


def test_max_pages_is_reserved() -> None:
    """Done and in flight never exceed it; a failure gives its slot back."""
    office = Office(scope=Scope(max_pages=3))
    office.runs.put(run_row(1, office.spec, counters=RunCounters(done=1)))
    office.add(9)
    sent = office.plan()
    assert len(sent) == 2
    assert office.plan(1.0) == []
    office.receive(sent[0][1].seq)
    assert len(office.plan()) == 1


def test_a_paused_run_dispatches_nothing_and_another_goes_on() -> None:
    """Pause holds back what has not been sent; resume wakes its hosts."""
    office = Office()
    office.runs.put(run_row(2, office.spec))
    office.runs.put(run_row(1, office.spec, state=RunState.PAUSED))
    office.add(3, run=1)
    office.add(2, run=2)
    assert {url.run for _, url in office.plan()} == {2}
    office.runs.put(run_row(1, office.spec))
    office.planner.run_freed(1)
    assert len([url for _, url in office.plan() if url.run == 1]) == 3


def test_an_ended_run_leaves_its_hosts() -> None:
    """Neither its rows nor its demand nor its suspects stay."""
    office = Office(Politeness(robots=False, rate=0.5, concurrency=1))
    office.runs.put(run_row(2, spec(FREE)))
    rows = office.add(3, run=1)
    office.add(3, run=2)
    host = office.planner.hosts[1]
    assert host.demand.interval_s == 2.0, "the slowest demand wins"
    office.planner.put_on_trial(rows[0], alone=True)
    office.runs.put(run_row(1, state=RunState.CANCELLED))
    office.frontier.drop_run(1)
    office.planner.run_ended(1)
    assert host.runs == [2]
    assert host.demand.interval_s == 0.0
    assert not office.planner.trials
    assert {url.run for _, url in office.plan()} == {2}


def test_hosts_take_turns() -> None:
    """A host with a long queue does not keep the others from a worker's credit."""
    office = Office()
    for host in range(1, 6):
        office.add(20, host=host)
    hosts = [url.host for _, url in office.plan()]
    for _ in range(45):
        oldest = min(office.leases.by_seq)
        office.receive(oldest)
        hosts += [url.host for _, url in office.plan(0.01)]
    counts = Counter(hosts)
    assert sum(counts.values()) == 50
    assert max(counts.values()) - min(counts.values()) <= 4, counts


def test_runs_take_turns_on_a_host() -> None:
    """Two jobs on one host get the same share of it."""
    office = Office()
    office.runs.put(run_row(2, office.spec))
    office.add(10, run=1)
    office.add(10, run=2)
    assert sorted(url.run for _, url in office.plan()) in ([1, 1, 1, 2, 2], [1, 1, 2, 2, 2])


def test_a_spread_host_is_shared_by_load() -> None:
    """Rule `grants`: every worker gets its part."""
    office = Office(SPREAD, workers=3)
    office.add(60)
    counts = Counter(name for name, _ in office.plan())
    assert counts == {"w1": 5, "w2": 5, "w3": 5}


def test_suspects_go_one_to_a_worker() -> None:
    """Rule `crashes`: the URLs of a crash are leased again, no two of them to the same worker."""
    office = Office(SPREAD, workers=2)
    office.add(4)
    office.plan()
    suspects = office.crash("w1") + office.crash("w2")
    for suspect in suspects:
        office.planner.put_on_trial(suspect, alone=False)
    sent = office.plan()
    assert sorted(name for name, _ in sent) == ["w1", "w2"]
    office.add(20)
    healthy = office.plan()
    assert {url.seq for _, url in healthy}.isdisjoint({suspect.seq for suspect in suspects})
    assert len(healthy) == 8, "healthy ones keep it company"
    first = next(url for name, url in sent if name == "w1")
    office.receive(first.seq)
    again = [
        url.seq for _, url in office.plan() if url.seq in {suspect.seq for suspect in suspects}
    ]
    assert len(again) == 1, "the next suspect follows when one is cleared"


def test_a_second_crash_makes_a_suspect_go_alone() -> None:
    """Rule `crashes`: only a crash with one alone counts, so nothing else is in that worker's
    hands."""
    office = Office()
    office.add(30)
    busy = [url.seq for _, url in office.plan()]
    suspect = row(1_000)
    office.planner.put_on_trial(suspect, alone=True)
    for seq in busy:
        assert office.plan(0.1) == [], "the worker gets nothing more until it is empty-handed"
        office.receive(seq)
    assert [url.seq for _, url in office.plan(0.1)] == [1_000]
    assert office.plan(0.1) == [], "and nothing while it has the suspect"
    office.receive(1_000)
    assert len(office.plan(0.1)) == 5


def test_a_suspect_that_is_settled_elsewhere_frees_the_reserved_worker() -> None:
    """A late result clears it; the worker that was kept free for it goes on."""
    office = Office()
    office.add(30)
    busy = [url.seq for _, url in office.plan()]
    office.planner.put_on_trial(row(1_000), alone=True)
    office.receive(busy[0])
    assert office.plan(0.1) == []
    assert office.planner.forget_trial(1, 1_000) is not None
    office.receive(busy[1])
    assert len(office.plan(0.1)) == 2
    assert office.planner.forget_trial(1, 1_000) is None


def test_an_unusable_worker_gets_nothing() -> None:
    """Suspect and draining workers keep what they have and get nothing new."""
    office = Office(SPREAD, workers=2)
    office.roster.set_drained(office.roster.workers["w1"], True)
    office.add(30)
    assert {name for name, _ in office.plan()} == {"w2"}


def test_work_waits_for_the_first_worker() -> None:
    """Without a worker nothing is leased; the first one that joins gets it."""
    office = Office(workers=0)
    office.add(3)
    assert office.plan(1.0) == []
    assert not office.leases.by_seq
    office.join("w1")
    assert len(office.plan(0.1)) == 3


def test_a_host_is_asked_in_its_hours_only() -> None:
    """Outside of them nothing goes out, whatever else would allow it; the planner knows when."""
    office = Office(Politeness(robots=False, rate=0, hours=("22:00-06:00",)))
    office.planner.granter.clock_offset = 21 * 3600.0 - office.now  # it is nine in the evening
    office.add(3)
    assert office.plan() == []
    wait_s = office.planner.next_due_at() - office.now
    assert wait_s == pytest.approx(3600.0)
    assert office.plan(wait_s - 1.0) == []
    assert len(office.plan(1.5)) == 3


def test_as_many_hosts_are_called_as_there_is_credit() -> None:
    """Results come in batches; a thousand hosts that wait for credit are not all looked at for
    each of them, and no credit is left unused while somebody waits."""
    office = Office()
    office.join("w1", slots=40)
    for host in range(1, 201):
        office.add(2, host=host)
    sent = office.plan()
    assert len(sent) == 50, "1.25 × slots"
    looked: list[int] = []
    dispatch = office.planner._dispatch

    def counting(host: HostState, now: float) -> None:
        looked.append(host.id)
        dispatch(host, now)

    office.planner._dispatch = counting  # type: ignore[method-assign]
    for _, url in sent:
        office.receive(url.seq)
    assert len(office.plan()) == 50
    assert len(looked) < 4 * 50
