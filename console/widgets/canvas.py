"""A widget that paints lines. Style names become colours here, by the theme of the day.

Segments are made by hand: no text ever goes through a markup parser.
"""

from __future__ import annotations

import itertools
import operator

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.lines import Line, Picture, cut


class Palette:
    """Style names in the colours of one theme."""

    def __init__(self, variables: dict[str, str]) -> None:
        def color(name: str, fallback: str) -> Color:
            try:
                return Color.parse(variables.get(name, fallback))
            except ValueError:  # e.g. "auto 87%": a rule of CSS, no colour
                return Color.parse(fallback)

        ground = color("background", "#121212")
        text = color("foreground", "#e0e0e0")
        primary = color("primary", "#0178d4")

        def style(front: Color, back: Color = ground, bold: bool = False) -> Style:
            return Style(
                color=back.blend(front, front.a).rich_color if front.a < 1 else front.rich_color,
                bgcolor=back.rich_color,
                bold=bold,
            )

        self.styles = {
            "": style(text),
            "bold": style(text, bold=True),
            "dim": style(ground.blend(text, 0.6)),
            "head": style(color("text-primary", "#57a5e2"), bold=True),
            "good": style(color("text-success", "#8ad4a1")),
            "warn": style(color("text-warning", "#ffc473")),
            "bad": style(color("text-error", "#d17e92"), bold=True),
            "accent": style(color("text-accent", "#ffc473")),
            "bar": style(color("success", "#4ebf71")),
            "rest": style(ground.blend(text, 0.3)),
            "tab": style(color("foreground", "#e0e0e0") if _dark(primary) else ground, primary),
            "cursor": style(Color.parse("#ffffff") if _dark(primary) else ground, primary),
            "mark": style(color("text-warning", "#ffc473"), bold=True),
        }


def _dark(color: Color) -> bool:
    return color.brightness < 0.6


class Canvas(Widget):
    """Paints the picture that it was shown last."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._picture: Picture = []
        self._palette: Palette | None = None
        self._theme = ""

    def show(self, picture: Picture) -> None:
        """Repaints the lines that have changed, and only those."""
        before, self._picture = self._picture, picture
        if len(before) != len(picture):
            self.refresh()
            return
        changed = [
            n for n, (old, new) in enumerate(zip(before, picture, strict=True)) if old != new
        ]
        if changed:
            self.refresh(*(Region(0, n, self.size.width, 1) for n in changed))

    @property
    def palette(self) -> Palette:
        if self._palette is None or self._theme != self.app.theme:
            self._theme = self.app.theme
            self._palette = Palette(self.app.get_css_variables())
        return self._palette

    def render_line(self, y: int) -> Strip:
        cells = self.size.width
        spans: Line = self._picture[y] if y < len(self._picture) else ()
        styles = self.palette.styles
        segments: list[Segment] = []
        # Neighbours of one style are one segment: each costs the same on its way to the terminal.
        for style, same in itertools.groupby(cut(spans, cells), operator.attrgetter("style")):
            segments.append(Segment("".join(span.text for span in same), styles[style]))
        return Strip(segments, cells)
