"""Rules that every backend of the store shares: what a change must hold, how a run ends.

Called by `sql.store` and `testing.store.store`; everything else is written twice on purpose, so
that the contract suite compares two independent readings of `ports`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from zcrawl.errors import Fenced, StoreDataError
from zcrawl.model.reasons.reason import without_detail
from zcrawl.model.reasons.storage import NO_PAGE, RESULT_GAP
from zcrawl.model.reasons.usage import BAD_SPEC
from zcrawl.model.rows import RunRow
from zcrawl.model.spec import UNREADABLE, Duplicates, OutputSpec, Recrawl
from zcrawl.model.states import RequestState, RunState
from zcrawl.store.commands import Change, SetDrain
from zcrawl.submit.outputs import targets
from zcrawl.submit.read import file_stem

MAX_COOKIE_BYTES: Final = 60_000  # of a run; fits a BLOB of every database
MOST_ACTIONS = 5  # that are told of a run
SEEDING = "add_seeds"  # a part of a submission, and no action of its own
# Requests that a run keeps as examples of its tallies, with what happened to them: so many of each
# reason, and of each kind (failed, skipped, rejected) so many reasons.
MOST_EXAMPLES = 20
MOST_EXAMPLE_REASONS = 50
MOST_DETAIL = 500  # characters


class _Scope(msgspec.Struct):
    max_pages: int | None = None
    max_pages_per_host: int | None = None


class _Spec(msgspec.Struct):
    """The only parts of a job spec that the store itself looks at."""

    scope: _Scope = msgspec.field(default_factory=_Scope)
    output: OutputSpec = OutputSpec()
    recrawl: Recrawl = Recrawl()
    duplicates: Duplicates = Duplicates()


def max_pages_of(spec: bytes) -> int | None:
    """Of a new run: StoreDataError for a spec that cannot be read."""
    try:
        return msgspec.json.decode(spec, type=_Spec).scope.max_pages
    except UNREADABLE as error:
        raise StoreDataError(f"the job spec cannot be read: {error}", code=BAD_SPEC) from error


def max_pages_per_host_of(spec: bytes) -> int | None:
    return _stored(spec).scope.max_pages_per_host


@functools.lru_cache(maxsize=64)
def recrawl_of(spec: bytes) -> Recrawl:
    """Asked in each commit of a run that remembers its pages."""
    return _stored(spec).recrawl


@functools.lru_cache(maxsize=64)
def duplicates_of(spec: bytes) -> Duplicates:
    """Asked in each commit."""
    return _stored(spec).duplicates


def _stored(spec: bytes) -> _Spec:
    """Of a run that is there. One that cannot be read must not stop a leader from loading the
    others, nor its own rows from being ended and deleted: the leader ends it (`submit.stored`)."""
    try:
        return msgspec.json.decode(spec, type=_Spec)
    except UNREADABLE:
        return _Spec()


RECALLED: Final = -1  # stored of a run that has admitted all that its job knows


def first_recall(spec: bytes) -> int | None:
    """Where a new run stands among the pages that its job knows; None: it remembers none."""
    return 0 if recrawl_of(spec).incremental else None


def recall_left(stored: int | None) -> int | None:
    """Return after which page a run goes on to admit what its job knows; None: nothing is left."""
    return None if stored == RECALLED else stored


def outputs_of(
    spec: bytes, name: str, given: tuple[str, str] | None, run: int
) -> list[tuple[str, str]]:
    """(path, format) of the files of a new run: the job's own, and the one that was asked for."""
    output = msgspec.json.decode(spec, type=_Spec).output
    formats = dict(targets(output, file_stem(name)))
    if given is not None:
        formats[given[0]] = given[1]
    return [(path.replace("{run}", str(run)), format) for path, format in formats.items()]


def skip_reason(state: RunState, reason: str) -> str:
    """The reason that the queued rows of an ended run derive: its name, without what explains it
    (`bad_spec: …`)."""
    return without_detail(reason) or state.value


def run_reply(row: RunRow, changed: int) -> dict[str, Any]:
    """What a client is told of an action on a run, now and when it asks again."""
    return {"job": row.job, "run": row.id, "state": str(row.state), "changed": changed}


def drain_reply(command: SetDrain, changed: bool) -> bytes:
    """What a client is told of a drain or its end."""
    reply = {"node": command.worker, "state": command.state, "changed": int(changed)}
    return msgspec.json.encode(reply)


def check_epoch(given: int, stored: int) -> None:
    # A higher one is refused too: it was never taken over in this database (a restored backup).
    if given != stored:
        raise Fenced(f"epoch {given} may not write: the database is at epoch {stored}")


def check_changes(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.state is RequestState.DONE and change.page is None and not change.dropped:
            raise StoreDataError(f"request {change.seq} is done without a page", code=NO_PAGE)


def crash_detail(crashes: int) -> str:
    """What is told of a request that is quarantined."""
    return f"{crashes} worker processes ended while they worked on it alone"


def result_gap(change: Change, watermark: int) -> StoreDataError:
    return StoreDataError(
        f"result {change.number} of {change.worker}/{change.incarnation} does not follow "
        f"{watermark}",
        code=RESULT_GAP,
    )


def merge_cookies(kept: bytes, host: str, cookies: bytes) -> bytes:
    """Return the stored cookies of a run with those of one host replaced.

    They are one JSON object, host → what its worker sent; the leader never looks into it. The hosts
    that changed longest ago go first when there is no room."""
    hosts = msgspec.json.decode(kept, type=dict[str, str]) if kept else {}
    hosts.pop(host, None)
    hosts[host] = cookies.decode("utf-8", "replace")
    data = msgspec.json.encode(hosts)
    while len(data) > MAX_COOKIE_BYTES:
        del hosts[next(iter(hosts))]
        data = msgspec.json.encode(hosts)
    return data
