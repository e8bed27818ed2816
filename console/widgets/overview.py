"""The body of the overview: panels in a grid that fits the size of the screen.

80 × 24 has what matters most, 120 × 35 adds latency and events, 200 × 50 the map of the workers and
failures. The breakpoints are classes of the screen; the grid is in the CSS below.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from console.drawing.limits import limit_rows
from console.drawing.lines import Span, line_width
from console.drawing.measures import FAILURES, LATENCY, PAGES, QUEUE, recent_data
from console.drawing.overview import (
    SPAN_S,
    attention_rows,
    banner,
    cluster_lines,
    event_rows,
    job_rows,
)
from console.drawing.workers import tiles
from console.limits import limits
from console.state import Known, Link, View
from console.widgets.chart import Chart
from console.widgets.heat_map import HeatMap
from console.widgets.painted import Painted
from console.widgets.panel import Panel, PanelList

CHARTS = (PAGES, QUEUE, LATENCY, FAILURES)


class OverviewBody(Container):
    """Is it healthy, how fast, what limits it, what needs you."""

    SCOPED_CSS = False  # the breakpoints are classes of the screen
    DEFAULT_CSS = """
    OverviewBody {
        height: 1fr;
        layout: vertical;
        & > #banner { height: 1; display: none; }
        & > #banner.-shown { display: block; }
        & > #grid {
            layout: grid;
            height: 1fr;
            grid-size: 2;
            grid-rows: 4 7fr 5 5fr;
            & > #cluster { column-span: 2; }
            & > #latency, & > #failures, & > #workers, & > #events { display: none; }
            & > #jobs { column-span: 2; }
        }
    }
    .-normal OverviewBody > #grid {
        grid-size: 6;
        grid-rows: 4 1fr 7 6 6;
        & > #cluster { column-span: 6; }
        & > #pages, & > #queue, & > #latency { column-span: 2; display: block; }
        & > #limits, & > #attention { column-span: 3; }
        & > #jobs, & > #events { column-span: 6; display: block; }
    }
    .-wide OverviewBody > #grid {
        grid-size: 4;
        grid-rows: 4 1fr 9 1fr 9;
        & > #cluster { column-span: 4; }
        & > #pages, & > #queue, & > #latency, & > #failures { column-span: 1; display: block; }
        & > #limits, & > #attention { column-span: 2; }
        & > #jobs, & > #workers { column-span: 2; display: block; }
        & > #events { column-span: 4; display: block; }
    }
    .-normal.-short OverviewBody > #grid, .-wide.-short OverviewBody > #grid {
        grid-rows: 4 1fr 6 1fr;
        & > #events { display: none; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        # What was shown last, and how large: the same again need not be drawn.
        self._content: Known | None = None
        self._link: Link | None = None
        self._sizes: list[tuple[bool, Size]] = []

    def compose(self) -> ComposeResult:
        """Put a panel for each question."""
        yield Painted(id="banner")
        with Container(id="grid"):
            yield Panel("Cluster", id="cluster")
            for measure in CHARTS:
                yield Chart(measure.title, id=measure.key)
            yield PanelList("Why not faster", id="limits")
            yield PanelList("Needs you", id="attention")
            yield PanelList("Jobs", id="jobs")
            yield HeatMap(id="workers")
            yield PanelList("Events", id="events")

    def show(self, view: View) -> None:
        """Show a View; hidden panels draw nothing."""
        self._show_banner(view)
        sizes = [(panel.display, panel.content_size) for panel in self.query(Painted)]
        if view.content is self._content and view.link is self._link and sizes == self._sizes:
            return  # only the clock of the console is later
        self._content, self._link, self._sizes = view.content, view.link, sizes
        cluster = self.query_one("#cluster", Panel)
        cluster.paint(cluster_lines(view, cluster.content_size.width))
        answer = view.content.answers.get("overview:history")
        stored = answer.data if answer is not None else None
        for measure in CHARTS:
            chart = self.query_one(f"#{measure.key}", Chart)
            if chart.display:
                chart.show(recent_data(measure, stored, view.content.rates.samples, SPAN_S))
        reasons = self.query_one("#limits", PanelList)
        reasons.show(limit_rows(limits(view), *reasons.content_size))
        self.query_one("#attention", PanelList).show(attention_rows(view))
        jobs = self.query_one("#jobs", PanelList)
        jobs.show(job_rows(view, *jobs.content_size))
        workers = self.query_one("#workers", HeatMap)
        if workers.display:
            snapshot = view.content.snapshot
            workers.show(tiles(view), snapshot.workers_total if snapshot is not None else 0)
        events = self.query_one("#events", PanelList)
        if events.display:
            events.show(event_rows(view, events.content_size.height))

    def _show_banner(self, view: View) -> None:
        line = banner(view)
        painted = self.query_one("#banner", Painted)
        painted.set_class(bool(line), "-shown")
        rest = max(0, self.size.width - line_width(line))
        painted.paint([(*line, Span(" " * rest, line[-1].style))] if line else [])
