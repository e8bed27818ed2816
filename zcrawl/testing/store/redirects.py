"""Redirect targets in the fake store's tables. `commands` calls it."""

from __future__ import annotations

import msgspec

from zcrawl.model.reasons.skip import REDIRECT_TARGET
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Change
from zcrawl.store.redirects import as_duplicate, is_taken, reason_name
from zcrawl.testing.store.tables import FakeRequest, FakeRun, Tables

RedirectTarget = tuple[FakeRun, Change, FakeRequest]  # the change that led to a page, and its row


def collapse(
    tables: Tables,
    run: FakeRun,
    change: Change,
    skipped: list[int],
    targets: list[RedirectTarget],
    now: float,
) -> Change:
    """Return the change to apply, and adapt the row of the page that answered. The row is added to
    `targets`; requests that are skipped although their results said done, to `skipped`."""
    final = change.final
    if final is None or change.state is not RequestState.DONE:
        return change
    seq = tables.seqs.get((run.id, final.key))
    if seq == change.seq:
        return change
    if seq is None:
        block = tables.requests[change.seq].block
        link = msgspec.structs.replace(final, skip=REDIRECT_TARGET, block=block)
        tables.admit(run, link, final.depth, change.seq, now)
        targets.append((run, change, tables.requests[tables.seqs[(run.id, final.key)]]))
        return change
    row = tables.requests[seq]
    if is_taken(row.state, row.reason):
        skipped.append(change.seq)
        return as_duplicate(change, final.url)
    if row.state is RequestState.DEAD:
        run.failed -= 1
        run.skipped += 1
        tables.tally(run.id, "failed", row.reason, -1)
    else:
        tables.tally(run.id, "skipped", reason_name(row.reason), -1)
    tables.drop_examples(row.seq)
    row.state, row.reason, row.due_at = RequestState.SKIPPED, REDIRECT_TARGET, 0.0
    tables.tally(run.id, "skipped", REDIRECT_TARGET)
    targets.append((run, change, row))
    return change
