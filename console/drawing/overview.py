"""The overview in lines: is it healthy, how fast, what limits it, what needs you. Pure.

`screens.overview` puts each part into a panel of its own.
"""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from typing import Final

from console.attention import attention
from console.columns.cells import LEVEL_MARK, LEVEL_STYLE, STATE_STYLE
from console.columns.outcomes import log_rows
from console.drawing.bars import bar
from console.drawing.chart import chart
from console.drawing.heat_map import STATES, common_prefix, layout, legend, tile_row
from console.drawing.limits import limit_rows
from console.drawing.lines import Line, Picture, Span, line, line_width, title
from console.drawing.measures import PAGES, QUEUE, recent_data
from console.drawing.panel_row import PanelRow
from console.drawing.workers import tiles
from console.limits import limits
from console.plain import fit, plain
from console.rates import Rates
from console.state import ConsolePage, LinkState, Place, View
from console.tables import number, text
from console.units import clock_text, count, duration, percent, rate, size
from zcrawl.model.snapshot import LiveRunView, PublishedSnapshot

WITH_FAILED: Final = 90  # cells from which on a job shows its failures
NARROW: Final = 100
ROOMY: Final = 150
SPAN_S: Final = 900  # of the charts
MOST_ROWS: Final = 10_000  # of a part
TEXT_ROWS: Final = 12  # of a part, where the page is printed
RUN_MARK: Final = {
    "running": "▶",
    "paused": "‖",
    "completed": "✔",
    "cancelled": "■",
    "pending": "·",
    "failed": "✗",
}
SEPARATOR: Final = Span(" │ ", "rest")


def banner(view: View) -> Line:
    """What has to be seen from across the room: no leader, or no database. Empty when all is well.

    During a failover the figures below it are old, and this says how old.
    """
    snapshot, link = view.content.snapshot, view.link
    if link.state is LinkState.LOST:
        since = duration(max(0.0, view.clock - link.since))
        return line(Span(f" ▲ No leader for {since}: {plain(link.text)}", "tile-bad"))
    if snapshot is not None and snapshot.store.error:
        since = duration(snapshot.store.since_s)
        error = plain(snapshot.store.error, 200)
        return line(Span(f" ▲ The database fails for {since}: {error}. Retrying.", "tile-bad"))
    return ()


# ---------------------------------------------------------------- is it healthy


def cluster_lines(view: View, cells: int) -> Picture:
    """Who leads, who is there, what they do."""
    snapshot = view.content.snapshot
    if snapshot is None:
        return [line(Span(f" {plain(view.link.text) or 'connecting'}", "warn"))]
    health, figures = _health(view, snapshot, cells), _figures(view, snapshot)
    if cells < NARROW:  # two lines for all of it; the charts have the rest
        return _packed([*health, *figures[1:4]], cells)
    return [*_packed(health, cells), *_packed(figures, cells)]


def _health(view: View, snapshot: PublishedSnapshot, cells: int) -> list[Line]:
    levels = {matter.level for matter in attention(view)}
    if view.link.state is LinkState.LOST:
        verdict = Span("✖ no leader", "bad")
    elif "bad" in levels:
        verdict = Span("✖ needs you", "bad")
    elif "warn" in levels:
        verdict = Span("▲ needs a look", "warn")
    else:
        verdict = Span("● healthy", "good")
    store = snapshot.store
    leader = line(
        Span("leader ", "dim"),
        Span(plain(snapshot.leader, 40), "bold"),
        Span(f" epoch {snapshot.epoch}", "dim"),
    )
    return [
        (verdict,),
        *([leader] if cells >= ROOMY else []),  # else only the line at the top has it
        _masters(snapshot),
        _workers(snapshot, cells),
        line(
            Span("database ", "dim"),
            Span("✖ failing", "bad") if store.error else Span("● ok", "good"),
        ),
    ]


