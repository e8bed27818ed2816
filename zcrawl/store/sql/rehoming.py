"""Rehome: give rows to their owners after the list of standalone nodes has changed.

Called by `store` after the epoch check; it commits afterwards. The twin is
`zcrawl.testing.store.rehoming`.
"""

from __future__ import annotations

from collections import defaultdict

from zcrawl.model.reasons.skip import OWNED_BY
from zcrawl.model.states import RequestState, RunState
from zcrawl.standalone.listed import listed_resources
from zcrawl.store.commands import Rehome, Rehomed
from zcrawl.store.rules import may_rehome
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.rows import RunRecord, TallyChanges, load_run, save_run, save_tallies
from zcrawl.store.sql.runs import skip_queued


def rehome(session: Session, command: Rehome) -> Rehomed:
    newest = session.all(
        "SELECT MAX(id) FROM runs WHERE state <> ? GROUP BY job HAVING MAX(id) >= ? "
        "ORDER BY MAX(id) LIMIT 1",
        (RunState.DELETED, command.run),
    )
    run = load_run(session, newest[0][0]) if newest else None
    if run is None:
        return Rehomed(0, 0, more=False)
    if not may_rehome(run.state, run.reason):
        return Rehomed(run.id + 1, 0, more=True)
    after = command.after if run.id == command.run else 0
    if run.state.ended:
        skip_queued(session, run)  # what its end skipped stays skipped
    rows = session.all(
        "SELECT seq, url, state, reason FROM requests WHERE run = ? AND seq > ? AND "
        "(state = 0 OR (state = ? AND reason LIKE ?)) ORDER BY seq LIMIT ?",
        (run.id, after, RequestState.SKIPPED, f"{OWNED_BY} %", command.limit),
    )
    shares = command.division.shares()
    listed = listed_resources(run.spec, run.canonical)
    full = run.max_pages is not None and run.done >= run.max_pages
    tallies = TallyChanges()
    skips: dict[str, list[int]] = defaultdict(list)  # reason → requests
    claims: list[int] = []
    released = stayed = 0
    for seq, url, state, reason in rows:
        owner = shares.skip(bytes(url).decode(), listed)
        if state == RequestState.QUEUED:
            if owner and seq in command.held:
                stayed += 1
            elif owner:
                skips[owner].append(seq)
                tallies[(run.id, "skipped", owner)] += 1
                released += 1
        elif owner != reason and (owner or not full):
            tallies[(run.id, "skipped", reason)] -= 1
            if owner:
                skips[owner].append(seq)
                tallies[(run.id, "skipped", owner)] += 1
            else:
                claims.append(seq)
    for reason, seqs in skips.items():
        session.run_in(
            "UPDATE requests SET state = ?, reason = ? WHERE seq IN ({})",
            (RequestState.SKIPPED, reason),
            seqs,
        )
    session.run_in(
        "UPDATE requests SET state = 0, reason = '', due_at = 0 WHERE seq IN ({})", (), claims
    )
    _count(run, released, len(claims), command.now, tallies)
    save_run(session, run)
    save_tallies(session, tallies)
    last = len(rows) < command.limit
    next_run, after = (run.id + 1, 0) if last else (run.id, rows[-1][0])
    return Rehomed(next_run, after, True, released, len(claims), stayed)


def _count(run: RunRecord, released: int, claimed: int, now: float, tallies: TallyChanges) -> None:
    if claimed and run.state.ended:
        run.reopen(now)
    run.skipped += released - claimed
    run.pending += claimed - released
    run.complete_if_empty(now, tallies)
