"""Read and change the rows of redirect targets, within the transaction of a batch.

A part of `apply`, used only for batches with redirects. `store.redirects` makes the decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from zcrawl.model.reasons.skip import REDIRECT_TARGET
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Change
from zcrawl.store.redirects import as_duplicate, is_taken, reason_name
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.examples import Examples
from zcrawl.store.sql.known import Ending
from zcrawl.store.sql.rows import Admission, RunRecord, TallyChanges


class _Target(msgspec.Struct):
    """The stored row of a page that answered, as the batch has left it so far."""

    seq: int
    state: RequestState
    reason: str
    attempts: int
    status: int


class RedirectTargets:
    def __init__(
        self,
        session: Session,
        redirected: Iterable[Change],
        admission: Admission,
        updates: dict[int, tuple[Any, ...]],
        tallies: TallyChanges,
        examples: Examples,
    ) -> None:
        """Read the targets of a batch; `updates`, `tallies` and `examples` are shared with it."""
        self.skipped: list[int] = []  # requests skipped here, although their results said done
        self.remembered: list[Ending] = []  # of pages whose items came by a redirect
        self._admission, self._updates, self._tallies = admission, updates, tallies
        self._examples = examples
        self._by_key: dict[tuple[int, bytes], _Target] = {}
        self._by_seq: dict[int, _Target] = {}
        redirected = list(redirected)
        select = "SELECT seq, label FROM requests WHERE seq IN ({})"
        self._blocks = dict(session.all_in(select, (), [change.seq for change in redirected]))
        keys: dict[int, dict[bytes, None]] = defaultdict(dict)
        for change in redirected:
            if change.final is not None:
                keys[change.run][change.final.key] = None
        select = (
            "SELECT url_key, seq, state, reason, attempts, status FROM requests "
            "WHERE run = ? AND url_key IN ({})"
        )
        for run, of_run in keys.items():
            for key, seq, state, reason, attempts, status in session.all_in(select, (run,), of_run):
                target = _Target(seq, RequestState(state), reason, attempts, status)
                self._by_key[(run, bytes(key))] = self._by_seq[seq] = target

    def moved(self, change: Change, state: RequestState) -> None:
        """Note that the batch has changed a row."""
        target = self._by_seq.get(change.seq)
        if target is not None:
            target.state, target.reason = state, change.reason
            target.attempts, target.status = change.attempts, change.status

    def judge(self, run: RunRecord, change: Change, own_url: str) -> Change:
        """Return the change to apply; adapt the row of the page that answered."""
        final = change.final
        if final is None or change.state is not RequestState.DONE:
            return change
        target = self._by_key.get((run.id, final.key))
        added = self._admission.added(run.id, final.key) if target is None else None
        if target is not None:
            if target.seq == change.seq:
                return change
            taken = is_taken(target.state, target.reason)
        elif added is not None:
            seq, skip = added
            taken = is_taken(RequestState.SKIPPED if skip else RequestState.QUEUED, skip)
        else:
            taken = False
        if taken:
            self.skipped.append(change.seq)
            return as_duplicate(change, final.url)
        if target is not None:
            self._convert(run, target)
            seq = target.seq
        elif added is not None:
            self._admission.skip_otherwise(run, seq, REDIRECT_TARGET)
        else:
            link = msgspec.structs.replace(
                final, skip=REDIRECT_TARGET, block=self._blocks[change.seq]
            )
            seq = self._admission.add(run, link, final.depth, change.seq, own_url)
        if run.recall is not None:  # later runs request the target directly
            self.remembered.append((seq, run, change.state, change.status, "", change.traits))
        return change

    def _convert(self, run: RunRecord, target: _Target) -> None:
        kind = "skipped"
        if target.state is RequestState.DEAD:
            kind = "failed"
            run.failed -= 1
            run.skipped += 1
        self._tallies[(run.id, kind, reason_name(target.reason))] -= 1
        self._tallies[(run.id, "skipped", REDIRECT_TARGET)] += 1
        self._examples.drop(run.id, target.seq)
        target.state, target.reason = RequestState.SKIPPED, REDIRECT_TARGET
        self._updates[target.seq] = (
            *(target.state, target.attempts, 0.0, target.reason, target.status),
            target.seq,
        )
