"""Recall: start a run also from the pages that its job fetched in earlier runs.

A part of the leader. A page that did not change shows no links, so all pages of earlier runs are
admitted: a chunk is read, pages out of scope are left out, and the others are admitted in one
transaction that also stores the position. So memory holds one chunk, the next leader continues
after a crash, and a repeated chunk changes nothing.

The regular expressions of the scope run here, in the leader. MAX_STEPS limits how many pages of a
chunk are checked, so that no scope and no URL can block the leader.
"""

from __future__ import annotations

import functools
from typing import Final

from zcrawl.errors import BadUrl, ParseError, StoreError
from zcrawl.frontier.extra import decode, is_key_of, request_key
from zcrawl.frontier.scope import ScopeFilter
from zcrawl.frontier.url import CanonicalRules, canonicalize
from zcrawl.master.events import Ask, Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.rows import KnownRow, NewLink
from zcrawl.model.spec import Scope
from zcrawl.store.commands import AdmitKnown, KnownAdmitted
from zcrawl.store.queries import KnownPages, ReadKnown

CHUNK: Final = 1_000  # pages
AGAIN_S: Final = 0.5  # after a failed read
MAX_STEPS: Final = 100_000_000  # instructions × bytes: 0.7 s in RE2's worst case, else a few ms


class Recall:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._busy: int | None = None  # the run whose chunk is being read or admitted
        self._not_before = 0.0

    def tick(self, now: float, effects: MasterEffects) -> None:
        state = self._state
        if not state.recalls or self._busy is not None or now < self._not_before:
            return
        for run in state.recalls:
            active = state.runs.active[run]
            # Queued pages of an earlier run count only after its sweep.
            if not active.rules.are_known:
                continue  # this master cannot compute its URL keys
            if active.row.job not in state.sweeps.values() and active.row.recall is not None:
                self._busy = run
                query = ReadKnown(active.row.job, active.row.recall, CHUNK)
                effects.append(Ask(query, self._tag(run)))
                return

    def _tag(self, run: int) -> str:
        """Return a tag that no earlier epoch of this process used."""
        return f"recall.{self._state.epoch}.{run}"

    def read_done(
        self,
        query: ReadKnown,
        tag: str,
        known_pages: KnownPages,
        now: float,
        effects: MasterEffects,
    ) -> None:
        """Admit the pages of a chunk that are in scope."""
        run = self._busy
        if run is None or tag != self._tag(run):
            return
        active = self._state.runs.get(run)
        if active is None or active.row.recall != query.after:
            self._busy = None  # it has ended meanwhile
            return
        row = active.row
        scope = _scope(active.spec.scope, row.seed_hosts)
        rows = _affordable(known_pages.rows, scope.cost)
        inside = [page for page in rows if scope.verdict(page.url, page.depth) is None]
        links, lost = _links(inside, active.rules)
        links = self._state.own(links, row.spec, row.canonical)
        if lost:
            why = "their URLs are not valid under its rules"
            text = f"run {run}: {lost} pages of earlier runs are left out: {why}"
            effects.append(Note("recall_dropped", text, run))
        last = len(known_pages.rows) < query.limit and len(rows) == len(known_pages.rows)
        upto = query.after if last else rows[-1].id
        utc = self._state.utc(now)
        command = AdmitKnown(self._state.epoch, run, query.after, upto, links, last, utc)
        effects.append(Execute(command))

    def read_failed(self, tag: str, error: StoreError, now: float, effects: MasterEffects) -> None:
        if self._busy is not None and tag == self._tag(self._busy):
            effects.append(Note("recall_failed", f"{error.code}: {error}"))
            self._busy, self._not_before = None, now + AGAIN_S

    def admitted(self, done: KnownAdmitted, now: float, effects: MasterEffects) -> bool:
        """Continue with the next chunk; return True if memory must be reloaded."""
        self._busy = None
        if done.row is None:
            return False
        self._state.put_run(done.row, now, effects)
        if not done.row.state.ended:
            self._state.admit(done.admitted, done.hosts, now)
            if done.row.recalled and not done.repeated:
                run = done.row.id
                effects.append(
                    Note("recalled", f"run {run} has admitted all pages of earlier runs", run)
                )
        return done.repeated  # its rows were admitted by a commit whose answer was lost


@functools.lru_cache(maxsize=8)
def _scope(scope: Scope, seed_hosts: tuple[str, ...]) -> ScopeFilter:
    """Compile the scope of a run once for all its chunks."""
    return ScopeFilter(scope, frozenset(seed_hosts))


def _affordable(rows: list[KnownRow], cost: int) -> list[KnownRow]:
    """Return the first rows that one chunk may check; at least one."""
    steps = 0
    for count, row in enumerate(rows):
        steps += len(row.url) * cost
        if steps > MAX_STEPS and count:
            return rows[:count]
    return rows


def _links(rows: list[KnownRow], rules: CanonicalRules) -> tuple[tuple[NewLink, ...], int]:
    """Return the links to admit under the rules of this run, and how many are not valid.

    An earlier run may have had other rules; with their keys a page could be in this run twice.
    """
    links: dict[bytes, NewLink] = {}
    lost = 0
    for row in rows:
        try:
            url, key, extra = canonicalize(row.url, rules), row.key, decode(row.extra)
        except (BadUrl, ParseError):
            lost += 1
            continue
        if url != row.url or not is_key_of(key, url, extra, rules):
            key = request_key(url, extra, rules)
        link = NewLink(url, key, row.origin, row.depth, block=row.block, extra=row.extra)
        links.setdefault(key, link)
    return tuple(links.values()), lost
