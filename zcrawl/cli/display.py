"""The display of a running crawl: a live table on a terminal, a line every two seconds elsewhere,
nothing with --json. All of it goes to stderr.

A display gets snapshots and sends no requests, so the crawl loses only the time of drawing, four
times a second.

The totals of runs and the rate are computed from the snapshots; times come in as arguments.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from zcrawl.cli import output
from zcrawl.text.terminal import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zcrawl.model.snapshot import EmbeddedSnapshot, WorkerView


BARS: Final = "▁▂▃▄▅▆▇█"
SAMPLE_S: Final = 0.5
SAMPLES: Final = 40
WINDOW_S: Final = 3.0  # the shown rate is the average over this time


class Totals(msgspec.Struct, frozen=True):
    """The sums over some runs."""

    pages: int = 0
    items: int = 0
    failed: int = 0
    skipped: int = 0
    queued: int = 0
    in_flight: int = 0
    fetching: int = 0
    waiting: int = 0
    uncommitted: int = 0
    bytes: int = 0


def totals(snapshot: EmbeddedSnapshot, runs: Collection[int]) -> Totals:
    views = [run for run in snapshot.runs if run.run in runs]
    names = Totals.__struct_fields__
    return Totals(**{name: sum(getattr(run, name) for run in views) for name in names})


def share(snapshot: EmbeddedSnapshot, runs: Collection[int]) -> float:
    """The progress of some runs together, 0 to 1: each counts by its admitted requests."""
    views = [run for run in snapshot.runs if run.run in runs]
    admitted = sum(run.admitted for run in views)
    return sum(run.share * run.admitted for run in views) / admitted if admitted else 0.0


def progress(snapshot: EmbeddedSnapshot, runs: Collection[int], meter: RateMeter) -> str:
    """`40 %, ETA 3:20`: the ETA at the present rate, if there is one."""
    left = sum(run.left for run in snapshot.runs if run.run in runs and not run.ended)
    rate = meter.rate()
    eta = f", ETA {output.clock(left / rate)}" if rate > 0 and left else ""
    return f"{share(snapshot, runs) * 100:.0f} %{eta}"


def limit(snapshot: EmbeddedSnapshot, runs: Collection[int]) -> str:
    """The first reason why the crawl is not faster; empty if nothing limits it."""
    return next((run.why for run in snapshot.runs if run.run in runs and run.why), "")


def tally(counts_by_run: Mapping[str, Mapping[str, int]], runs: Collection[int]) -> dict[str, int]:
    """Add up the `statuses` or `failed` of some runs."""
    added: Counter[str] = Counter()
    for run, counts in counts_by_run.items():
        if int(run) in runs:
            added.update(counts)
    return dict(added.most_common())


class RateMeter:
    """Pages per second, now and in a short history. The reader of snapshots calls `feed`."""

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
    """Return bars from 0 to the highest sample; without any pages, a flat line at the bottom."""
    top = max(samples, default=0.0)
    if top <= 0:
        return BARS[0] * len(samples)
    last = len(BARS) - 1
    return "".join(BARS[min(last, round(sample / top * last))] for sample in samples)


DRAW_S: Final = 0.25
LINE_S: Final = 2.0
MAX_WORKERS: Final = 16  # rows; a terminal has about 50


class Display(Protocol):
    def show(self, snapshot: EmbeddedSnapshot, runs: Collection[int]) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def make_display(as_json: bool, verbose: bool, to_stdout: bool) -> Display:
    """Return the display. With `to_stdout` the items fill the terminal, so no table is drawn."""
    if (as_json and not verbose) or (to_stdout and sys.stdout.isatty()):
        return Silent()
    return LiveTable() if sys.stderr.isatty() and not as_json else LineDisplay()


class Silent:
    """The display for programs: prints only notes for people, such as how to resume."""

    def __init__(self) -> None:
        self._noted = ""

    def show(self, snapshot: EmbeddedSnapshot, runs: Collection[int]) -> None:
        missing = lacking(snapshot)
        if missing and missing != self._noted:  # printed once, because the run may wait for ever
            output.note(missing)
            self._noted = missing

    def note(self, text: str) -> None:
        output.note(text)

    def close(self) -> None:
        pass


class LineDisplay(Silent):
    """The display for logs and pipes."""

    def __init__(self) -> None:
        self._meter = RateMeter()
        self._next = time.monotonic() + LINE_S

    def show(self, snapshot: EmbeddedSnapshot, runs: Collection[int]) -> None:
        now = time.monotonic()
        sums = totals(snapshot, runs)
        self._meter.feed(now, sums.pages)
        if now >= self._next:
            self._next = now + LINE_S
            output.note(line(snapshot, runs, self._meter))


def line(snapshot: EmbeddedSnapshot, runs: Collection[int], meter: RateMeter) -> str:
    sums = totals(snapshot, runs)
    text = (
        f"{progress(snapshot, runs, meter)}, {output.plural(sums.pages, 'page')}, "
        f"{meter.rate():.1f}/s, {sums.queued} queued, {sums.fetching} fetching, "
        f"{sums.waiting} waiting, {sums.uncommitted} uncommitted, {sums.failed} failed, "
        f"{sums.skipped} skipped"
    )
    reason = limit(snapshot, runs)
    slow = f"not faster because of {reason}" if reason else ""
    notes = [note for note in (waiting(snapshot) or slow, trouble(snapshot)) if note]
    return "; ".join((text, *notes))


def waiting(snapshot: EmbeddedSnapshot) -> str | None:
    """Return why no page is fetched: no worker can do it, or all URLs wait for a retry."""
    missing = lacking(snapshot)
    if missing:
        return missing
    next_retry_s = snapshot.next_retry_s
    idle = not any(run.in_flight for run in snapshot.runs)
    if next_retry_s is None or next_retry_s < 1 or not idle:
        return None
    return f"waiting {next_retry_s:.0f} s for the next retry"


def lacking(snapshot: EmbeddedSnapshot) -> str:
    """Return the plugin or spider that a run waits for, because no worker has it."""
    return next((run.waits for run in snapshot.runs if run.waits), "")


def trouble(snapshot: EmbeddedSnapshot) -> str | None:
    """Return the failure that is being retried now, or None."""
    mishaps = snapshot.mishaps
    if mishaps.in_row > 1:
        return f"the leader failed {mishaps.in_row} times in a row: {mishaps.last}"
    for trouble in snapshot.outputs.troubles:
        return (
            f"run {trouble.run}: its output cannot be written [{trouble.error}]: {trouble.detail}"
        )
    store = snapshot.store
    if not store.error:
        return None
    return f"the store has failed for {store.since_s:.0f} s [{store.error}], retrying"


class LiveTable:
    """The display for people. The first snapshot opens it, so a failed start draws nothing."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        # rich must not redirect stdout, because the items may go there.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._meter = RateMeter()
        self._next = 0.0

    def show(self, snapshot: EmbeddedSnapshot, runs: Collection[int]) -> None:
        now = time.monotonic()
        self._meter.feed(now, totals(snapshot, runs).pages)
        if now < self._next:
            return
        self._next = now + DRAW_S
        if not self._live.is_started:
            self._live.start()
        self._live.update(draw(snapshot, runs, self._meter), refresh=True)

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(shown(text)), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def draw(snapshot: EmbeddedSnapshot, runs: Collection[int], meter: RateMeter) -> RenderableType:
    """Return the live table. Foreign text becomes Text, because it may look like markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    sums = totals(snapshot, runs)
    names = dict.fromkeys(run.name for run in snapshot.runs if run.run in runs)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("crawl", Text(shown(", ".join(names)), style="bold"))
    facts.add_row("progress", Text(progress(snapshot, runs, meter)))
    items = output.plural(sums.items, "item")
    facts.add_row("pages", f"{sums.pages:,}   {output.size(sums.bytes)}   {items}")
    facts.add_row("rate", Text(f"{meter.rate():,.1f}/s  {sparkline(meter.samples())}"))
    pause = waiting(snapshot)
    queue = (
        f"{sums.queued:,} queued   {sums.fetching:,} fetching   {sums.waiting:,} waiting   "
        f"{sums.uncommitted:,} uncommitted"
    )
    facts.add_row("queue", Text(shown(f"{queue}   {pause}" if pause else queue)))
    reason = limit(snapshot, runs)
    if reason:
        facts.add_row("limit", Text(shown(reason)))
    statuses = tally(snapshot.statuses, runs)
    if statuses:
        facts.add_row("status", Text(shown(output.counts(statuses))))
    failed = tally(snapshot.failed, runs)
    text = shown(output.counts(failed, 5)) if failed else "none"
    facts.add_row("failed", Text(text, style="red" if failed else ""))
    facts.add_row("skipped", f"{sums.skipped:,}")
    fails = trouble(snapshot)
    if fails:
        facts.add_row("trouble", Text(shown(fails), style="bold red"))
    return Group(facts, Text(""), _workers(snapshot.workers))


def _workers(workers: Sequence[WorkerView]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("worker", "state", "fetching", "waiting", "rate", "cpu", "memory", "lag"):
        side: Literal["left", "right"] = "left" if name in ("worker", "state") else "right"
        table.add_column(name, justify=side, no_wrap=True)
    for worker in workers[:MAX_WORKERS]:
        table.add_row(
            Text(shown(worker.id)),
            Text(shown(worker.state), style="red" if worker.state in ("suspect", "lost") else ""),
            f"{worker.running}/{worker.slots}",
            str(worker.waiting),
            f"{worker.rate:.0f}/s",
            "" if worker.cpu_percent is None else f"{worker.cpu_percent:.0f} %",
            output.size(worker.rss_bytes),
            f"{worker.lag_ms:.0f} ms",
        )
    if len(workers) > MAX_WORKERS:
        table.add_row(Text(f"and {len(workers) - MAX_WORKERS} more"))
    return table
