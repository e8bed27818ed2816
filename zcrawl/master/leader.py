"""The leader: all decisions of one epoch.

Built at takeover, dropped when leadership ends. It combines membership (workers), commits
(results), the desk (clients) and the planner, the lease with its beats (`stored_lease`), and does
the periodic work: refills, sweeps. `handle(MasterTicked)` follows every batch of messages; planning
and committing happen there, once for each batch.

A worker gets the configuration and code of a run before its first URL, and each later revision.
"""

from __future__ import annotations

from zcrawl.dispatch.batches import WorkerBatch
from zcrawl.dispatch.secret_book import Vault
from zcrawl.errors import CommitUnknown, Fenced, StoreDataError, StoreError
from zcrawl.frontier.seen import SeenTable
from zcrawl.master.catalogue import Catalogue
from zcrawl.master.commits import Commits
from zcrawl.master.desk.desk import Desk, request_of
from zcrawl.master.events import (
    Ask,
    ClientAsked,
    CommandDone,
    CommandFailed,
    ConfigReloaded,
    Execute,
    LinesLogged,
    MasterEffects,
    MasterEvent,
    MasterTicked,
    Measured,
    MessageCame,
    Note,
    Publish,
    QueryDone,
    QueryFailed,
    ReloadConfig,
    RightsChanged,
    StepDown,
    VaultChanged,
)
from zcrawl.master.feeding import Feeding
from zcrawl.master.firing import Firing
from zcrawl.master.history_keeper import HistoryKeeper
from zcrawl.master.leader_state import LeaderState, to_worker
from zcrawl.master.membership import Membership
from zcrawl.master.overdue import OverdueLeases
from zcrawl.master.pruning import Pruning
from zcrawl.master.recall import Recall
from zcrawl.master.rehoming import Rehoming
from zcrawl.master.reloads import MASTER, WORKER
from zcrawl.master.run_limits import RunLimits
from zcrawl.master.snapshot import published, snapshot
from zcrawl.master.stored_lease import StoredLease
from zcrawl.master.takeover import REQUEST, EpochHints, Refusals, inherit
from zcrawl.master.unplaced import UnplacedRuns
from zcrawl.mesh.messages import (
    Accept,
    Assign,
    BadBody,
    Beat,
    Bye,
    Heartbeat,
    Hello,
    LogRecords,
    MessageKind,
    Reject,
    Reloaded,
    ReloadNode,
    Result,
    RunConfigs,
    Snapshot,
    Stale,
)
from zcrawl.model.log_event import (
    BAD_BODY,
    OLD_LEADER_HEARD,
    REFILL_FAILED,
    TOLD_STALE,
    WRONG_ROUTE,
    store_event,
)
from zcrawl.model.rows import Refilled
from zcrawl.model.snapshot import ClusterSnapshot
from zcrawl.model.spec import ScheduleDefaults
from zcrawl.model.states import JobState, RunState
from zcrawl.model.vitals import Vitals
from zcrawl.store.commands import (
    AddSeeds,
    AdmitFed,
    AdmitKnown,
    Applied,
    ApplyResults,
    BeginRuns,
    ChangeJob,
    ChangePeople,
    ChangeRun,
    ChangeSecrets,
    Command,
    CommandOutcome,
    CountCrash,
    CrashCounted,
    ExtendLease,
    FireJob,
    Forget,
    Forgotten,
    GrantHosts,
    JobChanged,
    JobFired,
    KnownAdmitted,
    Loaded,
    Rehome,
    Rehomed,
    Reload,
    RetryDead,
    RunChanged,
    RunsBegun,
    SaveHistory,
    SetDrain,
    SetWish,
    SubmitJob,
    Submitted,
    Sweep,
    Swept,
    TuneRun,
)
from zcrawl.store.queries import (
    FailureGroupRows,
    Items,
    KnownPages,
    ParentRuns,
    ReadEpoch,
    ReadFailureGroups,
    ReadItems,
    ReadKnown,
    ReadParents,
    Refill,
    StoredEpoch,
)
from zcrawl.submit.shell_rights import NO_COMMANDS, ShellRights


