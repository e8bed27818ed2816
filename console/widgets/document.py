"""Lines of text that scroll: the pages about one thing. Text can be selected with the mouse."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from console.drawing.lines import Picture
from console.widgets.painted import PaintMixin
from console.widgets.selecting import with_selection


class Document(PaintMixin, ScrollView, can_focus=True):
    """Paints the lines that were given last, from where they are scrolled to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.picture: Picture = []

    def paint(self, picture: Picture) -> None:
        """Show these lines."""
        if picture == self.picture:
            return
        self.picture = picture
        self.virtual_size = Size(self.scrollable_content_region.width, len(picture))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line, as Textual asks for it."""
        index = y + self.scroll_offset.y
        cells = self.scrollable_content_region.width
        line = self.picture[index] if index < len(self.picture) else ()
        return with_selection(self, self.strip(line, cells), index)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return what was selected with the mouse."""
        text = "\n".join("".join(span.text for span in line).rstrip() for line in self.picture)
        return selection.extract(text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the selection."""
        self.refresh()
