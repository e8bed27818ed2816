"""Bars in eighths of a cell. Pure."""

from __future__ import annotations

from typing import Final

from console.drawing.lines import Line, Span

EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
HEIGHTS: Final = "▁▂▃▄▅▆▇█"


def bar(share: float, cells: int, style: str = "bar") -> Line:
    """Return a bar of `cells` cells that is `share` full; what is not 0 is never empty."""
    if cells <= 0:
        return ()
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    if share < 1:
        eighths = min(cells * 8 - 1, eighths)
    full, part = divmod(eighths, 8)
    text = "█" * full + (EIGHTHS[part] if part else "")
    return Span(text, style), Span("─" * (cells - len(text)), "rest")


def height(share: float) -> str:
    """Return one cell that is `share` full, from the bottom."""
    return HEIGHTS[min(7, int(max(0.0, share) * 8))]
