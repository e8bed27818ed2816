"""Feed runs: the items of another run become their seeds, chunk by chunk.

A part of the leader. The position of a run among those items is stored with each chunk of seeds,
and the run does not end before its last item. So a new leader goes on where the last one stopped,
and memory holds one chunk, however many items there are:

    idle ──a run has items left──▶ reading ──items──▶ admitting ──admitted──▶ idle
                                      │ failed ──▶ idle, again after half a second

A chunk begins small and grows while its items are small. Several runs take turns. A page of the
other run may have many items, and an item may name a list of URLs; what is not a URL is left out
and counted in an event.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.errors import StoreError, ZcrawlError
from zcrawl.frontier.url import CanonicalRules
from zcrawl.master.desk import seeds as seed_lists
from zcrawl.master.events import Ask, Execute, MasterEffects, Note
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.rows import NewLink
from zcrawl.model.spec import JobSpec
from zcrawl.store.commands import AdmitFed, KnownAdmitted
from zcrawl.store.queries import ItemRow, Items, ReadItems

LEAST_ITEMS: Final = 20  # read at once
MOST_ITEMS: Final = 1_000
MOST_BYTES: Final = 1_000_000  # of the items of a chunk, about
MOST_SEEDS: Final = 2_000  # of a chunk
AGAIN_S: Final = 0.5  # after a failed read


class Feeding:
    def __init__(self, state: LeaderState) -> None:
        self._state = state
        self._busy: int | None = None  # the run whose chunk is being read or admitted
        self._limit = LEAST_ITEMS
        self._not_before = 0.0

    def tick(self, now: float, effects: MasterEffects) -> None:
        if self._busy is not None or now < self._not_before:
            return
        for run in self._state.next_feeds():
            active = self._state.runs.active[run]
            row = active.row
            if row.feed_at is None or not active.rules.are_known:
                continue
            self._busy = run
            effects.append(Ask(ReadItems(row.feed_run, row.feed_at, self._limit), self._tag(run)))
            return

    def _tag(self, run: int) -> str:
        """Return a tag that no earlier epoch of this process used."""
        return f"feed.{self._state.epoch}.{run}"

    def owns(self, tag: str) -> bool:
        """Return whether a query of this tag is a read of this module."""
        return self._busy is not None and tag == self._tag(self._busy)

    def read_done(
        self, query: ReadItems, outcome: Items, now: float, effects: MasterEffects
    ) -> None:
        """Admit the seeds of a chunk."""
        run = self._busy
        active = None if run is None else self._state.runs.get(run)
        if run is None or active is None or active.row.feed_at != query.after:
            self._busy = None  # it has ended meanwhile
            return
        rows = _affordable(outcome.rows)
        size = sum(len(row.data) for row in rows)
        last = len(outcome.rows) < query.limit and len(rows) == len(outcome.rows)
        # So that the next chunk has about as many bytes as are allowed, and not more.
        fitting = MOST_BYTES * max(1, len(rows)) // max(1, size)
        self._limit = max(LEAST_ITEMS, min(MOST_ITEMS, 2 * self._limit, fitting))
        links, lost = _links(rows, active.spec, active.rules)
        links = self._state.own(links, active.row.spec, active.row.canonical)
        if lost:
            text = f"run {run}: {lost} items of run {query.run} have no URL in "
            text += repr(active.spec.seeds_from.field)
            effects.append(Note("seeds_left_out", text, run))
        hosts = seed_lists.netlocs(links)
        upto = rows[-1].id if rows else query.after
        utc = self._state.utc(now)
        command = AdmitFed(self._state.epoch, run, query.after, upto, links, hosts, last, utc)
        effects.append(Execute(command))

    def read_failed(self, error: StoreError, now: float, effects: MasterEffects) -> None:
        effects.append(Note("feed_failed", f"{error.code}: {error}"))
        self._busy, self._not_before = None, now + AGAIN_S

    def admitted(self, done: KnownAdmitted, now: float, effects: MasterEffects) -> bool:
        """Continue with the next chunk; return True if memory must be reloaded."""
        self._busy = None
        if done.row is None:
            return False
        self._state.put_run(done.row, now, effects)
        if not done.row.state.ended:
            self._state.admit(done.admitted, done.hosts, now)
        return done.repeated  # its rows were admitted by a commit whose answer was lost


def _affordable(rows: list[ItemRow]) -> list[ItemRow]:
    """Return the first rows that one chunk may have; at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += len(row.data)
        if size > 4 * MOST_BYTES and count:
            return rows[:count]
    return rows


def _links(
    rows: list[ItemRow], spec: JobSpec, rules: CanonicalRules
) -> tuple[tuple[NewLink, ...], int]:
    """Return the seeds of these items, each once, and how many items have none."""
    field = spec.seeds_from.field
    links: dict[bytes, NewLink] = {}
    lost = 0
    for row in rows:
        urls = _urls(row.data, field)
        has_seed = False
        for url in urls[:MOST_SEEDS]:
            try:
                (link,) = seed_lists.read([url], rules, takes_ids=spec.takes_ids)
            except ZcrawlError:  # not a URL, or not an id of a task
                continue
            links.setdefault(link.key, link)
            has_seed = True
        lost += not has_seed
    return tuple(links.values()), lost


def _urls(data: bytes, field: str) -> list[str]:
    """Return the texts in a field of an item: one, or a list of them."""
    try:
        item: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return []
    value = item.get(field) if isinstance(item, dict) else None
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
