"""Rules that every backend of the store shares: checks of changes, the end of a run.

Called by `sql.store` and `testing.store.store`. Everything else is written twice on purpose, so
that the contract suite compares two independent implementations of `ports`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import Fenced, JobError, StoreDataError
from zcrawl.model.reasons.cluster import RUN_IS_ALIVE, START_IS_HELD
from zcrawl.model.reasons.failure import NO_PAGE_FETCHED, TOO_MANY_FAILED
from zcrawl.model.reasons.reason import with_detail, without_detail
from zcrawl.model.reasons.storage import NO_PAGE, RESULT_GAP
from zcrawl.model.reasons.usage import BAD_SPEC
from zcrawl.model.rows import DefinitionRow, RunRow
from zcrawl.model.spec import (
    FAIL_ABOVE,
    UNREADABLE,
    Duplicates,
    OutputSpec,
    Recrawl,
    Schedule,
    SeedsFrom,
)
from zcrawl.model.states import JobState, RequestState, RunState
from zcrawl.schedule.dependencies import END, FAILURE, SUCCESS
from zcrawl.schedule.overlap import QUEUE, Overlap, overlap
from zcrawl.store.commands import Change, ChangeJob, FireJob, SetDrain, SubmitJob
from zcrawl.submit.outputs import targets
from zcrawl.submit.read import file_stem
from zcrawl.submit.schedule import check_parents, parents_of

MAX_COOKIE_BYTES: Final = 60_000  # of a run; fits a BLOB of every database
MOST_ACTIONS = 5  # actions of a run that are shown
SEEDING = "add_seeds"  # a part of a submission, so it is not shown as an action
# A request with an Idempotency-Key: prefix, hash of user and key, colon, hash of the body.
KEYED: Final = "key:"
KEY_REUSED_TEXT: Final = "this Idempotency-Key was used for a request with another body"
WORKER: Final = "worker"  # the kind of the tallies that count a worker's share of a run
# Limits of the stored examples of a run: requests per reason, and reasons per kind (failed,
# skipped, rejected).
MOST_EXAMPLES = 20
MOST_EXAMPLE_REASONS = 50
MOST_DETAIL = 500  # characters


class _Scope(msgspec.Struct):
    max_pages: int | None = None
    max_pages_per_host: int | None = None


class _Spec(msgspec.Struct):
    """The only parts of a job spec that the store itself reads."""

    fail_above: float = FAIL_ABOVE
    scope: _Scope = msgspec.field(default_factory=_Scope)
    output: OutputSpec = OutputSpec()
    recrawl: Recrawl = Recrawl()
    duplicates: Duplicates = Duplicates()
    schedule: Schedule = Schedule()
    seeds_from: SeedsFrom = SeedsFrom()


def max_pages_of(spec: bytes) -> int | None:
    """Return `max_pages` of a new run; StoreDataError if the spec cannot be read."""
    try:
        return msgspec.json.decode(spec, type=_Spec).scope.max_pages
    except UNREADABLE as error:
        raise StoreDataError(f"the job spec cannot be read: {error}", code=BAD_SPEC) from error


def stored_max_pages(spec: bytes) -> int | None:
    """Return `max_pages` of a spec that an active run has now."""
    return _stored(spec).scope.max_pages


def max_pages_per_host_of(spec: bytes) -> int | None:
    return _stored(spec).scope.max_pages_per_host


@functools.lru_cache(maxsize=64)
def recrawl_of(spec: bytes) -> Recrawl:
    """Return the rules of recrawling. Cached: read in each commit of a run that needs them."""
    return _stored(spec).recrawl


@functools.lru_cache(maxsize=64)
def duplicates_of(spec: bytes) -> Duplicates:
    """Return the rules about duplicates. Cached: read in each commit."""
    return _stored(spec).duplicates


def _stored(spec: bytes) -> _Spec:
    """Decode the spec of a stored run; an unreadable one gives the defaults.

    It must not stop a leader from loading other runs, or from ending and deleting this one. The
    leader ends such a run (`submit.stored`).
    """
    try:
        return msgspec.json.decode(spec, type=_Spec)
    except UNREADABLE:
        return _Spec()


RECALLED: Final = -1  # stored when a run has admitted all pages that its job knows


def first_recall(spec: bytes) -> int | None:
    """Return the first position of a run in the known pages of its job; None: it has none."""
    return 0 if recrawl_of(spec).incremental else None


def recall_left(stored: int | None) -> int | None:
    """Return after which known page a run continues to admit; None: nothing is left."""
    return None if stored == RECALLED else stored


def outputs_of(
    spec: bytes, name: str, given: tuple[str, str] | None, run: int
) -> list[tuple[str, str]]:
    """Return (path, format) of the files of a new run: those of the job, and the given one."""
    output = msgspec.json.decode(spec, type=_Spec).output
    formats = dict(targets(output, file_stem(name)))
    if given is not None:
        formats[given[0]] = given[1]
    return [(path.replace("{run}", str(run)), format) for path, format in formats.items()]


def schedule_of(spec: bytes) -> Schedule:
    return _stored(spec).schedule


def is_scheduled(spec: bytes) -> bool:
    """Return whether a job has a [schedule]."""
    return schedule_of(spec) != Schedule()


def parents_in(spec: bytes) -> tuple[str, ...]:
    """Return the names of a job's parents; empty for an empty spec."""
    return tuple(parent.job for parent in schedule_of(spec).after) if spec else ()


