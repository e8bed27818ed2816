"""Rates out of counters: what the reducer keeps of earlier snapshots. Pure.

Counters are stored with the results, so a new leader goes on where the old one ended; a run that
leaves the snapshot takes its counters with it, so rates are added up run by run.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.model.snapshot import PublishedSnapshot

SAMPLES: Final = 300  # one a second: what a sparkline can show
WINDOW_S: Final = 5.0  # the shown rate is that of the last seconds


class Sample(msgspec.Struct, frozen=True):
    """One second of the cluster."""

    at: float
    pages_s: float = 0.0
    failed_s: float = 0.0
    bytes_s: float = 0.0
    queued: int = 0
    fetching: int = 0
    waiting: int = 0
    uncommitted: int = 0


class Counts(msgspec.Struct, frozen=True):
    at: float
    runs: dict[int, tuple[int, int, int, int]]  # run → pages, failed, bytes, final


class Rates(msgspec.Struct, frozen=True):
    """What was measured, and the counters it was measured from, oldest first."""

    samples: tuple[Sample, ...] = ()
    recent: tuple[Counts, ...] = ()
    by_run: dict[int, float] = {}  # pages a second
    final_by_run: dict[int, float] = {}  # requests that became final a second

    @property
    def now(self) -> Sample:
        return self.samples[-1] if self.samples else Sample(0.0)

    def smooth(self, name: str) -> float:
        """The mean over the window of what `name` says of a sample."""
        since = self.now.at - WINDOW_S
        values = [getattr(sample, name) for sample in self.samples if sample.at > since]
        return sum(values) / len(values) if values else 0.0


def measure(rates: Rates, snapshot: PublishedSnapshot) -> Rates:
    counts = Counts(
        snapshot.at,
        {run.run: (run.pages, run.failed, run.bytes, run.final) for run in snapshot.runs},
    )
    before = rates.recent[-1] if rates.recent else None
    passed = counts.at - before.at if before is not None else 0.0
    if before is not None and passed <= 0:
        return rates  # the same moment again, or a clock that went back: nothing to measure
    sample = Sample(
        at=snapshot.at,
        queued=sum(run.queued for run in snapshot.runs),
        fetching=sum(run.fetching for run in snapshot.runs),
        waiting=sum(run.waiting for run in snapshot.runs),
        uncommitted=sum(run.uncommitted for run in snapshot.runs),
    )
    if before is not None:
        grown = [
            tuple(map(_rise, before.runs[run], now))
            for run, now in counts.runs.items()
            if run in before.runs
        ]
        sample = msgspec.structs.replace(
            sample,
            pages_s=sum(growth[0] for growth in grown) / passed,
            failed_s=sum(growth[1] for growth in grown) / passed,
            bytes_s=sum(growth[2] for growth in grown) / passed,
        )
    recent = tuple(
        entry for entry in (*rates.recent, counts) if entry.at > counts.at - WINDOW_S - 0.5
    )
    samples = (*rates.samples, sample) if before is not None else rates.samples
    return Rates(
        samples=samples[-SAMPLES:],
        recent=recent,
        by_run=_per_run(recent, 0),
        final_by_run=_per_run(recent, 3),
    )


def _rise(before: int, now: int) -> int:
    return max(0, now - before)


def _per_run(recent: tuple[Counts, ...], which: int) -> dict[int, float]:
    rates: dict[int, float] = {}
    last = recent[-1]
    for run, counts in last.runs.items():
        first = next(entry for entry in recent if run in entry.runs)
        passed = last.at - first.at
        risen = _rise(first.runs[run][which], counts[which])
        rates[run] = risen / passed if passed > 0 else 0.0
    return rates