def _masters(snapshot: PublishedSnapshot) -> Line:
    """Consul's view of the masters; an embedded cluster has neither."""
    if not snapshot.masters:
        return line(Span("embedded", "dim"))
    passing = sum(master.healthy for master in snapshot.masters)
    style = "good" if passing == len(snapshot.masters) else "bad"
    mark = "●" if style == "good" else "✖"
    return line(
        Span("Consul ", "dim"),
        Span(f"{mark} {passing} of {len(snapshot.masters)} masters", style),
    )


def _workers(snapshot: PublishedSnapshot, cells: int) -> Line:
    """How many are in each state; where there is little room, only trouble has a word."""
    states = Counter(worker.state for worker in snapshot.workers)
    spans = [Span("workers", "dim")]
    for state, workers in states.most_common():
        glyph = STATES.get(state, ("▶", ""))[0]
        style = STATE_STYLE.get(state, "")
        named = cells >= ROOMY or (style == "bad" and cells >= NARROW)
        word = f" {plain(state, 12)}" if named else ""
        spans.append(Span(f" {glyph} {workers}{word}", style))
    unseen = snapshot.workers_total - len(snapshot.workers)
    if unseen > 0:
        spans.append(Span(f" and {unseen} more", "dim"))
    return tuple(spans) if states else line(Span("workers ", "dim"), Span("✖ none", "bad"))


def _figures(view: View, snapshot: PublishedSnapshot) -> list[Line]:
    rates = view.content.rates
    live = [run for run in snapshot.runs if not run.ended]
    slots = sum(worker.slots for worker in snapshot.workers if worker.state in ("busy", "idle"))
    failed = rates.smooth("failed_s")
    return [
        line(Span(rate(rates.smooth("pages_s")), "bold"), Span(" pages/s", "dim")),
        line(Span(rate(failed), "bad" if failed >= 0.05 else "bold"), Span(" failed/s", "dim")),
        line(Span(f"{size(rates.smooth('bytes_s'))}/s", "bold")),
        line(
            Span(count(sum(run.fetching for run in live)), "bold"),
            Span(f" fetching of {count(slots)} slots", "dim"),
        ),
        line(
            Span(count(sum(run.waiting for run in live)), "bold"),
            Span(" waiting ", "dim"),
            Span(count(sum(run.uncommitted for run in live)), "bold"),
            Span(" uncommitted", "dim"),
        ),
        line(Span(count(sum(run.queued for run in live)), "bold"), Span(" queued", "dim")),
    ]


def _packed(parts: list[Line], cells: int) -> Picture:
    """The parts in as few lines as they need."""
    lines: list[list[Span]] = [[Span(" ")]]
    for part in parts:
        taken = line_width(tuple(lines[-1]))
        if len(lines[-1]) > 1 and taken + 3 + line_width(part) > cells:
            lines.append([Span(" ")])
        if len(lines[-1]) > 1:
            lines[-1].append(SEPARATOR)
        lines[-1] += part
    return [tuple(spans) for spans in lines]


# ---------------------------------------------------------------- what needs you


def attention_rows(view: View) -> list[PanelRow]:
    """Each with the place that shows more; a good word when there is nothing."""
    if view.content.snapshot is None:
        return []
    rows = [
        PanelRow(
            line(
                Span(f" {LEVEL_MARK[matter.level]} ", matter.level),
                Span(matter.text, "" if matter.level == "warn" else "bold"),
            ),
            matter.place,
        )
        for matter in attention(view)
    ]
    return rows or [PanelRow(line(Span(" ● nothing", "good")))]


# ---------------------------------------------------------------- jobs and events


def job_rows(view: View, cells: int, rows: int = MOST_ROWS) -> list[PanelRow]:
    """The newest runs, those that run first, with progress, rate and time left: so many of them."""
    snapshot = view.content.snapshot
    if snapshot is None:
        return []
    runs = nsmallest(
        rows, snapshot.runs, key=lambda run: (run.ended, run.state != "running", -run.run)
    )
    drawn = [PanelRow(_job(run, view.content.rates, cells), _job_place(run)) for run in runs]
    empty = PanelRow(line(Span(" none: n submits one, or `zcrawl submit URL`", "dim")))
    return drawn or [empty]