def seeds_from_of(spec: bytes) -> SeedsFrom:
    return _stored(spec).seeds_from


def is_fed(spec: bytes) -> bool:
    """Return whether items of another job are seeds of a run."""
    return bool(seeds_from_of(spec).job)


class JobNames(msgspec.Struct, frozen=True):
    """The names of all jobs, to check those that a submission names."""

    parents: dict[str, tuple[str, ...]]  # of each job, archived and paused ones too
    deleted: frozenset[str]  # names that no job has any more, as long as they have rows


def bad_dependency(name: str, spec: bytes, read_names: Callable[[], JobNames]) -> str:
    """Return why a job cannot have the parents in this spec, for people; empty: it can.

    Called in the transaction that stores the spec: of two submissions that close a circle together,
    the second is refused. `read_names` is called only if the spec names a job."""
    schedule, seeds_from = schedule_of(spec), seeds_from_of(spec)
    if not parents_of(schedule, seeds_from):
        return ""
    names = read_names()
    try:
        check_parents(name, schedule, seeds_from, names.parents, names.deleted)
    except JobError as error:
        return str(error)
    return ""


class Beside(msgspec.Struct, frozen=True):
    """What a submission does beside live runs of its job."""

    waits: bool = False  # no run is started: it is held
    refused: str = ""
    why: str = ""  # of a refusal, for people


def beside_live_runs(
    job: DefinitionRow, command: SubmitJob, spec: bytes, live: Collection[int]
) -> Beside:
    """Return whether a submission of a job starts a run, waits, or is refused.

    `spec` is the one that the job has afterwards. Only `queue` is decided here, in the transaction:
    a run that the leader does not know yet counts, too."""
    if command.hold is None or not command.start or schedule_of(spec).overlap != QUEUE:
        return Beside()
    decision = overlap(QUEUE, len(live), int(job.holds))
    if decision is Overlap.START:
        return Beside()
    if decision is Overlap.SKIP_QUEUED:
        number = f" as run {job.held.run}" if job.held is not None else ""
        what = "a submission" if job.held is not None else "a due time"
        why = (
            f"{what} of {job.name!r} waits already{number}, and only one can wait; submit again "
            f"after it has started, or drop it: zcrawl schedule pause {job.name}, then resume"
        )
        return Beside(refused=START_IS_HELD, why=why)
    alive = f"run {min(live)} of {job.name!r} is alive, and "
    if job.state is not JobState.ACTIVE:
        why = f"{alive}the job is {job.state}, so nothing can wait for its end; "
    elif command.seeding:
        why = f"{alive}a submission with more seeds than fit into one message cannot wait; "
    else:
        return Beside(waits=True)
    return Beside(
        refused=RUN_IS_ALIVE,
        why=f"{why}submit it again after the end of that run, or with --restart",
    )


def held_reply(job: int, held_run: int, after: int) -> bytes:
    """Return the stored answer to a submission that is held."""
    return msgspec.json.encode(
        {"job": job, "run": 0, "held": True, "held_run": held_run, "after": after}
    )


def held_in(reply: bytes) -> tuple[int, int]:
    """Return (held run, the run that it waits for) of a stored answer; zeros: nothing is held."""
    fields: dict[str, Any] = msgspec.json.decode(reply) if reply else {}
    return fields.get("held_run", 0), fields.get("after", 0)


def was_dealt_with(job: DefinitionRow, command: FireJob) -> bool:
    """Return whether what a command starts was dealt with before. What is held is not."""
    if command.held_run:
        return job.held is None or job.held.run != command.held_run
    due, due_at = command.due, command.start_facts.due_at
    if due_at is not None and due_at == job.due_held:
        return False
    return due is not None and due.done <= job.due_done


_OUTCOMES: Final = {
    RunState.COMPLETED: SUCCESS,
    RunState.FAILED: FAILURE,
    RunState.CANCELLED: END,
}


def outcome_of(state: str) -> str:
    """Return what the end of a run is for its children."""
    return _OUTCOMES[RunState(state)]