def assignment_messages(state: LeaderState, sending: WorkerBatch, now: float) -> MasterEffects:
    """Return the messages for one worker: configuration and code first, then ASSIGN."""
    worker = sending.worker
    fresh, codes = [], []
    for url in sending.urls:
        active = state.runs.get(url.run)
        if active is not None and worker.runs.get(url.run) != active.revision:
            if url.run not in worker.runs:  # a newer revision has the same code
                codes.append(active.code())
            worker.runs[url.run] = active.revision
            fresh.append(active.config())
    effects: MasterEffects = []
    if fresh:
        effects.append(to_worker(worker, RunConfigs(fresh)))
    effects.extend(to_worker(worker, code) for code in codes if code is not None)
    planner = state.planner
    grants = [
        planner.granter.grant_of(planner.hosts[host], worker.name, now)
        for host in sending.hosts
        if worker.name in planner.hosts[host].parts
    ]
    effects.append(to_worker(worker, Assign(grants, sending.urls), sending.number))
    return effects


SNAPSHOT_S = 1.0
SWEEP_ROWS = 1_000
COMMAND_AGAIN_S = 0.5


class Leader:
    def __init__(
        self,
        me: str,
        loaded: Loaded,
        utc: float,
        now: float,
        *,
        alone: bool,
        seen: SeenTable,
        catalogue: Catalogue,
        allow_private: bool = False,
        allow_code: bool = False,
        shell: ShellRights = NO_COMMANDS,
        vault: Vault | None = None,
    ) -> None:
        self.state = LeaderState(me, loaded.epoch, utc - now, seen, catalogue)
        self.state.secrets.vault = vault or Vault()
        self.state.allow(private=allow_private, code=allow_code, shell=shell)
        self.state.begin_after(loaded.newest_seq)
        self._hints = EpochHints(loaded.epoch)
        self._began = now
        self._assigned = False
        self.overdue = OverdueLeases(self.state)
        self.membership = Membership(self.state, self.overdue)
        self.commits = Commits(self.state)
        self.desk = Desk(self.state)
        self.recall = Recall(self.state)
        self.feeding = Feeding(self.state)
        self.firing = Firing(self.state)
        self.rehoming = Rehoming(self.state)
        self.refusals = Refusals(self.state)
        self.run_limits = RunLimits(self.state)
        self.unplaced = UnplacedRuns(self.state)
        self.pruning = Pruning(self.state, now)
        self.history = HistoryKeeper(self.state, now)
        self.lease = StoredLease(self.state, now, alone=alone)
        self._snapshot_at = now + SNAPSHOT_S
        self._sweeping = False
        self._refill_at = 0.0  # earliest next refill after a failure
        self._again: list[tuple[float, Command]] = []  # idempotent commands to repeat
        self._uncertain: set[str] = set()  # clients' requests that may have been applied
        self.state.receiver.streams.clear()
        for key, number in loaded.watermarks.items():
            stream = self.state.receiver.stream(key)
            stream.committed = stream.received = number
            stream.moved_at = loaded.moved.get(key, 0.0)
        self.state.load(loaded, now, [])
        self.state.set_quotas({user.name: user.quotas for user in loaded.users})
        self.desk.inherit(loaded)
        self._notes: MasterEffects = []  # of the takeover
        self.firing.load(loaded.jobs, now, self._notes)
        self.state.watch.note("leader", f"{me} leads in epoch {loaded.epoch}", utc)
        inherit(self.state, loaded, alone=alone, now=now)
        runs = self.state.runs.active.values()
        self._old_keys = [
            (active_run.row.id, text)
            for active_run in runs
            if (text := active_run.old_keys or active_run.waits)
        ]

    # ------------------------------------------------------------ the one mutator

    def handle(self, event: MasterEvent, now: float) -> MasterEffects:
        effects: MasterEffects = []
        match event:
            case MasterTicked():  # the most frequent one
                self._on_tick(now, effects)
            case MessageCame():
                self._on_message(event, now, effects)
            case ClientAsked(client, request):
                self.desk.ask(client, request, now, effects)
            case CommandDone(command, outcome):
                self._on_done(command, outcome, now, effects)
            case CommandFailed(command, error):
                self._on_failed(command, error, now, effects)
            case QueryDone(query, tag, outcome):
                if isinstance(outcome, Refilled):
                    self._on_refilled(outcome, tag, now)
                elif isinstance(query, ReadKnown) and isinstance(outcome, KnownPages):
                    self.recall.read_done(query, tag, outcome, now, effects)
                elif isinstance(query, ReadParents) and isinstance(outcome, ParentRuns):
                    self.firing.parents_read(query, tag, outcome, now, effects)
                elif self.feeding.owns(tag) and isinstance(query, ReadItems):
                    assert isinstance(outcome, Items)
                    self.feeding.read_done(query, outcome, now, effects)
                elif isinstance(query, ReadFailureGroups) and isinstance(outcome, FailureGroupRows):
                    self.state.watch.failures.read_done(query, outcome, now)
                elif isinstance(outcome, StoredEpoch):
                    self._hints.answered(outcome, effects)
                else:
                    self.desk.answer(query, tag, outcome, now, effects)
            case QueryFailed(query, tag, error):
                if isinstance(query, Refill):
                    if tag == self._refill_tag():
                        effects.append(Note(REFILL_FAILED, f"{error.code}: {error}"))
                        self._refill_at = now + COMMAND_AGAIN_S
                        self.state.frontier.refill_failed(query.lanes)
                elif isinstance(query, ReadKnown):
                    self.recall.read_failed(tag, error, now, effects)
                elif isinstance(query, ReadParents):
                    self.firing.parents_failed(query, tag, now)
                elif self.feeding.owns(tag):
                    self.feeding.read_failed(error, now, effects)
                elif isinstance(query, ReadFailureGroups):
                    self.state.watch.failures.read_failed(now)
                elif isinstance(query, ReadEpoch):
                    self._hints.failed(error, effects)
                else:
                    self.desk.answer_failed(tag, error, effects)
            case Measured(rss_bytes, lag_ms, cpu_percent):
                self.state.process_measured(event)
                vitals = Vitals(rss_bytes, lag_ms, cpu_percent)
                self.state.catalogue.hear(self.state.me, vitals, now)
            case LinesLogged(lines):
                self.state.watch.add_lines(self.state.me, lines, self.state.utc(now), effects)
            case RightsChanged(private, code, shell):
                self.state.change_rights(private=private, code=code, shell=shell, effects=effects)
            case VaultChanged(vault):
                self.state.use_vault(vault, effects)
            case ConfigReloaded(request, report):
                me = self.state.me
                self.state.reloads.answered(request, MASTER, me, me, report)
            case _:
                pass  # `Master` handles Elected and Deposed
        if effects:
            self.state.watch.publish_notes(effects, self.state.utc(now))
        return effects

    def schedule_by(self, defaults: ScheduleDefaults, now: float) -> MasterEffects:
        """Compute the due times of all jobs by other defaults."""
        effects: MasterEffects = []
        self.state.schedule_by(defaults)
        self.firing.defaults_changed(now, effects)
        self.state.watch.publish_notes(effects, self.state.utc(now))
        return effects

    def next_wakeup(self, now: float) -> float:
        """Return the next moment at which a tick can do something."""
        state = self.state
        moments = [now + 0.5, self._snapshot_at, self.commits.next_wakeup()]
        moments.append(self.firing.next_wakeup())
        moments.extend(moment for moment, _ in self._again)
        moments.append(self.lease.next_beat_at(now))
        if self._may_dispatch(now):
            moments += [state.planner.next_due_at(), state.frontier.next_due_at()]
        return min(moments)

    def current_snapshot(self, now: float) -> ClusterSnapshot:
        return snapshot(self.state, self.commits, now)

    # ------------------------------------------------------------ messages

    def _on_message(self, came: MessageCame, now: float, effects: MasterEffects) -> None:
        message, header, route = came.message, came.message.header, came.route
        if header.epoch > self.state.epoch:
            self._hints.higher_epoch_heard(header, came.by_master, now, effects)
            return
        if not self.membership.is_from_named_process(header, route):
            effects.append(Note(WRONG_ROUTE, f"{header.source}: {MessageKind(header.kind).name}"))
            return
        if isinstance(message, BadBody):
            effects.append(Note(BAD_BODY, message.error))
            if header.kind == MessageKind.RESULT:
                self.commits.receive(header, message, now)
            return
        body = message.body
        match body:
            case Result():
                self._hear(header.source, header.incarnation, now)
                self.commits.receive(header, body, now)
            case Heartbeat():
                self.membership.heartbeat(header, body, now, effects)
            case Hello():
                self.membership.hello(header, body, route, now, effects)
            case Accept():
                self.membership.accept(header, body, now, effects)
            case Reject():
                self.membership.reject(header, body, now, effects)
            case Bye():
                self.membership.bye(header, body, now, effects)
            case LogRecords():
                self.state.watch.add_lines(header.source, body, self.state.utc(now), effects)
            case Vitals():
                self.state.catalogue.hear(header.source, body, now)
            case Reloaded(request, node, report):
                kind = MASTER if came.by_master else WORKER
                node = header.source if came.by_master else node
                self.state.reloads.answered(request, kind, header.source, node, report)
            case Stale():
                text = f"{header.source} says that this leader is an older one"
                effects.append(Note(TOLD_STALE, text))
            case Beat() | Snapshot() | ReloadNode():
                effects.append(Note(OLD_LEADER_HEARD, header.source))
            case _:
                effects.append(Note("unexpected_message", type(body).__name__))

    def _hear(self, worker: str, incarnation: int, now: float) -> None:
        info = self.state.roster.find(worker, incarnation)
        if info is not None:
            self.state.roster.hear(info, now)

    # ------------------------------------------------------------ the store's answers

    def _on_done(
        self, command: Command, outcome: CommandOutcome, now: float, effects: MasterEffects
    ) -> None:
        state = self.state
        match command, outcome:
            case ApplyResults(), Applied():
                self.commits.applied(outcome, now, effects)
            case Reload(), Loaded():
                self.commits.reloaded(outcome, now)
                state.load(outcome, now, effects)
                self.firing.load(outcome.jobs, now, effects)
            case GrantHosts(), _:
                state.planner.owners_stored(command.owners)
            case ExtendLease(), _:
                self.lease.extended(command, now)
            case Sweep(), Swept():
                self._sweeping = False
                if not outcome.more:
                    state.swept(outcome.run)
            case CountCrash(), CrashCounted():
                state.forget_withheld(command.seq)
                if outcome.row is not None:
                    state.put_run(outcome.row, now, effects)
                    state.watch.failures.run_changed(outcome.row.id)
            case Forget(), Forgotten():
                self.pruning.done(command, outcome, now)
            case SaveHistory(), _:
                self.history.saved()
            case Rehome(), Rehomed():
                if self.rehoming.rehomed(outcome, now, effects):
                    self.commits.reload(now, effects)
            case ChangeRun(request=request), RunChanged() if request == REQUEST:
                if outcome.row is not None:
                    state.put_run(outcome.row, now, effects)
            case BeginRuns(), RunsBegun():
                for row in outcome.rows:
                    state.put_run(row, now, effects)
            case AdmitKnown(), KnownAdmitted():
                if self.recall.admitted(outcome, now, effects):
                    self.commits.reload(now, effects)
            case AdmitFed(), KnownAdmitted():
                if self.feeding.admitted(outcome, now, effects):
                    self.commits.reload(now, effects)
            case FireJob(), JobFired():
                if self.firing.fired(command, outcome, now, effects):
                    self.commits.reload(now, effects)
            case _:
                self._failures_changed(command, outcome)
                self._uncertain.discard(request_of(command))
                if self.desk.done(command, outcome, now, effects):
                    self.commits.reload(now, effects)
                self._definition_changed(outcome, now, effects)

    def _definition_changed(
        self, outcome: CommandOutcome, now: float, effects: MasterEffects
    ) -> None:
        """Let the schedule follow a job that a client has stored or changed."""
        if isinstance(outcome, Submitted) and outcome.definition is not None:
            self.firing.put(outcome.definition, now, effects)
        elif isinstance(outcome, JobChanged) and outcome.row is not None:
            self.firing.put(outcome.row, now, effects)

    def _failures_changed(self, command: Command, outcome: CommandOutcome) -> None:
        """Keep the groups of failed requests true, for displays."""
        failures = self.state.watch.failures
        match command:
            case RetryDead(run=run):
                failures.run_changed(run)
            case ChangeRun(run=run, state=RunState.DELETED, others=others):
                failures.forget((run, *others))
            case ChangeJob(state=JobState.DELETED):
                if isinstance(outcome, JobChanged):
                    failures.forget(row.id for row in outcome.runs)
            case _:
                pass

    def _on_failed(
        self, command: Command, error: StoreError, now: float, effects: MasterEffects
    ) -> None:
        if isinstance(error, Fenced):
            effects.append(StepDown("a newer leader wrote"))
            return
        match command:
            case ApplyResults():
                self.commits.failed(error, now, effects)
            case Reload():
                self.commits.reload_failed(error, now)
                self._repeat(command, now)
            case SetDrain(client_action=None):
                self._repeat(command, now)
            case SaveHistory():
                self.history.failed(command, error)
            case FireJob():
                if self.firing.failed(command, error, now, effects):
                    self._repeat(command, now)
            case Rehome():
                if isinstance(error, CommitUnknown):
                    self.rehoming.uncertain()
                self._repeat(command, now)
            case ChangePeople(client_action=None):
                pass  # the next use of the token is noted again
            case (SubmitJob() | AddSeeds() | ChangeRun() | TuneRun() | RetryDead() | SetDrain()) | (
                SetWish() | ChangeJob() | ChangePeople() | ChangeSecrets()
            ):
                if isinstance(error, CommitUnknown):
                    self._uncertain.add(request_of(command))
                # It may have been applied, so it must not be refused.
                uncertain = request_of(command) in self._uncertain
                if not isinstance(error, StoreDataError) and (
                    uncertain or self.desk.goes_on(command)
                ):
                    self._repeat(command, now)  # the stored request id makes the repeat harmless
                    if isinstance(error, CommitUnknown) and isinstance(
                        command, ChangeRun | ChangeJob | TuneRun | RetryDead
                    ):
                        # That answer does not say what changed, and the repeat may fail.
                        self.commits.reload(now, effects)
                else:
                    self.desk.failed(command, error, effects)
            case _:
                self._repeat(command, now)
        effects.append(Note(store_event(error.code), f"{type(command).__name__}: {error}"))

    def _repeat(self, command: Command, now: float) -> None:
        self._again.append((now + COMMAND_AGAIN_S, command))

    def _on_refilled(self, answer: Refilled, tag: str, now: float) -> None:
        state = self.state
        if tag != self._refill_tag():
            return
        state.keep_withheld_rows(row for _, rows, _ in answer.lanes for row in rows)
        for run, host in state.frontier.refilled(answer, state.is_taken, state.clock_offset, now):
            state.planner.lane_opened(run, host)

    # ------------------------------------------------------------ time

    def _on_tick(self, now: float, effects: MasterEffects) -> None:
        for run, text in self._old_keys:
            effects.append(Note("run_of_another_version", text, run))
        self._old_keys.clear()
        self.membership.tick(now, effects)
        self.overdue.tick(now, effects)
        self.lease.tick(now, effects)
        self.commits.tick(now, effects)
        self.desk.tick(now, effects)
        self.rehoming.tick(now, effects)
        self._dispatch(now, effects)
        self._refill(now, effects)
        self._sweep(effects)
        self.recall.tick(now, effects)
        self.feeding.tick(now, effects)
        effects.extend(self._notes)
        self._notes.clear()
        self.firing.tick(now, effects)
        self.refusals.tick(now, effects)
        self.run_limits.tick(now, effects)
        self.unplaced.tick(now, effects)
        self.pruning.tick(now, effects)
        self.history.tick(now, effects)
        self.state.watch.failures.tick(now, effects)
        self._reload_nodes(now, effects)
        due = [command for moment, command in self._again if moment <= now]
        if due:
            self._again = [entry for entry in self._again if entry[0] > now]
            effects.extend(Execute(command) for command in due)
        if now >= self._snapshot_at:
            self._snapshot_at = now + SNAPSHOT_S
            runs, by_run = self.state.runs.active, self.state.leases.by_run
            lengths = (
                (n, active_run.row.counters.pending - by_run.get(n, 0))
                for n, active_run in runs.items()
            )
            self.state.watch.trends.sample(now, lengths)
            self.state.watch.second_passed(self.state.utc(now))
            effects.append(Publish(Snapshot(published(self.current_snapshot(now)))))

    def _reload_nodes(self, now: float, effects: MasterEffects) -> None:
        """Tell the nodes that have not answered yet to read their configuration again."""
        for due in self.state.reloads.due(now):
            if self.state.me in due.masters:
                effects.append(ReloadConfig(due.request))
            others = [master for master in due.masters if master != self.state.me]
            if others:
                effects.append(Publish(ReloadNode(due.request, others)))
            for name in due.workers:
                worker = self.state.roster.workers.get(name)
                if worker is not None and worker.present:
                    effects.append(to_worker(worker, ReloadNode(due.request)))

    def _may_dispatch(self, now: float) -> bool:
        shares = self.state.shares
        if shares is not None and now > shares.sure_until:
            return False
        return not self.commits.reloading and not self.rehoming.busy and now <= self.lease.until

    def _dispatch(self, now: float, effects: MasterEffects) -> None:
        state = self.state
        if not self._may_dispatch(now):
            return
        plan = state.planner.plan(now)
        if plan.sendings and not self._assigned:
            self._assigned = True
            took = f"{now - self._began:.3f} s after its takeover"
            effects.append(Note("first_assignment", f"epoch {state.epoch}, {took}"))
        if plan.owners:
            effects.append(Execute(GrantHosts(state.epoch, plan.owners)))
        for sending in plan.sendings.values():
            effects.extend(assignment_messages(state, sending, now))

    def _refill(self, now: float, effects: MasterEffects) -> None:
        if now < self._refill_at:
            return  # the tick after the failure event tries again
        wants = self.state.frontier.wants()
        if wants:
            effects.append(Ask(Refill(wants), self._refill_tag()))

    def _refill_tag(self) -> str:
        """Return a tag that no earlier epoch of this process used."""
        return f"{self.state.epoch}.{self.state.frontier.generation}"

    def _sweep(self, effects: MasterEffects) -> None:
        if self.state.sweeps and not self._sweeping:
            self._sweeping = True
            run = next(iter(self.state.sweeps))
            effects.append(Execute(Sweep(self.state.epoch, run, SWEEP_ROWS)))

    def check(self, now: float) -> None:
        self.state.check(now)
        self.firing.check()

    def check_awake(self, now: float) -> None:
        """Assert after a tick that no host waits for something that is there."""
        if self._may_dispatch(now):
            self.state.planner.check_awake(now)
