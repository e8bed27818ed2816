"""A store in memory: deterministic, without I/O, with the same contract as the real ones.

Used by the simulated world (thousands of runs a minute) and by the contract suite. `faults`, called
before every command, injects failures; a command that fails changes nothing.
`check()` states the invariants of a store.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeAlias, assert_never

from zcrawl.errors import CommitUnknown, StoreDataError, StoreUnavailable
from zcrawl.mesh.messages import PageRecord
from zcrawl.model.formats import is_capture
from zcrawl.model.rows import LaneWant, QueuedRow, Refilled, RunRow
from zcrawl.model.states import Kept, RequestState, RunState
from zcrawl.store.commands import (
    AddSeeds,
    AdmitFed,
    AdmitKnown,
    AdvanceOutput,
    ApplyResults,
    BeginRuns,
    CancelOffline,
    ChangeJob,
    ChangePeople,
    ChangeRun,
    ChangeSecrets,
    Command,
    CommandOutcome,
    CountCrash,
    Done,
    ExtendLease,
    FireJob,
    Forget,
    GrantHosts,
    NoteArchive,
    NoteOutput,
    Rehome,
    Reload,
    RetryDead,
    SaveHistory,
    SetDrain,
    SetWish,
    SubmitJob,
    Sweep,
    TakeOver,
    TuneRun,
    WriteAudit,
)
from zcrawl.store.output_mark import is_unfinished
from zcrawl.store.queries import (
    CheckToken,
    ExampleRow,
    FailedRow,
    Failures,
    FindItems,
    FindJob,
    FindReply,
    FoundItem,
    FoundItems,
    FoundReply,
    ItemRow,
    Items,
    JobList,
    JobRow,
    JobVersions,
    ListJobs,
    OutputFact,
    OutputRow,
    Outputs,
    Query,
    QueryOutcome,
    ReadAudit,
    ReadChain,
    ReadEpoch,
    ReadFailed,
    ReadFailureGroups,
    ReadHistory,
    ReadItems,
    ReadKnown,
    ReadOutputs,
    ReadParents,
    ReadRemovable,
    ReadRuns,
    ReadTokens,
    ReadUsers,
    ReadVersions,
    Refill,
    RunRows,
    StoredEpoch,
    Tallies,
    TallyRows,
    UserRows,
    job_row,
)
from zcrawl.store.redirects import reason_name
from zcrawl.store.retention import ARCHIVE
from zcrawl.store.rules import WORKER, check_epoch, skip_reason
from zcrawl.testing.store import (
    commands,
    failure_groups,
    firing,
    history,
    intents,
    known,
    people,
    rehoming,
    retention,
    runs,
    secrets,
)
from zcrawl.testing.store import idempotency as once
from zcrawl.testing.store.tables import FakeItem, FakeJob, FakeRequest, Tables

EXAMPLE_STATES = {
    "failed": RequestState.DEAD,
    "skipped": RequestState.SKIPPED,
    "rejected": RequestState.DONE,
}

Fault: TypeAlias = Literal["fail", "unknown_applied", "unknown_lost", "data_error"]


class FakeStore:
    """Implements `store.ports.Store`."""

    poison_marker = commands.POISON

    def __init__(self) -> None:
        self.tables = Tables()
        self.faults: Callable[[Command], Fault | None] | None = None
        self.query_faults: Callable[[Query], bool] | None = None  # True: StoreUnavailable
        self.history: list[tuple[int, type[Command]]] = []  # (epoch, command) of what was applied

    # ------------------------------------------------------------ the port

    def execute(self, command: Command) -> CommandOutcome:
        fault = self.faults(command) if self.faults is not None else None
        if fault == "fail":
            raise StoreUnavailable("injected: the store is away, nothing was applied")
        if not isinstance(command, TakeOver | CancelOffline):
            check_epoch(command.epoch, self.tables.epoch)
        if fault == "data_error":
            raise StoreDataError("injected: this data cannot be stored")
        if fault == "unknown_lost":
            raise CommitUnknown("injected: the commit was lost")
        outcome = self._run(command)
        self.history.append((self.tables.epoch, type(command)))
        if fault == "unknown_applied":
            raise CommitUnknown("injected: the commit was applied, its answer was lost")
        return outcome

    def query(self, query: Query) -> QueryOutcome:
        if self.query_faults is not None and self.query_faults(query):
            raise StoreUnavailable("injected: the store is away")
        match query:
            case Refill():
                return Refilled([self._refill(want) for want in query.lanes])
            case ListJobs():
                return JobList([self._job_row(job) for job in self.tables.jobs.values()])
            case FindJob():
                return JobList([self._job_row(job) for job in self._find_job(query)])
            case Tallies():
                return self._tallies(query.run)
            case ReadItems():
                items = self.tables.items.get(query.run, {}).values()
                rows = [
                    ItemRow(item.id, item.data)
                    for item in items
                    if item.id > query.after and item.kind is query.kind
                ]
                return Items(rows[: query.limit])
            case FindItems():
                return self._find_items(query)
            case ReadFailed():
                return Failures(self._failed(query))
            case ReadOutputs():
                return Outputs(self._outputs(query.run))
            case FindReply():
                return FoundReply(once.stored_reply(self.tables, query.request))
            case ReadKnown():
                return known.read_known(self.tables, query)
            case ReadParents():
                return firing.read_parents(self.tables, query)
            case ReadChain():
                return firing.read_chain(self.tables, query)
            case ReadVersions():
                job = self.tables.jobs.get(query.job)
                return JobVersions(list(job.versions) if job is not None else [])
            case ReadRuns():
                runs = sorted(self.tables.runs.values(), key=lambda run: -run.id)
                shown = [run for run in runs if run.state is not RunState.DELETED]
                older = [run.row() for run in shown if run.id < query.before]
                return RunRows(older[: query.limit])
            case ReadEpoch():
                return StoredEpoch(self.tables.epoch)
            case ReadHistory():
                return history.read_history(self.tables, query)
            case ReadRemovable():
                return retention.read_removable(self.tables, query, self._outputs)
            case ReadFailureGroups():
                return failure_groups.read_failure_groups(self.tables, query)
            case ReadUsers():
                return UserRows([user for _, user in sorted(self.tables.users.items())])
            case ReadTokens():
                return people.read_tokens(self.tables, query)
            case CheckToken():
                return people.check_token(self.tables, query)
            case ReadAudit():
                return people.read_audit(self.tables, query)
            case _:
                assert_never(query)

    def close(self) -> None:
        """Do nothing: a new leader uses the same object again."""

    # ------------------------------------------------------------ inspection

    def request(self, run: int, url: str) -> FakeRequest | None:
        for request in self.tables.requests.values():
            if request.run == run and request.url == url:
                return request
        return None

    def requests(self, run: int) -> list[FakeRequest]:
        return [r for r in self.tables.requests.values() if r.run == run]

    def pages(self, run: int) -> dict[str, PageRecord]:
        """The committed pages by the URL that was requested."""
        pages = self.tables.pages
        return {r.url: pages[r.seq] for r in self.requests(run) if r.seq in pages}

    def items(self, run: int) -> list[FakeItem]:
        return list(self.tables.items.get(run, {}).values())

    def runs(self) -> list[RunRow]:
        return [run.row() for run in self.tables.runs.values()]

    def check(self) -> None:
        """Assert the invariants that hold after every command."""
        tables = self.tables
        states: dict[int, Counter[RequestState]] = {id: Counter() for id in tables.runs}
        for request in tables.requests.values():
            states[request.run][request.state] += 1
            lane = tables.queued.get(request.run, {}).get(request.host, {})
            assert (request.seq in lane) == (request.state is RequestState.QUEUED), request
            assert tables.seqs[(request.run, request.key)] == request.seq, "one row for each key"
        assert len(tables.seqs) == len(tables.requests), "one key for each row"
        items: Counter[int] = Counter()
        for item in (item for of_run in tables.items.values() for item in of_run.values()):
            items[item.run] += item.kind is Kept.ITEM
            was_done = tables.requests[item.seq].state is RequestState.DONE
            assert was_done or item.kind in (Kept.CAPTURE, Kept.FAILURE), (
                "items are of done requests"
            )
        for run in tables.runs.values():
            if run.state is RunState.DELETED:
                continue  # its rows are being removed, its counters tell what it was
            n = states[run.id]
            queued = n[RequestState.QUEUED]
            assert run.admitted == run.pending + run.done + run.failed + run.skipped, run
            assert run.admitted == n.total(), "every admitted URL has its row"
            assert run.done == n[RequestState.DONE] and run.failed == n[RequestState.DEAD], run
            assert run.items == items[run.id], run
            if run.state.ended:
                assert run.pending == 0 and run.skipped == n[RequestState.SKIPPED] + queued, run
                assert run.ended_at and not run.seeding, run
            else:
                assert run.pending == queued and run.skipped == n[RequestState.SKIPPED], run
                assert run.pending or run.seeding or run.recalls or run.feed_at is not None, (
                    f"nothing is pending, yet it goes on: {run}"
                )
            tallies = self._tallies(run.id)
            assert sum(tallies.failed.values()) == run.failed, "each failure has a reason"
            assert sum(tallies.skipped.values()) == run.skipped, "each skip has a reason"
        for (of_run, kind, name), kept in tables.examples.items():
            counted = (of_run, kind, name) in tables.tallies or kind == "rejected"
            assert kept and counted, "an example is of a tally"
            states_of = {tables.requests[seq].state for seq in kept}
            assert states_of == {EXAMPLE_STATES[kind]}, "an example is of a request that ended so"
        done = {r.seq for r in tables.requests.values() if r.state is RequestState.DONE}
        assert done == set(tables.pages), "one page for each done request"
        epochs = [epoch for epoch, _ in self.history]
        assert epochs == sorted(epochs), "epochs never go back"

    # ------------------------------------------------------------ inside

    def _run(self, command: Command) -> CommandOutcome:
        tables = self.tables
        match command:
            case TakeOver():
                tables.epoch = max(tables.epoch + 1, command.hint)
                tables.holder = command.holder
                return commands.load(tables)
            case CancelOffline():
                return runs.cancel_offline(tables, command)
            case Reload():
                return commands.load(tables)
            case ApplyResults():
                return commands.apply_results(tables, command)
            case SubmitJob():
                return commands.submit_job(tables, command)
            case AddSeeds():
                return commands.add_seeds(tables, command)
            case AdmitKnown():
                return known.admit_known(tables, command)
            case AdmitFed():
                return firing.admit_fed(tables, command)
            case FireJob():
                return firing.fire_job(tables, command)
            case ChangeRun():
                return runs.change_run(tables, command)
            case BeginRuns():
                return runs.begin_runs(tables, command)
            case ChangeJob():
                return runs.change_job(tables, command)
            case TuneRun():
                return runs.tune_run(tables, command)
            case SetDrain():
                return intents.set_drain(tables, command)
            case ChangeSecrets():
                return secrets.change_secrets(tables, command)
            case SetWish():
                return intents.set_wish(tables, command)
            case Forget():
                return once.forget(tables, command)
            case SaveHistory():
                return history.save_history(tables, command)
            case Rehome():
                return rehoming.rehome(tables, command)
            case Sweep():
                return runs.sweep(tables, command)
            case RetryDead():
                return runs.retry_dead(tables, command)
            case CountCrash():
                return runs.count_crash(tables, command)
            case GrantHosts():
                for id, owners in command.owners:
                    if id in tables.hosts:
                        tables.hosts[id].owners = owners
                return Done()
            case ExtendLease():
                tables.lease_until = max(tables.lease_until, command.until)
                return Done()
            case AdvanceOutput():
                output = tables.outputs.get((command.run, command.path))
                if output is not None:
                    output.cursor, output.length = command.cursor, command.length
                    output.part, output.part_at = command.part, command.part_at
                    output.progress, output.problem = command.progress, command.problem
                return Done()
            case NoteOutput():
                output = tables.outputs.get((command.run, command.path))
                if output is not None:
                    output.problem = command.problem
                return Done()
            case NoteArchive():
                return retention.note_archive(tables, command)
            case ChangePeople():
                return people.change_people(tables, command)
            case WriteAudit():
                return people.write_batch(tables, command)
            case _:
                assert_never(command)

    def _refill(self, want: LaneWant) -> tuple[LaneWant, list[QueuedRow], bool]:
        lane = self.tables.queued.get(want.run, {}).get(want.host, {})
        rows = (self.tables.requests[seq] for seq in lane)
        orders = [(row.prio, row.depth, row.seq) for row in rows]
        if want.after is not None:
            orders = [order for order in orders if order > want.after]
        first = heapq.nsmallest(want.limit, orders)
        queued = [self.tables.queued_row(self.tables.requests[seq]) for _, _, seq in first]
        return want, queued, len(queued) < want.limit

    def _job_row(self, job: FakeJob) -> JobRow:
        runs = [run.row() for run in self.tables.runs.values() if run.job is job]
        return job_row(job.row(), runs[::-1])

    def _find_job(self, query: FindJob) -> list[FakeJob]:
        ref = query.ref
        if query.run is not None:
            run = self.tables.runs.get(query.run)
            return [] if run is None else [run.job]
        if ref.isascii() and ref.isdigit() and int(ref) in self.tables.jobs:
            return [self.tables.jobs[int(ref)]]
        return [job for job in self.tables.jobs.values() if job.name == ref][-1:]

    def _tallies(self, run: int) -> TallyRows:
        rows = TallyRows({}, {}, {}, actions=once.latest_actions(self.tables, run))
        outputs = [row for row in self.tables.outputs.values() if row.run == run]
        for output in sorted(outputs, key=lambda row: row.path):
            fact = OutputFact(
                output.path, output.format, output.problem, output.part, output.progress.places
            )
            rows.outputs.append(fact)
        for (of_run, kind, name), kept in sorted(self.tables.examples.items()):
            if of_run == run:
                seq = min(kept)
                url = self.tables.requests[seq].url
                rows.examples.append(ExampleRow(kind, name, url, kept[seq]))
        rows.not_removed.extend(retention.not_removed(self.tables, run))
        names = {"link": "links", WORKER: "workers"}
        for (of_run, kind, name), n in sorted(self.tables.tallies.items()):
            if of_run != run or kind == ARCHIVE:
                continue
            if kind == "status":
                rows.statuses[int(name)] = n
            else:
                getattr(rows, names.get(kind, kind))[name] = n
        return rows

    def _failed(self, query: ReadFailed) -> list[FailedRow]:
        run = self.tables.runs.get(query.run)
        if run is None or run.state is RunState.DELETED:
            return []
        rows: list[FailedRow] = []
        for request in self.tables.requests.values():
            if request.run != run.id or request.seq <= query.after:
                continue
            state, reason = request.state, request.reason
            if state is RequestState.QUEUED and run.state.ended:
                state, reason = RequestState.SKIPPED, skip_reason(run.state, run.reason)
            if state not in (RequestState.DEAD, RequestState.SKIPPED):
                continue
            if query.reason not in ("", reason_name(reason)) or query.host not in (0, request.host):
                continue
            parent = self.tables.url_of(request.parent)
            kept = (self._example(run.id, kind, request.seq) for kind in ("failed", "skipped"))
            row = FailedRow(
                seq=request.seq,
                url=request.url,
                state=state,
                reason=reason,
                status=request.status,
                attempts=request.attempts,
                depth=request.depth,
                parent=parent,
                detail="".join(kept),
                result=self._failed_result(run.id, request.seq),
            )
            rows.append(row)
        return rows[: query.limit]

    def _failed_result(self, run: int, seq: int) -> bytes:
        results = [
            item.data
            for item in self.tables.items.get(run, {}).values()
            if item.kind is Kept.FAILURE and item.seq == seq
        ]
        return results[-1] if results else b""  # after a retry by a person the newest counts

    def _example(self, run: int, kind: str, seq: int) -> str:
        for key, kept in self.tables.examples.items():
            if key[:2] == (run, kind) and seq in kept:
                return kept[seq]
        return ""

    def _find_items(self, query: FindItems) -> FoundItems:
        items = [
            FoundItem(item.id, item.run, item.data)
            for of_run in self.tables.items.values()
            for item in of_run.values()
            if query.run in (None, item.run) and item.id < query.before
            if item.kind is Kept.ITEM
        ]
        items.sort(key=lambda item: -item.id)
        text = query.text.casefold()
        rows = [
            found_item
            for found_item in items
            if text in found_item.data.decode("utf-8", "replace").casefold()
        ]
        if len(rows) >= query.limit:
            return FoundItems(rows[: query.limit], rows[query.limit - 1].id, True)
        return FoundItems(rows, items[-1].id if items else query.before, False)

    def _outputs(self, of_run: int | None) -> list[OutputRow]:
        rows: list[OutputRow] = []
        for output in self.tables.outputs.values():
            run = self.tables.runs[output.run]
            kind = Kept.CAPTURE if is_capture(output.format) else Kept.ITEM
            kept = self.tables.items.get(output.run, {}).values()
            last = max((item.id for item in kept if item.kind is kind), default=0)
            row = OutputRow(
                run.id,
                output.path,
                output.format,
                output.cursor,
                output.length,
                last,
                output.part,
                output.part_at,
                run.state.ended,
                run.spec,
                output.problem,
                output.progress,
                run.created_at,
            )
            if of_run == run.id or (
                of_run is None and is_unfinished(row) and run.state is not RunState.DELETED
            ):
                rows.append(row)
        return rows
