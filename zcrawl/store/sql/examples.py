"""Examples of tallies: the first requests of each reason, with what happened to them.

Written in the transaction that ends the request, so that neither a failover nor a repeated result
changes them. Most batches have none and cost nothing. An example is removed when its request is
tried again, turns out to be a duplicate, or is deleted with its run.
"""

from __future__ import annotations

from zcrawl.store.queries import ExampleRow
from zcrawl.store.rules import MOST_EXAMPLE_REASONS, MOST_EXAMPLES
from zcrawl.store.sql.dialects.dialect import Session

Key = tuple[int, str, str]  # (run, kind, name), as in `tallies`


class Examples:
    """The examples that one transaction adds and drops; `save` drops first, then adds."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._new: dict[Key, dict[int, str]] = {}  # seq → detail, in the order of the results
        self._dropped: dict[int, list[int]] = {}  # run → seqs

    def add(self, key: Key, seq: int, detail: str) -> None:
        """Offer a request as an example. It is stored if there is room."""
        self._new.setdefault(key, {}).setdefault(seq, detail)

    def drop(self, run: int, seq: int) -> None:
        """Remove the example of a request that now ends in another way."""
        self._dropped.setdefault(run, []).append(seq)
        for key in [key for key in self._new if key[0] == run]:
            self._new[key].pop(seq, None)
            if not self._new[key]:
                del self._new[key]

    def save(self) -> None:
        for run, seqs in self._dropped.items():
            self._session.run_in("DELETE FROM examples WHERE run = ? AND seq IN ({})", (run,), seqs)
        if not self._new:
            return
        select = "SELECT run, kind, name, COUNT(*) FROM examples WHERE run IN ({}) "
        runs = dict.fromkeys(run for run, _, _ in self._new)
        counts: dict[Key, int] = {}
        reasons: dict[tuple[int, str], int] = {}
        stored_counts = self._session.all_in(select + "GROUP BY run, kind, name", (), runs)
        for run, kind, name, count in stored_counts:
            counts[(run, kind, name)] = count
            reasons[(run, kind)] = reasons.get((run, kind), 0) + 1
        rows: list[tuple[int, str, str, int, str]] = []
        for key, offered in self._new.items():
            room = MOST_EXAMPLES - counts.get(key, 0)
            if key not in counts:
                number = reasons.get(key[:2], 0)
                room = room if number < MOST_EXAMPLE_REASONS else 0
                reasons[key[:2]] = number + 1
            rows += [(*key, seq, detail) for seq, detail in list(offered.items())[: max(0, room)]]
        self._session.insert_many("examples", "run, kind, name, seq, detail", rows)


def first_examples(session: Session, run: int) -> list[ExampleRow]:
    """Return the example with the lowest number for each tally, by kind and name."""
    rows = session.all(
        "SELECT e.kind, e.name, q.url, e.detail FROM examples e JOIN requests q ON q.seq = e.seq "
        "WHERE e.run = ? AND e.seq = (SELECT MIN(o.seq) FROM examples o WHERE o.run = e.run "
        "AND o.kind = e.kind AND o.name = e.name)",
        (run,),
    )
    return sorted(
        (ExampleRow(kind, name, url.decode(), detail) for kind, name, url, detail in rows),
        key=lambda row: (row.kind, row.name),
    )


def kept_details(session: Session, run: int) -> dict[int, str]:
    """Return the details of requests that failed or were skipped: number → detail."""
    select = "SELECT seq, detail FROM examples WHERE run = ? AND kind IN ('failed', 'skipped')"
    return dict(session.all(select, (run,)))
