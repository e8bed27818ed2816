"""The one chart: curves of braille dots with a y axis and a time axis; the mouse shows a value."""

from __future__ import annotations

from textual import events

from console.drawing.chart import ChartData, chart
from console.widgets.painted import Painted


class Chart(Painted):
    """Shows a `ChartData` in a titled panel. Drawn when the data, the size or the mouse changes."""

    ALLOW_SELECT = False  # a curve is no text, and dragging reads values
    DEFAULT_CSS = """
    Chart {
        border: round $border;
        border-title-color: $text-primary;
        border-title-style: bold;
        min-height: 5;
    }
    """

    def __init__(self, title: str, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = title
        self._data = ChartData()
        self._hover: int | None = None
        self.draws = 0  # since the start: a test counts that equal data is not drawn again

    def show(self, data: ChartData) -> None:
        """Show other points; equal ones are not drawn again."""
        if data != self._data:
            self._data = data
            self._draw()

    def _draw(self) -> None:
        self.draws += 1
        cells, rows = self.content_size
        self.paint(chart(self._data, cells, rows, self._hover))

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show the values at the column under the mouse."""
        inside = event.get_content_offset(self)
        self._point_at(inside.x if inside is not None else None)

    def on_leave(self) -> None:
        """Show the newest values again."""
        self._point_at(None)

    def _point_at(self, column: int | None) -> None:
        if column != self._hover:
            self._hover = column
            self._draw()