def states_of(outcomes: Iterable[str]) -> list[str]:
    """Return the states of ended runs that have one of these outcomes."""
    return [state.value for state, outcome in _OUTCOMES.items() if outcome in outcomes]


MISSING_STATUSES: Final = frozenset({404, 410})  # they say nothing about the crawl's health


@functools.lru_cache(maxsize=64)
def fail_above_of(spec: bytes) -> float:
    """Return the share of failed requests above which a run has failed."""
    return _stored(spec).fail_above


class Counted(msgspec.Struct, frozen=True):
    """What the end of a run is judged by."""

    done: int
    failed: int
    missing: int  # of `failed`
    skipped: int
    remembers: bool  # pages of earlier runs may not be due, which is no failure


def verdict(spec: bytes, counted: Counted, reason: str) -> tuple[RunState, str]:
    """Return how a run ends that has nothing left to do, or has enough: completed or failed.

    Judged once, at the end. `reason` is that of a completed run."""
    done, failed = counted.done, counted.failed
    if done == 0 and (failed or (counted.skipped and not counted.remembers)):
        text = f"{failed} failed, {counted.skipped} skipped"
        return RunState.FAILED, with_detail(NO_PAGE_FETCHED, text)
    broken, limit = failed - counted.missing, fail_above_of(spec)
    if broken > 0 and broken / (done + broken) > limit:
        text = f"{broken} of {done + broken}; fail_above is {limit:g}"
        return RunState.FAILED, with_detail(TOO_MANY_FAILED, text)
    return RunState.COMPLETED, reason


def may_rehome(state: RunState, reason: str) -> bool:
    """Return whether rows of the run may get another owner: it goes on, or has done its share."""
    if state is RunState.FAILED:
        return without_detail(reason) == NO_PAGE_FETCHED
    return state not in (RunState.CANCELLED, RunState.DELETED)


def skip_reason(state: RunState, reason: str) -> str:
    """Return the reason of the queued rows of an ended run: its code without the detail
    (`bad_spec: …`)."""
    return without_detail(reason) or state.value


def run_reply(row: RunRow, changed: int) -> dict[str, Any]:
    """Return the answer to an action on a run; a repeated request gets the same answer."""
    return {"job": row.job, "run": row.id, "state": str(row.state), "changed": changed}


def is_unseen(run: int, command: ChangeJob) -> bool:
    """Return whether a run would be deleted that nobody has seen."""
    return command.seen is not None and run not in command.seen


def job_reply(job: DefinitionRow, runs: Sequence[RunRow], changed: int) -> dict[str, Any]:
    """Return the answer to an action on a job itself, with the runs that it has deleted."""
    newest = max((run.id for run in runs), default=None)
    return {"job": job.id, "run": newest, "state": str(job.state), "changed": changed}


def drain_reply(command: SetDrain, changed: bool) -> bytes:
    """Return the answer to a drain or an undrain."""
    reply = {"node": command.worker, "state": command.state, "changed": int(changed)}
    return msgspec.json.encode(reply)


def check_epoch(given: int, stored: int) -> None:
    # A higher epoch is refused too: it does not belong to this database (a restored backup).
    if given != stored:
        raise Fenced(f"epoch {given} may not write: the database is at epoch {stored}")


def check_changes(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.state is RequestState.DONE and change.page is None and not change.dropped:
            raise StoreDataError(f"request {change.seq} is done without a page", code=NO_PAGE)


def crash_detail(crashes: int) -> str:
    """Return the detail of a quarantined request, for people."""
    return f"{crashes} worker processes ended while they worked on it alone"


def result_gap(change: Change, watermark: int) -> StoreDataError:
    return StoreDataError(
        f"result {change.number} of {change.worker}/{change.incarnation} does not follow "
        f"{watermark}",
        code=RESULT_GAP,
    )


def merge_cookies(kept: bytes, host: str, cookies: bytes) -> bytes:
    """Return the stored cookies of a run with those of one host replaced.

    They are one JSON object, host → cookies as its worker sent them; the leader does not read them.
    If there is not enough room, the hosts that changed longest ago are removed."""
    hosts = msgspec.json.decode(kept, type=dict[str, str]) if kept else {}
    hosts.pop(host, None)
    hosts[host] = cookies.decode("utf-8", "replace")
    data = msgspec.json.encode(hosts)
    while len(data) > MAX_COOKIE_BYTES:
        del hosts[next(iter(hosts))]
        data = msgspec.json.encode(hosts)
    return data


def same_key(request: str) -> str:
    """Return the part of a request's id that repeats with the same Idempotency-Key have in common;
    empty: it has no key."""
    return request[: request.rindex(":") + 1] if request.startswith(KEYED) else ""
