"""Examples of tallies: the first requests of each reason, with what happened to them.

Written in the transaction that ends the request, so that neither a failover nor a result that
comes twice changes them. Most batches have none and pay nothing. An example leaves when its
request is tried again, is found to be another's page, or is deleted with its run.
"""

from __future__ import annotations

from zcrawl.store.queries import ExampleRow
from zcrawl.store.rules import MOST_EXAMPLE_REASONS, MOST_EXAMPLES
from zcrawl.store.sql.dialects.dialect import Session

Key = tuple[int, str, str]  # (run, kind, name), as in `tallies`


class Examples:
    """What one transaction adds and drops; `save` writes it: first what goes, then what fits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._new: dict[Key, dict[int, str]] = {}  # seq → detail, in the order of the results
        self._dropped: dict[int, list[int]] = {}  # run → seqs

    def add(self, key: Key, seq: int, detail: str) -> None:
        """Offer a request as an example. It is kept while there is room."""
        self._new.setdefault(key, {}).setdefault(seq, detail)

    def drop(self, run: int, seq: int) -> None:
        """The request does not end so any more."""
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
    """Of each tally the example with the lowest number, by kind and name."""
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
    """What happened to requests that failed or were skipped: number → detail."""
    select = "SELECT seq, detail FROM examples WHERE run = ? AND kind IN ('failed', 'skipped')"
    return dict(session.all(select, (run,)))
