"""The page `charts`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from console.help_text import help_text
from console.keymap import page_bindings
from console.screens.page import PageScreen
from console.state import ConsolePage, SetSpan, View
from console.widgets.charts import ChartsBody, SpanChoice
from console.widgets.commanded import Commanded


class ChartsScreen(PageScreen):
    """How it went: the cluster, one job or one host."""

    PAGE = ConsolePage.CHARTS
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)

    def compose_body(self) -> Iterable[Widget]:
        """The charts."""
        yield ChartsBody(id="body")

    def show_body(self, view: View) -> None:
        """Show the newest points."""
        if view.page is self.PAGE:
            self.query_one(ChartsBody).show(view)

    def on_span_choice_span_chosen(self, event: SpanChoice.SpanChosen) -> None:
        """Show the span that was clicked."""
        self.post_message(Commanded(SetSpan(event.span_s)))
