"""The page `overview`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from console.drawing.workers import worker_place
from console.help_text import help_text
from console.keymap import page_bindings
from console.screens.page import PageScreen
from console.state import ConsolePage, GoTo, View
from console.widgets.commanded import Commanded
from console.widgets.heat_map import HeatMap
from console.widgets.overview import OverviewBody
from console.widgets.panel import PanelList


class OverviewScreen(PageScreen):
    """Is it healthy, how fast, what limits it, what needs you."""

    PAGE = ConsolePage.OVERVIEW
    AUTO_FOCUS = "#jobs"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)

    def compose_body(self) -> Iterable[Widget]:
        """The panels."""
        yield OverviewBody(id="body")

    def show_body(self, view: View) -> None:
        """Show what each panel is about."""
        if view.page is self.PAGE:
            self.query_one(OverviewBody).show(view)

    def on_panel_list_place_opened(self, event: PanelList.PlaceOpened) -> None:
        """Go to what a row is about."""
        self.post_message(Commanded(GoTo(event.place)))

    def on_heat_map_worker_opened(self, event: HeatMap.WorkerOpened) -> None:
        """Go to the page of the worker."""
        self.post_message(Commanded(GoTo(worker_place(event.worker))))
