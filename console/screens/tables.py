"""The pages that are one table, with a summary below it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.columns.pages import TABLES
from console.columns.work import node_rows
from console.drawing.preview import preview, table_rows
from console.drawing.table import summary_line
from console.drawing.workers import tiles, worker_place
from console.help_text import help_text
from console.keymap import page_bindings
from console.screens.page import PageScreen
from console.state import ConsolePage, GoTo, View
from console.tables import Row, shown
from console.widgets.commanded import Commanded
from console.widgets.heat_map import HeatMap
from console.widgets.painted import Painted
from console.widgets.replay_bar import ReplayBar
from console.widgets.table import TableWidget

CHROME = 4  # lines: the top, the tabs, the summary, the footer


class TableScreen(PageScreen):
    """A page with the table of `console.columns.pages`."""

    def compose_body(self) -> Iterable[Widget]:
        """The table and its summary."""
        yield TableWidget(id="body")
        yield Painted(id="summary")
        below = Painted(id="preview")
        below.display = False
        yield below

    def show_body(self, view: View) -> None:
        """Show the rows, and on a high screen what the row at the cursor is about."""
        table = TABLES[self.PAGE]
        if view.page is not self.PAGE:
            return
        now = shown(table, view)
        self._show_preview(view, now.total)
        self.query_one(TableWidget).show(view)
        self.query_one("#summary", Painted).paint([summary_line(table, view, now)])

    def _show_preview(self, view: View, total: int) -> None:
        """Give the table the lines that it needs, and the preview the rest."""
        body, below = self.query_one(TableWidget), self.query_one("#preview", Painted)
        room = self.size.height - CHROME - self.query_one(ReplayBar).display
        lines = table_rows(total, room) if self.has_class("-tall") and body.display else room
        below.display = lines < room
        body.styles.height = lines if below.display else "1fr"
        if below.display:
            below.paint(preview(view, self.size.width, room - lines))

    @property
    def page_rows(self) -> int:
        """As many rows as are on the screen."""
        return self.query_one(TableWidget).page_rows if self.query(TableWidget) else 1


class NodesScreen(TableScreen):
    """Masters and workers: a table, or the workers as a heat map that has room for 500."""

    PAGE = ConsolePage.NODES
    BINDINGS: ClassVar[list[BindingType]] = [
        *page_bindings(PAGE),
        Binding("w", "switch", "heat map", id="nodes.map", tooltip="Table or heat map."),
    ]
    HELP = help_text(PAGE)

    def compose_body(self) -> Iterable[Widget]:
        """The table, and the map in its place."""
        yield from super().compose_body()
        heat_map = HeatMap(id="map")
        heat_map.display = False
        yield heat_map

    def show_body(self, view: View) -> None:
        """Show the one of both that is chosen."""
        super().show_body(view)
        heat_map = self.query_one("#map", HeatMap)
        if heat_map.display:
            heat_map.show(tiles(view))

    def action_switch(self) -> None:
        """Show the map instead of the table, or the table again."""
        heat_map, table = self.query_one("#map", HeatMap), self.query_one(TableWidget)
        heat_map.display, table.display = table.display, heat_map.display
        self.query_one("#summary").display = table.display
        self.set_focus(table if table.display else heat_map)
        self.call_after_refresh(self._show_again)

    def chosen(self, view: View) -> list[Row]:
        """The worker at the cursor of the map, if that is what is shown."""
        heat_map = self.query_one("#map", HeatMap)
        if not heat_map.display:
            return super().chosen(view)
        shown_tiles, cursor = tiles(view), heat_map.cursor
        here = shown_tiles[cursor].id if 0 <= cursor < len(shown_tiles) else ""
        return [row for row in node_rows(view) if row["kind"] == "worker" and row["id"] == here]

    def on_heat_map_worker_opened(self, event: HeatMap.WorkerOpened) -> None:
        """Go to the page of the worker."""
        self.post_message(Commanded(GoTo(worker_place(event.worker))))


class JobsScreen(TableScreen):
    """Jobs and their runs."""

    PAGE = ConsolePage.JOBS
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class QueuesScreen(TableScreen):
    """What waits, by job."""

    PAGE = ConsolePage.QUEUES
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class TagQueuesScreen(TableScreen):
    """What waits, by tag."""

    PAGE = ConsolePage.TAG_QUEUES
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class HostQueuesScreen(TableScreen):
    """What waits, by host."""

    PAGE = ConsolePage.HOST_QUEUES
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class LanesScreen(TableScreen):
    """The queue of one run, host by host."""

    PAGE = ConsolePage.LANES
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class HostsScreen(TableScreen):
    """Hosts, and why they wait."""

    PAGE = ConsolePage.HOSTS
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class ErrorsScreen(TableScreen):
    """Failures, by reason and host."""

    PAGE = ConsolePage.ERRORS
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class FailedScreen(TableScreen):
    """The failed URLs of one group of errors."""

    PAGE = ConsolePage.FAILED
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class ItemsScreen(TableScreen):
    """The newest items."""

    PAGE = ConsolePage.ITEMS
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class LogScreen(TableScreen):
    """What all nodes log."""

    PAGE = ConsolePage.LOG
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)
