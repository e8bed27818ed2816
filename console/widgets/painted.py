"""Widgets that paint lines of styled text.

A style name of a `Span` is a component class here (`painted--bad`), so a theme and `paint.tcss` say
what it looks like. Segments are made by hand: no text ever goes through a markup parser.
"""

from __future__ import annotations

import itertools
import operator
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from console.drawing.lines import STYLES, Line, Picture, cut
from console.textual_inside import use_component

COMPONENT_OF: Final = {style: f"painted--{style or 'plain'}" for style in STYLES}


class PaintMixin:
    """`strip`, for any widget: a line in the colours of the theme."""

    def line_style(self, name: str) -> Style:
        """Return the colours of a style name; Textual forgets them when the theme changes."""
        assert isinstance(self, Widget)
        component = COMPONENT_OF[name]
        use_component(self, component)
        return self.get_component_rich_style(component)

    def strip(self, line: Line, cells: int) -> Strip:
        """Return the line in exactly so many cells."""
        # Neighbours of one style are one segment: each costs the same on its way to the terminal.
        segments = [
            Segment("".join(span.text for span in same), self.line_style(style))
            for style, same in itertools.groupby(cut(line, cells), operator.attrgetter("style"))
        ]
        return Strip(segments, cells)


class Painted(PaintMixin, Widget):
    """Paints the picture that it was given last. Its text can be selected with the mouse."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.picture: Picture = []

    def paint(self, picture: Picture) -> None:
        """Show a picture: paint the lines that have changed, and only those."""
        before, self.picture = self.picture, picture
        if len(before) != len(picture):
            self.refresh()
            return
        changed = [
            n for n, (old, new) in enumerate(zip(before, picture, strict=True)) if old != new
        ]
        if changed:
            width = self.content_size.width
            self.refresh(*(Region(0, n, width, 1) for n in changed))

    def render_line(self, y: int) -> Strip:
        """Return one line of the content, as Textual asks for it."""
        line = self.picture[y] if y < len(self.picture) else ()
        cells = self.content_size.width
        strip = self.strip(line, cells)
        if not self.allow_select:
            return strip  # and no offsets: each is pickled, the dearest part of a line
        selection = self.text_selection
        selected = selection.get_span(y) if selection is not None else None
        if selected is not None:
            start, end = selected[0], cells if selected[1] == -1 else min(cells, selected[1])
            style = self.screen.get_component_rich_style("screen--selection", partial=True)
            strip = Strip.join(
                [strip.crop(0, start), strip.crop(start, end).apply_style(style), strip.crop(end)]
            )
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return what was selected with the mouse."""
        text = "\n".join("".join(span.text for span in line) for line in self.picture)
        return selection.extract(text), "\n"
