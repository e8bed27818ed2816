"""The one table of the console, on Textual's Line API.

Fixed-width columns, a cursor, the row under the mouse, marks, sorting by a click on a header, and
pages of rows that the leader sends as they are scrolled to. `console.tables` says what is shown and
`drawing.table` how a row looks; the View has the cursor, the marks and the order. The widget has
the scroll position and the row under the mouse.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from console.columns.pages import TABLES
from console.drawing.lines import Line, Picture, Span
from console.drawing.table import Fitted, fitted, header_line, nothing_text, row_line
from console.state import Drill, LoadAround, MoveTo, SortBy, View
from console.tables import Shown, Table, shown
from console.widgets.commanded import Commanded
from console.widgets.painted import PaintMixin
from console.widgets.selecting import with_selection

HEADER = 1  # lines


class TableWidget(PaintMixin, ScrollView, can_focus=True, inherit_bindings=False):
    """Shows the table of the View's page."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view: View | None = None
        self._now = Shown([], 0, 0, 0)
        self._fitted = Fitted((), ())
        self._hover_row = self._hover_column = -1
        self._cursor = -1  # in the whole table, as it was shown last
        self._picture: Picture = []  # the lines on the screen

    @property
    def table(self) -> Table | None:
        """What the page's table is made of."""
        return TABLES.get(self._view.page) if self._view is not None else None

    def show(self, view: View) -> None:
        """Show what the View has of its table; follow the cursor when it has moved."""
        table = TABLES.get(view.page)
        if table is None:
            return
        other_place = self._view is None or self._view.place != view.place
        self._view, self._now = view, shown(table, view)
        cells = self.scrollable_content_region.width
        self._fitted = fitted(table, cells)
        height = max(self._now.total, self._now.offset + len(self._now.rows)) + HEADER
        if self.virtual_size != (cells, height):
            self.virtual_size = Size(cells, height)
        cursor = self._now.offset + self._now.index
        if cursor != self._cursor or other_place:
            self._cursor = cursor
            self._follow(cursor)
        self._draw()

    def _follow(self, index: int) -> None:
        """Scroll so that the row is on the screen, away from the edges where there is room."""
        room = max(1, self.size.height - HEADER)
        top = self.scroll_offset.y
        if not top <= index < top + room:
            top = index - room // 2
            self.scroll_to(y=max(0, top), animate=False, force=True, immediate=True)

    def on_resize(self) -> None:
        """Fit the columns to the new width."""
        if self._view is not None:
            self._cursor = -1
            self.show(self._view)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw what is scrolled to, and ask for rows that are not loaded."""
        super().watch_scroll_y(old_value, new_value)
        if self._view is None or round(old_value) == round(new_value):
            return
        self._draw()
        top, room = self.scroll_offset.y, max(1, self.size.height - HEADER)
        first, last = self._now.offset, self._now.offset + len(self._now.rows)
        if (top < first or top + room > last) and self._now.total > len(self._now.rows):
            self.post_message(Commanded(LoadAround(top + room // 2)))

    # ------------------------------------------------------------ painting

    def _draw(self) -> None:
        """Make the lines on the screen again, and paint those that have changed."""
        before = self._picture
        self._picture = [self._line(y) for y in range(self.size.height)]
        if len(before) != len(self._picture):
            self.refresh()
            return
        width = self.size.width
        changed = [n for n, line in enumerate(self._picture) if line != before[n]]
        if changed:
            self.refresh(*(Region(0, n, width, 1) for n in changed))

    def _line(self, y: int) -> Line:
        view, table = self._view, self.table
        if view is None or table is None:
            return ()
        if y < HEADER:
            return header_line(table, view, self._fitted, self._hover_column)
        index = self.scroll_offset.y + y - HEADER
        at = index - self._now.offset
        if not 0 <= at < len(self._now.rows):
            return self._no_row(table, view, y, index)
        row = self._now.rows[at]
        look = "cursor" if at == self._now.index else "hover" if index == self._hover_row else ""
        return row_line(row, self._fitted, look, table.key(row) in view.table.marks)

    def _no_row(self, table: Table, view: View, y: int, index: int) -> Line:
        if not self._now.rows:
            return (Span(f"  {nothing_text(table, view)}", "dim"),) if y == HEADER else ()
        return (Span("  …", "dim"),) if index < self._now.total else ()

    def render_line(self, y: int) -> Strip:
        """Return one line, as Textual asks for it."""
        line = self._picture[y] if y < len(self._picture) else ()
        strip = self.strip(line, self.scrollable_content_region.width)
        return with_selection(self, strip, y if y < HEADER else y + self.scroll_offset.y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text that was selected with the mouse."""
        lines = [""] * (self._now.offset + HEADER)
        lines += [_text(row_line(row, self._fitted, "", False)) for row in self._now.rows]
        if self.table is not None and self._view is not None:
            lines[0] = _text(header_line(self.table, self._view, self._fitted))
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the selection."""
        self.refresh()

    # ------------------------------------------------------------ the mouse

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show which row or header is under the mouse, and the whole value of a cut cell."""
        column = self._fitted.at(event.x) if event.y < HEADER else -1
        row = self.scroll_offset.y + event.y - HEADER if event.y >= HEADER else -1
        if (row, column) != (self._hover_row, self._hover_column):
            self._hover_row, self._hover_column = row, column
            self._draw()
        self.tooltip = self._whole_value(event.x, row) if column < 0 else self._sort_hint(column)

    def on_leave(self) -> None:
        """Forget what was under the mouse."""
        self._hover_row = self._hover_column = -1
        self._draw()

    def _whole_value(self, x: int, index: int) -> Content | None:
        """What a cell has no room for; None when all of it is there."""
        at, column = index - self._now.offset, self._fitted.at(x)
        if not 0 <= at < len(self._now.rows) or column < 0:
            return None
        text = self._fitted.columns[column].cell(self._now.rows[at]).text
        return Content(text) if cell_len(text) > self._fitted.widths[column] else None

    def _sort_hint(self, column: int) -> Content | None:
        chosen = self._fitted.columns[column]
        return Content(f"click or {chosen.letter}: sort") if chosen.letter else None

    def on_click(self, event: events.Click) -> None:
        """Go to the row; open it with the second click; sort by a header."""
        if event.y < HEADER:
            column = self._fitted.at(event.x)
            letter = self._fitted.columns[column].letter if column >= 0 else ""
            if letter:
                self.post_message(Commanded(SortBy(letter)))
            return
        index = self.scroll_offset.y + event.y - HEADER
        if 0 <= index - self._now.offset < len(self._now.rows):
            opens = (Drill(),) if event.chain == 2 else ()
            self.post_message(Commanded(MoveTo(index), *opens))

    @property
    def page_rows(self) -> int:
        """How many rows are on the screen."""
        return max(1, self.size.height - HEADER - 1)


def _text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()
