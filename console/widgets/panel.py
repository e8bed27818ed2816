"""A titled panel of lines. Lines that lead somewhere can be chosen by key and by mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from console.drawing.lines import Line, Span, line_width
from console.drawing.panel_row import PanelRow
from console.state import Place
from console.widgets.painted import Painted
from console.widgets.pointing import Pointing


class Panel(Painted):
    """Lines in a border with a title, to be read."""

    DEFAULT_CSS = """
    Panel {
        border: round $border;
        border-title-color: $text-primary;
        border-title-style: bold;
        border-subtitle-color: $foreground 68%;
        min-height: 3;
    }
    """

    def __init__(self, title: str, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = title


class PanelList(Panel, Pointing, can_focus=True):
    """A panel with a cursor on the rows that lead somewhere."""

    DEFAULT_CSS = """
    PanelList:focus { border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "up", show=False),
        Binding("down,j", "step(1)", "down", show=False),
        Binding("enter", "open", "open"),
    ]

    class PlaceOpened(Message):
        """Enter, or a click, on a row that leads somewhere."""

        def __init__(self, panel: PanelList, place: Place) -> None:
            super().__init__()
            self.panel, self.place = panel, place

        @property
        def control(self) -> PanelList:
            """The widget that sent it."""
            return self.panel

    def __init__(self, title: str, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(title, id=id, classes=classes)
        self._rows: tuple[PanelRow, ...] = ()
        self._cursor = 0

    def show(self, rows: Sequence[PanelRow]) -> None:
        """Show these rows, as many as fit."""
        self._rows = tuple(rows)
        self.draw()

    def draw(self) -> None:
        """Paint the rows; the cursor stays on one that leads somewhere."""
        links = self._links()
        if links and self._cursor not in links:
            self._cursor = min(links, key=lambda n: abs(n - self._cursor))
        self.paint([self._styled(n, row) for n, row in enumerate(self._rows)])

    def _links(self) -> list[int]:
        """The rows on the screen that lead somewhere."""
        rows = self._rows[: self.content_size.height]
        return [n for n, row in enumerate(rows) if row.place is not None]

    def _styled(self, index: int, row: PanelRow) -> Line:
        here = self.has_focus and index == self._cursor
        if row.place is None or not (here or index == self.hover):
            return row.line
        style = "cursor" if here else "hover"
        text = "".join(span.text for span in row.line)
        rest = self.content_size.width - line_width(row.line)
        return (Span(text, style), Span(" " * rest, style))

    def action_step(self, by: int) -> None:
        """Move the cursor to the next row that leads somewhere."""
        links = self._links()
        if links:
            at = links.index(self._cursor) if self._cursor in links else 0
            self._cursor = links[max(0, min(len(links) - 1, at + by))]
            self.draw()

    def action_open(self) -> None:
        """Ask for the place of the row at the cursor."""
        self._open(self._cursor)

    def _open(self, index: int) -> None:
        place = self._rows[index].place if 0 <= index < len(self._rows) else None
        if place is not None:
            self.post_message(self.PlaceOpened(self, place))

    def index_at(self, x: int, y: int) -> int:
        """Return the row, if it leads somewhere."""
        return y if y in self._links() else -1

    def on_click(self, event: events.Click) -> None:
        """Open the row under the mouse."""
        self._open(self.index_under(event))
