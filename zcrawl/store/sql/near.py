"""Read and write the fingerprints of a run's pages, within the transaction of a batch.

A part of `apply`, used only for runs that look for near duplicates. `store.near` makes the
decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from zcrawl.model.spec import OFF
from zcrawl.store.commands import Change
from zcrawl.store.near import MOST_IN_BAND, Original, bands, fingerprint_in, judged, nearest
from zcrawl.store.rules import duplicates_of
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.rows import RunRecord


class NearPages:
    def __init__(
        self, session: Session, changes: Iterable[Change], runs: Mapping[int, RunRecord]
    ) -> None:
        self.skipped: list[int] = []  # requests skipped here, although their results said done
        self._session = session
        self._rules = {id: duplicates_of(run.spec) for id, run in runs.items()}
        self._originals: dict[tuple[int, int], list[Original]] = defaultdict(list)
        self._inserts: list[tuple[Any, ...]] = []
        bands_by_run: dict[int, dict[int, None]] = defaultdict(dict)
        for change in changes:
            fingerprint = fingerprint_in(change)
            if fingerprint and self._asks(change.run):
                bands_by_run[change.run].update(dict.fromkeys(bands(fingerprint)))
        select = (
            "SELECT f.band, f.fingerprint, f.seq, q.url FROM fingerprints f "
            "JOIN requests q ON q.seq = f.seq WHERE f.run = ? AND f.band IN ({})"
        )
        for run, of_run in bands_by_run.items():
            for band, fingerprint, seq, url in session.all_in(select, (run,), of_run):
                self._originals[(run, band)].append(Original(fingerprint, seq, url.decode()))

    def _asks(self, run: int) -> bool:
        return run in self._rules and self._rules[run].near != OFF

    def judge(self, change: Change, url: bytes) -> Change:
        """Return the change as the job wants it; a page without near duplicates is an original."""
        if not self._asks(change.run):
            return change
        rules, fingerprint = self._rules[change.run], fingerprint_in(change)
        original = None
        if fingerprint:
            places = [(change.run, band) for band in bands(fingerprint)]
            met = (candidate for place in places for candidate in self._originals.get(place, ()))
            original = nearest(fingerprint, met, rules)
            if original is None:
                new = Original(fingerprint, change.seq, url.decode())
                for place in places:
                    if len(self._originals[place]) < MOST_IN_BAND:
                        self._originals[place].append(new)
                        self._inserts.append((*place, change.seq, fingerprint))
        verdict = judged(change, original, rules)
        if verdict.state is not change.state:
            self.skipped.append(change.seq)
        return verdict

    def save(self) -> None:
        self._session.insert_many("fingerprints", "run, band, seq, fingerprint", self._inserts)


def forget_fingerprints(session: Session, run: int, limit: int) -> bool:
    """Remove about `limit` rows of a deleted run; return whether there were any."""
    select = "SELECT band FROM fingerprints WHERE run = ? ORDER BY band LIMIT ?"
    rows = session.all(select, (run, limit))
    if rows:
        session.run("DELETE FROM fingerprints WHERE run = ? AND band <= ?", (run, rows[-1][0]))
    return bool(rows)
