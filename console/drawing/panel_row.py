"""A line of a panel, and the place that it leads to."""

from __future__ import annotations

from typing import NamedTuple

from console.drawing.lines import Line
from console.state import Place


class PanelRow(NamedTuple):
    line: Line
    place: Place | None = None  # None: nothing to open
