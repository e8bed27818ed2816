"""The memory of a leader, and the operations that several of its parts share.

It is built from the database at each takeover and dropped when leadership ends, so that nothing of
an older epoch remains.

Only this module writes `LeaderState` and `RunTally`; other modules read their fields and call the
methods here (`tests/architecture` checks it). Its components (`roster`, `planner`, `frontier`, ...)
have methods of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from zcrawl.dispatch.leases import Lease, Leases, Token
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.dispatch.runs import ActiveRun, Runs
from zcrawl.dispatch.secret_book import Vault
from zcrawl.frontier.frontier import Frontier
from zcrawl.frontier.seen import SeenTable
from zcrawl.master.catalogue import Catalogue
from zcrawl.master.crash_guard import Mishaps
from zcrawl.master.events import MasterEffects, Measured, Note, SendToWorker
from zcrawl.master.reloads import Reloads
from zcrawl.master.watch import Watch
from zcrawl.mesh.messages import Body, Cancel, Drain, RunConfigs
from zcrawl.model.people import Quotas
from zcrawl.model.process_name import ProcessName
from zcrawl.model.rows import HostRow, NewLink, QueuedRow, RunRow
from zcrawl.model.spec import JobSpec, Retention, ScheduleDefaults
from zcrawl.result.receive import Receiver
from zcrawl.standalone.listed import listed_resources
from zcrawl.standalone.shares import Shares
from zcrawl.store.commands import DrainRow, Loaded, SecretRow, WishRow
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.shell_rights import NO_COMMANDS, ShellRights

ENDED_RUNS = 20
# CANCEL is sent again with each heartbeat for so long: a lost one would let a worker fetch for a
# run that was deleted.
CANCEL_AGAIN_S = 3.0


class RunTally(msgspec.Struct):
    """Answers by status and failures by reason, since this leader took over."""

    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    failed: Counter[str] = msgspec.field(default_factory=Counter)
    postponed: str = ""  # why the last page was postponed; empty: it was not

    def count_status(self, status: int) -> None:
        self.statuses[str(status)] += 1

    def count_failure(self, reason: str) -> None:
        self.failed[reason] += 1

    def note_postponed(self, why: str) -> None:
        """Keep why the last page was postponed; empty: it was not."""
        self.postponed = why


def to_worker(worker: WorkerInfo, body: Body, number: int | None = None) -> SendToWorker:
    """Return a numbered message to the current process of a worker."""
    number = worker.next_number() if number is None else number
    return SendToWorker(worker.id, worker.incarnation, worker.route, body, number)


class LeaderState:
    """Everything that the leader knows in memory."""

    def __init__(
        self, me: str, epoch: int, clock_offset: float, seen: SeenTable, catalogue: Catalogue
    ) -> None:
        self.me = me
        self.catalogue = catalogue
        self.epoch = epoch
        # The highest request number in the database when this epoch began; None: not known.
        self.newest_seq: int | None = None
        self.clock_offset = clock_offset  # UTC = now + clock_offset
        self.roster = Roster()
        self.leases = Leases()
        self.frontier = Frontier()
        self.runs = Runs()
        self.planner = Planner(epoch, self.roster, self.leases, self.frontier, self.runs)
        self.planner.granter.clock_offset = clock_offset
        self.receiver = Receiver({})
        self.seen = seen
        # Rows whose result came without a lease: not leased again until it is committed.
        self.withheld: dict[int, QueuedRow | None] = {}
        # process → seq → (run, host): fetched by that process, result not received yet
        self.promised: dict[ProcessName, dict[int, tuple[int, int]]] = {}
        self.drains: dict[str, int] = {}  # workers that get no work → life of their supervisor
        self.lives: dict[str, int] = {}  # worker → the last reported life of its supervisor
        self.wishes: dict[int, str] = {}  # host → worker that a person chose
        self.settled_at = math.inf  # when all living workers must have said HELLO
        # worker → ended run → until when CANCEL is sent again
        self.cancelled: dict[str, dict[int, float]] = {}
        self.sweeps: dict[int, int] = {}  # ended runs whose rows are still to be swept → job
        self.recalls: dict[
            int, None
        ] = {}  # runs that must still admit pages known from earlier runs
        self.feeds: dict[int, None] = {}  # runs that must still admit items of another run
        self.run_ends: list[RunRow] = []  # runs whose end `firing` has not seen
        self.counters: Counter[str] = Counter()
        self.beat_soon = False  # a worker has just joined: the next BEAT must not wait
        self.ended: dict[int, RunRow] = {}  # recently ended runs, for displays
        self.tallies: dict[int, RunTally] = {}  # since takeover, for displays
        self.quotas: dict[str, Quotas] = {}  # of users; loaded at takeover
        self.allow_private = False  # jobs may reach private addresses (submit.private)
        self.vouches = False  # typed URLs open their own hosts (submit.private)
        self.fires = True  # schedules start runs while this master leads
        self.allow_code = False  # jobs may bring a spider's file (submit.code)
        self.shell = NO_COMMANDS  # commands that jobs may run
        self.outputs = OutputRights()  # where jobs may have their items written
        self.retention = Retention()  # of jobs that have no rules of their own
        self.schedule_defaults = ScheduleDefaults()  # of jobs that do not say it
        self.shares: Shares | None = None  # of a standalone node; None: all is this leader's
        self.secrets = self.runs.secrets
        self.watch = Watch(me)
        self.reloads = Reloads()
        self.mishaps = Mishaps()  # shared by all epochs of this master
        self.measured = Measured(0, 0.0)

    # ------------------------------------------------------------ as it begins

    def begin_after(self, newest_seq: int | None) -> None:
        """Set the highest request number of the database at the start of this epoch."""
        self.newest_seq = newest_seq

    def allow(self, *, private: bool, code: bool, shell: ShellRights) -> None:
        """Set what jobs may do on this cluster, stored jobs included."""
        self.shell = self.runs.shell = shell
        self.allow_private = self.runs.open_private = private
        self.allow_code = self.runs.open_code = code

    def change_rights(
        self, *, private: bool, code: bool, shell: ShellRights, effects: MasterEffects
    ) -> None:
        """Set what jobs may do from now on. A run that loses a right that it needs waits, and goes
        on when it has it again."""
        self.allow(private=private, code=code, shell=shell)
        for active in self.runs.active.values():
            dispatched = active.dispatches
            active.change_rights(private=private, code=code, shell=shell)
            self._announce(active, effects)
            if dispatched and not active.dispatches:
                self.withdraw(self.leases.of_run(active.row.id), effects)
            elif active.dispatches and not dispatched:
                self.planner.run_freed(active.row.id)

    def use_vault(self, vault: Vault, effects: MasterEffects) -> None:
        """Set the keys that open stored secrets."""
        self.secrets.vault = vault
        self.change_secrets(list(self.secrets.rows.values()), effects)

    def change_secrets(self, rows: Iterable[SecretRow], effects: MasterEffects) -> None:
        """Set the stored secrets. A run that lacks one waits, and goes on when it has it."""
        before = dict(self.secrets.rows)
        self.secrets.load(rows)
        for active in self.runs.active.values():
            if not active.secret_names:
                continue
            dispatched = active.dispatches
            active.secrets_wait = self.secrets.problem(active.secret_names)
            if any(before.get(n) != self.secrets.rows.get(n) for n in active.secret_names):
                active.revision += 1
            if active.dispatches:
                self._announce(active, effects)
            if dispatched and not active.dispatches:
                self.withdraw(self.leases.of_run(active.row.id), effects)
            elif active.dispatches and not dispatched:
                self.planner.run_freed(active.row.id)

    def join_master(
        self,
        mishaps: Mishaps,
        outputs: OutputRights,
        retention: Retention,
        schedule_defaults: ScheduleDefaults,
        label_limits: Mapping[str, int],
        *,
        vouches: bool,
        fires: bool,
        shares: Shares | None = None,
    ) -> None:
        """Take over what the master keeps through all its epochs."""
        self.fires = fires
        self.shares = shares
        self.mishaps = mishaps
        self.outputs = outputs
        self.retention = retention
        self.schedule_defaults = schedule_defaults
        self.limit_labels(label_limits)
        self.vouches = vouches

    def keep_runs(self, retention: Retention) -> None:
        """Set which runs are kept of jobs that do not say it."""
        self.retention = retention

    def limit_labels(self, limits: Mapping[str, int]) -> None:
        """Set how many tasks at a time may need a label."""
        self.planner.tasks.labels.change(limits)

    def schedule_by(self, defaults: ScheduleDefaults) -> None:
        """Set what counts for schedules of jobs that do not say it."""
        self.schedule_defaults = defaults

    def own(self, links: tuple[NewLink, ...], spec: bytes, canonical: int) -> tuple[NewLink, ...]:
        """Return links with the reason to skip those that another standalone node owns. `spec` and
        `canonical` are those of their run."""
        if self.shares is None:
            return links
        return self.shares.mark(links, listed_resources(spec, canonical))

    # ------------------------------------------------------------ for those who watch

    def count(self, name: str) -> None:
        self.counters[name] += 1

    def process_measured(self, measured: Measured) -> None:
        """Store the resource use of this process."""
        self.measured = measured

    def tally(self, run: int) -> RunTally:
        """Return the tally of a run; a new one is empty."""
        tally = self.tallies.get(run)
        if tally is None:
            tally = self.tallies[run] = RunTally()
        return tally

    def postponed(self, run: int) -> str:
        """Return why the last page of a run was postponed; empty: it was not."""
        tally = self.tallies.get(run)
        return "" if tally is None else tally.postponed

    # ------------------------------------------------------------ workers that come

    def want_beat(self) -> None:
        """Send a BEAT soon, because a worker waits for its permission."""
        self.beat_soon = True

    def set_quotas(self, quotas: Mapping[str, Quotas]) -> None:
        """Use these quotas from the next request on; a user without them has no limit."""
        self.quotas = dict(quotas)

    def put_quotas(self, user: str, quotas: Quotas) -> None:
        self.quotas[user] = quotas

    def beat_sent(self) -> None:
        self.beat_soon = False

    def await_greetings(self, until: float) -> None:
        """Set when all living workers must have said HELLO."""
        self.settled_at = until

    def supervisor_heard(self, worker: str, life: int) -> None:
        """Store the life of the supervisor that a worker reported."""
        self.lives[worker] = life

    # ------------------------------------------------------------ runs and rows

    def load(self, loaded: Loaded, now: float, effects: MasterEffects) -> None:
        """Fill the window from the database, at takeover and reload."""
        for row in loaded.runs:
            self.put_run(row, now, effects)
        for run in self.runs.active.keys() - {row.id for row in loaded.runs}:
            self.runs.forget(run)
            self.recalls.pop(run, None)
            self.feeds.pop(run, None)
            self._end_run(run, now, effects)
        for host in loaded.hosts:
            self._load_host(host, now)
        self.set_wishes(loaded.wishes)
        self.change_secrets(loaded.secrets, effects)
        stored = {row.worker: row for row in loaded.drains}
        for worker in self.drains.keys() | stored.keys():
            self.set_drain(worker, stored.get(worker), effects)
        self.frontier.load(loaded.lanes)
        for lane in loaded.lanes:
            self.planner.lane_opened(lane.run, lane.host)
        for count in loaded.pages:
            host_state = self.planner.hosts.get(count.host)
            if host_state is not None:
                self.planner.verdicts.set_pages(count.run, host_state, count.queued)
        for run in loaded.sweeps:
            self.sweeps.setdefault(run, 0)

    def admit(self, rows: list[QueuedRow], hosts: list[HostRow], now: float) -> None:
        for host in hosts:
            self._load_host(host, now)
        for row in rows:
            # A refill may have read the row before the commit was reported here.
            if not self.is_taken(row.seq):
                self.frontier.insert(row)
                self.planner.lane_opened(row.run, row.host)

    def _load_host(self, row: HostRow, now: float) -> None:
        is_new = row.id not in self.planner.hosts
        host = self.planner.granter.load_host(row, self.clock_offset, now)
        if is_new and self.wishes:
            host.wish_owner(self.wishes.get(row.id, ""))

    def give_back(self, lease: Lease, due_at: float = 0.0) -> None:
        """Close a lease and queue its request again."""
        self.planner.close_lease(lease)
        if self.runs.get(lease.row.run) is not None:
            self.frontier.insert(lease.row, due_at)
            self.planner.lane_opened(lease.row.run, lease.row.host)

    def close_lease(self, seq: int) -> Lease | None:
        """Close the lease of a settled request."""
        lease = self.leases.by_seq.get(seq)
        if lease is not None:
            self.planner.close_lease(lease)
        return lease

    def put_run(self, row: RunRow, now: float, effects: MasterEffects) -> None:
        """Store the run's new row; forget the run if it ended."""
        active_before = self.runs.get(row.id)
        dispatched = active_before is not None and active_before.dispatches
        spec = active_before.spec if active_before is not None else None
        priority = active_before.spec.priority if active_before is not None else None
        active = self.runs.put(row)
        if active is not None and not active.refusal and row.recall is not None:
            self.recalls[row.id] = None
        elif self.recalls:
            self.recalls.pop(row.id, None)
        if active is not None and not active.refusal and row.feed_at is not None:
            self.feeds[row.id] = None
        elif self.feeds:
            self.feeds.pop(row.id, None)
        if active is not None:
            if spec is not None and active.spec is not spec:
                self._spec_changed(active, spec, effects)
            elif dispatched and not active.dispatches:
                self.withdraw(self.leases.of_run(row.id), effects)
            if priority is not None and active.spec.priority != priority:
                self.planner.priority_changed(row.id)
            if not dispatched:
                self.planner.run_freed(row.id)
            return
        if active_before is None and row.id in self.sweeps:
            return
        self.sweeps[row.id] = row.job
        self.ended[row.id] = row
        self.run_ends.append(row)
        if active_before is not None:
            counters = row.counters
            pages = f"{counters.done} {'page' if counters.done == 1 else 'pages'}"
            text = f"{row.name} {row.state}: {pages}, {counters.failed} failed (run {row.id})"
            effects.append(Note("run_ended", text, row.id))
        for old in list(self.ended)[:-ENDED_RUNS]:
            del self.ended[old]
            self.tallies.pop(old, None)
            self.watch.forget_run(old)
        self._end_run(row.id, now, effects)

    def _spec_changed(self, active: ActiveRun, before: JobSpec, effects: MasterEffects) -> None:
        """Go by the new values of a run at once, here and on its workers."""
        run, spec = active.row.id, active.spec
        if spec.politeness != before.politeness or not active.dispatches:
            self._pace_changed(run, effects)
        if spec.scope.max_pages != before.scope.max_pages:
            self.planner.run_freed(run)
        if spec.scope.max_pages_per_host != before.scope.max_pages_per_host:
            self.planner.verdicts.limit_changed(run)
        self._announce(active, effects)

    def _announce(self, active: ActiveRun, effects: MasterEffects) -> None:
        """Send the run's newest form to the workers that have an older one. Others get it with
        their first URL of the run."""
        run = active.row.id
        for worker in self.roster.workers.values():
            if worker.present and worker.runs.get(run, active.revision) != active.revision:
                worker.runs[run] = active.revision
                effects.append(to_worker(worker, RunConfigs([active.config()])))

    def _pace_changed(self, run: int, effects: MasterEffects) -> None:
        """Send the new pace to the run's workers and take back what exceeds it."""
        self.withdraw(self.leases.of_run(run), effects)
        for host in self.planner.hosts.values():
            if run in host.runs:
                self.planner.granter.renew_demand(host)
                self.planner.granter.news[host.id] = None
                self.planner.wake(host.id)

    def next_feeds(self) -> list[int]:
        """Return the runs that must still admit items, the one whose turn it is first."""
        runs = list(self.feeds)
        if len(runs) > 1:
            del self.feeds[runs[0]]
            self.feeds[runs[0]] = None
        return runs

    def take_run_ends(self) -> list[RunRow]:
        """Return the runs that have ended since the last call."""
        ends, self.run_ends = self.run_ends, []
        return ends

    def withdraw(self, leases: Iterable[Lease], effects: MasterEffects) -> None:
        """Ask workers to give back those of these requests that have not started."""
        tokens: dict[str, list[Token]] = {}
        workers = {}
        for lease in leases:
            if not lease.received and lease.worker.present:
                workers[lease.worker.name] = lease.worker
                tokens.setdefault(lease.worker.name, []).append(lease.token)
        for name, worker in workers.items():
            effects.append(to_worker(worker, Cancel([], [], tokens[name])))

    def forbidden_leases(self, worker: WorkerInfo, now: float) -> list[Lease]:
        """Return requests of a worker that have not started and must not start now.

        Their run is paused or their host is outside its hours. The message about it was lost, or
        the hours ended since.
        """
        active = self.runs.active.values()
        paused = {active_run.row.id for active_run in active if not active_run.dispatches}
        if not worker.unstarted or not (
            paused or any(active_run.spec.politeness.hours for active_run in active)
        ):
            return []
        return [
            lease
            for lease in self.leases.of_worker(worker)
            if lease.token in worker.unstarted
            and (lease.row.run in paused or self.planner.is_closed(lease.row.host, now))
        ]

    def _end_run(self, run: int, now: float, effects: MasterEffects) -> None:
        """Remove an ended run from memory and from the workers."""
        self.frontier.drop_run(run)
        for lease in self.leases.of_run(run):
            self.planner.cancel_lease(lease, now)
        self.planner.run_ended(run)
        for seq, held in list(self.withheld.items()):
            if held is not None and held.run == run:
                self.withheld[seq] = None
        for worker in self.roster.workers.values():
            if run in worker.runs and worker.present:
                del worker.runs[run]
                effects.append(to_worker(worker, Cancel([run])))
                self.cancelled.setdefault(worker.id, {})[run] = now + CANCEL_AGAIN_S

    def cancel_again(
        self, worker: WorkerInfo, holds: bool, now: float, effects: MasterEffects
    ) -> None:
        """Cancel runs that have just ended once more, if the worker holds requests. A run that goes
        on again, after a retry, is not among them."""
        ended = self.cancelled.get(worker.id)
        if ended is None:
            return
        due = {run: until for run, until in ended.items() if until > now}
        due = {run: until for run, until in due.items() if run not in self.runs.active}
        self.cancelled[worker.id] = due
        if due and holds:
            effects.append(to_worker(worker, Cancel(sorted(due))))
        elif not due:
            del self.cancelled[worker.id]

    def set_drain(self, worker: str, row: DrainRow | None, effects: MasterEffects) -> None:
        """Apply the stored drain of a worker; None: it may get work."""
        if row is None:
            self.drains.pop(worker, None)
        else:
            self.drains[worker] = row.life
        info = self.roster.workers.get(worker)
        if info is None or info.drained is (row is not None):
            return
        self.roster.set_drained(info, row is not None)
        self.planner.worker_drained(info)
        text = "gets no work until it is undrained" if info.drained else "may work again"
        effects.append(
            Note("worker_drained" if info.drained else "drain_ended", f"{worker} {text}")
        )
        if info.drained and info.present:
            effects.append(to_worker(info, Drain(False)))

    def set_wishes(self, wishes: Iterable[WishRow]) -> None:
        """Apply the owners that people chose for hosts."""
        stored = {row.host: row.worker for row in wishes}
        for id, worker in stored.items():
            host = self.planner.hosts.get(id)
            if host is not None and self.wishes.get(id) != worker:
                host.wish_owner(worker)
                self.planner.granter.dirty[id] = None
        self.wishes = stored

    def is_lost(self, lease_epoch: int, seq: int) -> bool:
        """Return whether an earlier leader's lease is for a row that this database never had.

        The database was restored from an older copy, and the number now belongs to another row.
        """
        if self.newest_seq is None:
            return False
        return lease_epoch < self.epoch and seq > self.newest_seq

    def is_taken(self, seq: int) -> bool:
        """Return whether a queued row must stay out of the window: leased, on trial or settling."""
        return self.leases.holds(seq) or seq in self.planner.trials or seq in self.withheld

    def swept(self, run: int) -> None:
        """Note that all rows of an ended run are deleted."""
        self.sweeps.pop(run, None)

    # ------------------------------------------------------------ withheld rows

    def withhold(self, run: int, host: int, seq: int) -> None:
        if seq not in self.withheld:
            on_trial = self.planner.forget_trial(host, seq)
            self.withheld[seq] = self.frontier.remove(run, host, seq) or on_trial

    def quarantine(self, seq: int) -> None:
        """Withhold a row until its quarantine is stored."""
        self.withheld[seq] = None

    def forget_withheld(self, seq: int) -> QueuedRow | None:
        """Stop withholding a row; return it as it was queued, if known."""
        return self.withheld.pop(seq, None)

    def promise(self, process: ProcessName, run: int, host: int, seq: int) -> None:
        """Note that a process fetched a request and will deliver its result."""
        self.withhold(run, host, seq)
        self.promised.setdefault(process, {})[seq] = (run, host)

    def promise_kept(self, process: ProcessName, seq: int) -> tuple[int, int]:
        """Forget the promise of an arrived result; return its run and host, or zeros."""
        return self.promised.get(process, {}).pop(seq, (0, 0))

    def promises_broken(self, process: ProcessName) -> None:
        """Queue again what a dead process did not deliver."""
        for seq, (run, host) in self.promised.pop(process, {}).items():
            self.release(run, host, seq)

    def keep_withheld_rows(self, rows: Iterable[QueuedRow]) -> None:
        """Keep withheld rows that a refill read, so that `release` can queue them."""
        if self.withheld:
            for row in rows:
                if row.seq in self.withheld:
                    self.withheld[row.seq] = row

    def release(self, run: int, host: int, seq: int) -> None:
        """Queue a withheld row again whose result was not used."""
        row = self.withheld.pop(seq, None)
        if row is None:
            self.frontier.reconsider(run, host, seq)
        elif self.runs.get(row.run) is not None and not self.is_taken(seq):
            due_at = row.due_at - self.clock_offset if row.due_at else 0.0
            self.frontier.insert(row, due_at)  # a retry keeps its moment
            self.planner.lane_opened(row.run, row.host)

    def utc(self, now: float) -> float:
        return now + self.clock_offset

    def check(self, now: float) -> None:
        self.roster.check()
        self.leases.check()
        self.frontier.check()
        self.planner.check()
        self.receiver.check()
        leased = self.leases.by_seq.keys()
        for lane in self.frontier.lanes.values():
            assert leased.isdisjoint(lane.ready) and leased.isdisjoint(lane.delayed), (
                "a leased request is not in the frontier"
            )
        assert leased.isdisjoint(self.withheld), "a withheld request has no lease"
        for run in {lease.row.run for lease in self.leases.by_seq.values()}:
            assert self.runs.get(run) is not None, "only active runs have leases"
