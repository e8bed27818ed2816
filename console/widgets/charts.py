"""The body of the charts page: six charts of the cluster, of one job or of one host."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message

from console.drawing.charts import SPAN_NAMES, subject
from console.drawing.lines import Line, Span
from console.drawing.measures import MEASURES, chart_data
from console.state import View
from console.widgets.chart import Chart
from console.widgets.painted import Painted


class SpanChoice(Painted):
    """The four spans; a click chooses one."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "SpanChoice { height: 1; }"

    class SpanChosen(Message):
        """A click on a span."""

        def __init__(self, span_s: int) -> None:
            super().__init__()
            self.span_s = span_s

    def show(self, span_s: int, about: str) -> None:
        """Show which one is chosen, and what the charts are about."""
        spans = [Span(" ")]
        for choice, name in SPAN_NAMES.items():
            spans += [Span(f" {name} ", "tab" if choice == span_s else "dim"), Span(" ")]
        self.paint([(*spans, Span(f"  {about}", "head"), Span("   s: next span", "dim"))])

    def on_click(self, event: events.Click) -> None:
        """Choose the span under the mouse."""
        line: Line = self.picture[0] if self.picture else ()
        left = 0
        names = {f" {name} ": span_s for span_s, name in SPAN_NAMES.items()}
        for span in line:
            if left <= event.x < left + len(span.text) and span.text in names:
                self.post_message(self.SpanChosen(names[span.text]))
            left += len(span.text)


class ChartsBody(Container):
    """As many charts as fit: two columns, three on a wide screen."""

    SCOPED_CSS = False  # the breakpoints are classes of the screen
    DEFAULT_CSS = """
    ChartsBody {
        height: 1fr;
        layout: vertical;
        & > #grid {
            layout: grid;
            grid-size: 2;
            grid-rows: 1fr;
            height: 1fr;
        }
    }
    .-wide ChartsBody > #grid { grid-size: 3; }
    """

    def compose(self) -> ComposeResult:
        """Put the spans above the charts."""
        yield SpanChoice()
        with Container(id="grid"):
            for measure in MEASURES:
                yield Chart(measure.title, id=measure.key)

    def show(self, view: View) -> None:
        """Show the history that was answered for this place."""
        self.query_one(SpanChoice).show(view.span_s, subject(view))
        answer = view.content.answers.get(view.place.key)
        data = answer.data if answer is not None else None
        for measure in MEASURES:
            chart = self.query_one(f"#{measure.key}", Chart)
            chart.show(chart_data(measure, data, view.span_s))
