"""Read, write and remove the pages that jobs remember across their runs.

Used by the other modules of `store.sql`, always inside one transaction, and only for runs of jobs
that remember their pages. `frontier.recrawl` makes the decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from zcrawl.frontier.extra import is_start
from zcrawl.frontier.recrawl import KnownPage, reading_of, updated_page
from zcrawl.mesh.messages import Traits
from zcrawl.model.rows import KnownRow
from zcrawl.model.sitemap_request import SITEMAP_PRIO
from zcrawl.model.states import RequestState
from zcrawl.store.queries import KnownPages, ReadKnown
from zcrawl.store.rules import recrawl_of
from zcrawl.store.sql.dialects.dialect import Session

_STATE = (
    "content",
    "etag",
    "last_modified",
    "reading",
    "checked_at",
    "changed_at",
    "interval_s",
    "checks",
    "changes",
    "gone",
    "fingerprint",
)
_STATES = ", ".join(_STATE)
_PLACE = "id, job, url_key, url, host, depth, label, extra"


class OfJob(Protocol):
    """The part of a run that is used here."""

    id: int
    job: int
    spec: bytes
    recall: int | None


class Taker(Protocol):
    def take(self, name: str) -> int: ...


# How a request of a run that remembers its pages ended: seq, run, state, status, reason, traits.
Ending: TypeAlias = tuple[int, OfJob, RequestState, int, str, Traits | None]


def known_pages(
    session: Session, job: int, keys: Iterable[bytes]
) -> dict[bytes, tuple[int, KnownPage]]:
    """Return key → (id, known page)."""
    select = f"SELECT url_key, id, {_STATES} FROM known_pages WHERE job = ? AND url_key IN ({{}})"
    return {row[0]: (row[1], _page(row[2:])) for row in session.all_in(select, (job,), keys)}


def _page(row: Sequence[Any]) -> KnownPage:
    content, etag, last_modified, reading, *times, checks, changes, gone, fingerprint = row
    checked_at, changed_at, interval_s = times
    return KnownPage(
        content,
        etag.decode(),
        last_modified.decode(),
        reading,
        checked_at,
        changed_at,
        interval_s,
        checks,
        changes,
        bool(gone),
        fingerprint,
    )


def _values(page: KnownPage) -> tuple[Any, ...]:
    return (
        page.content,
        page.etag.encode(),
        page.last_modified.encode(),
        page.reading,
        page.checked_at,
        page.changed_at,
        page.interval_s,
        page.checks,
        page.changes,
        page.gone,
        page.fingerprint,
    )


# ---------------------------------------------------------------- writing


def remember(session: Session, ids: Taker, endings: Sequence[Ending], now: float) -> None:
    """Store what the jobs know about the pages of these requests."""
    select = (
        "SELECT seq, url_key, url, host, depth, label, extra FROM requests "
        f"WHERE prio <> {SITEMAP_PRIO} AND seq IN ({{}})"
    )
    seqs = [seq for seq, *_ in endings]
    rows = {row[0]: row[1:] for row in session.all_in(select, (), seqs) if not is_start(row[2])}
    places: dict[int, dict[bytes, tuple[Any, ...]]] = defaultdict(dict)
    for seq, run, *_ in endings:
        if seq in rows:
            places[run.job][rows[seq][0]] = rows[seq]
    stored = {job: known_pages(session, job, by_key) for job, by_key in places.items()}
    new: dict[tuple[int, bytes], KnownPage] = {}
    for seq, run, state, status, reason, traits in endings:
        if seq not in rows:
            continue
        job, key = run.job, rows[seq][0]
        _, before = stored[job].get(key, (0, None))
        new[(job, key)] = updated_page(
            new.get((job, key), before),
            state,
            status,
            reason,
            traits,
            recrawl_of(run.spec),
            reading_of(run.spec),
            now,
        )
    _write(session, ids, new, stored, places)


def _write(
    session: Session,
    ids: Taker,
    new: Mapping[tuple[int, bytes], KnownPage],
    stored: Mapping[int, Mapping[bytes, tuple[int, KnownPage]]],
    places: Mapping[int, Mapping[bytes, tuple[Any, ...]]],
) -> None:
    inserts: list[tuple[Any, ...]] = []
    updates: list[tuple[Any, ...]] = []
    for (job, key), page in new.items():
        if key in stored[job]:
            id, before = stored[job][key]
            if page != before:
                updates.append((*_values(page), id))
        else:
            _, url, host, depth, block, extra = places[job][key]
            place = (ids.take("known"), job, key, url, host, depth, block.encode(), extra)
            inserts.append((*place, *_values(page)))
    session.insert_many("known_pages", f"{_PLACE}, {_STATES}", inserts)
    session.update_many("known_pages", _STATE, "id", updates)


def remember_unasked(session: Session, ids: Taker, run: OfJob, seqs: Sequence[int]) -> None:
    """Store requests that were still queued when a run ended, for the next run."""
    dead = RequestState.DEAD  # stored like a failure, because the page was not fetched
    remember(session, ids, [(seq, run, dead, 0, "", None) for seq in seqs], 0.0)


def forget(session: Session, job: int, limit: int) -> int:
    """Remove up to `limit` pages of a deleted job; return how many there were."""
    select = "SELECT id FROM known_pages WHERE job = ? LIMIT ?"
    ids = [id for (id,) in session.all(select, (job, limit))]
    session.run_in("DELETE FROM known_pages WHERE id IN ({})", (), ids)
    return len(ids)


# ---------------------------------------------------------------- reading


def read_known(session: Session, query: ReadKnown) -> KnownPages:
    rows = session.all(
        "SELECT k.id, k.url, k.url_key, h.origin, k.depth, k.label, k.extra FROM known_pages k "
        "JOIN hosts h ON h.id = k.host WHERE k.job = ? AND k.id > ? AND k.gone = 0 "
        "ORDER BY k.id LIMIT ?",
        (query.job, query.after, query.limit),
    )
    return KnownPages(
        [
            KnownRow(id, url.decode(), key, origin.decode(), depth, block.decode(), extra or b"")
            for id, url, key, origin, depth, block, extra in rows
        ]
    )