def _job_place(run: LiveRunView) -> Place:
    row = (("job", run.job), ("run", run.run), ("name", run.name), ("state", run.state))
    return Place(ConsolePage.JOB, str(run.run), row)


def _job(run: LiveRunView, rates: Rates, cells: int) -> Line:
    style = STATE_STYLE.get(run.state, "")
    speed = "" if run.ended else f"{rate(rates.by_run.get(run.run, 0.0))}/s"
    failed = f"{count(run.failed)} failed" if run.failed else ""
    right = [
        Span(f"{percent(run.share):>6}"),
        Span(f"{speed:>9}", "bold"),
        Span(f"{_left(run, rates):>12}", "dim"),
        Span(f"{count(run.pages):>8}", "bold"),
        Span(" pages", "dim"),
    ]
    if cells >= WITH_FAILED:
        right.append(Span(f"{failed:>15}", "bad"))
    state = fit(plain(run.state, 10), 11)
    room = cells - line_width(tuple(right)) - len(state) - 4
    name = max(8, min(36, room - 6, room * 2 // 3))
    return (
        Span(f" {RUN_MARK.get(run.state, '•')} ", style),
        Span(fit(plain(run.name), name) + " "),
        Span(state, style),
        *bar(run.share, max(2, room - name), "bar" if run.state == "running" else "dim"),
        *right,
    )


def _left(run: LiveRunView, rates: Rates) -> str:
    """When it will be done, or how long it took."""
    if run.ended:
        return f"in {duration(run.seconds)}"
    speed = rates.final_by_run.get(run.run, 0.0)
    return f"ETA {duration(run.left / speed)}" if speed > 0 else ""


def event_rows(view: View, rows: int = MOST_ROWS) -> list[PanelRow]:
    """So many events, the newest first."""
    drawn = []
    for row in log_rows(view)[:rows]:
        style = LEVEL_STYLE.get(text(row, "level"), "")
        times = f"  × {number(row, 'times'):.0f}" if number(row, "times") > 1 else ""
        spans = line(
            Span(f" {clock_text(number(row, 'at')):8} ", "dim"),
            Span(f"{LEVEL_MARK.get(style, ' ')} ", style),
            Span(f"{fit(text(row, 'source'), 10)} ", "dim"),
            Span((text(row, "text") or text(row, "name")) + times, style),
        )
        drawn.append(PanelRow(spans))
    return drawn or [PanelRow(line(Span(" nothing yet", "dim")))]


# ---------------------------------------------------------------- all of it, as text


def overview_text(view: View, cells: int) -> Picture:
    """The parts one below the other: what `--snapshot` prints."""
    history = view.content.answers.get("overview:history")
    stored = history.data if history is not None else None
    samples = view.content.rates.samples
    snapshot = view.content.snapshot
    parts: list[tuple[str, Picture]] = [("Cluster", cluster_lines(view, cells))]
    if banner(view):
        parts.insert(0, ("", [banner(view)]))
    parts += [
        (measure.title, chart(recent_data(measure, stored, samples, SPAN_S), cells, TEXT_ROWS))
        for measure in (PAGES, QUEUE)
    ]
    parts += [
        ("Why not faster", [row.line for row in limit_rows(limits(view), cells, TEXT_ROWS)]),
        ("Needs you", [row.line for row in attention_rows(view)]),
        ("Jobs", [row.line for row in job_rows(view, cells)]),
        ("Events", [row.line for row in event_rows(view, TEXT_ROWS)]),
    ]
    if snapshot is not None and snapshot.workers:
        workers = tiles(view)
        shape = layout(len(workers), cells, TEXT_ROWS)
        prefix = common_prefix([tile.name for tile in workers])
        used = -(-shape.shown // shape.columns)
        rows = [tile_row(workers, row, shape, prefix, -1, -1) for row in range(used)]
        total = max(snapshot.workers_total, len(workers))
        parts.insert(-1, ("Workers", [*rows, legend(workers, total, cells)]))
    lines: Picture = []
    for name, picture in parts:
        lines += [title(name, cells), *picture] if name else picture
    return lines
