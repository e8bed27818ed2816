"""What a live display needs to know, out of snapshots: totals of some runs, and a rate over time.

Pure: times come in as arguments. `display` draws it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

BARS: Final = "▁▂▃▄▅▆▇█"
SAMPLE_S: Final = 0.5
SAMPLES: Final = 40
WINDOW_S: Final = 3.0  # the shown rate is that of the last seconds


class Totals(msgspec.Struct, frozen=True):
    """Some runs, added up."""

    pages: int = 0
    items: int = 0
    failed: int = 0
    skipped: int = 0
    queued: int = 0
    in_flight: int = 0
    bytes: int = 0


def totals(snapshot: Mapping[str, Any], runs: Collection[int]) -> Totals:
    rows = [row for row in snapshot["runs"] if row["run"] in runs]
    names = Totals.__struct_fields__
    return Totals(**{name: sum(row[name] for row in rows) for name in names})


def tally(snapshot: Mapping[str, Any], key: str, runs: Collection[int]) -> dict[str, int]:
    """`statuses` or `failed` of some runs, added up. Keys of runs may be numbers or text."""
    added: Counter[str] = Counter()
    for run, counts in snapshot.get(key, {}).items():
        if int(run) in runs:
            for name, number in counts.items():
                added[str(name)] += number
    return dict(added.most_common())


class RateMeter:
    """Pages per second, now and in a short history. Fed by whoever looks at snapshots."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._sampled: tuple[float, int] | None = None

    def feed(self, now: float, pages: int) -> None:
        self._recent.append((now, pages))
        while len(self._recent) > 2 and self._recent[1][0] <= now - WINDOW_S:
            self._recent.popleft()
        if self._sampled is None:
            self._sampled = (now, pages)
        at, before = self._sampled
        if now - at >= SAMPLE_S:
            self._samples.append(max(0.0, (pages - before) / (now - at)))
            self._sampled = (now, pages)

    def rate(self) -> float:
        if len(self._recent) < 2:
            return 0.0
        (start, before), (end, after) = self._recent[0], self._recent[-1]
        return max(0.0, (after - before) / (end - start)) if end > start else 0.0

    def samples(self) -> list[float]:
        return list(self._samples)


def sparkline(samples: Sequence[float]) -> str:
    """Bars from 0 to the highest sample; nothing happening is a flat line, not a full one."""
    top = max(samples, default=0.0)
    if top <= 0:
        return BARS[0] * len(samples)
    last = len(BARS) - 1
    return "".join(BARS[min(last, round(sample / top * last))] for sample in samples)
