"""Lines of styled text: what pictures make and what the painter paints.

A style is a name ("bad", "dim"); the painter looks up what it means in the theme of the day. So
pictures know no colours, and `--snapshot` prints them without any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from console.plain import fit, plain, width
from zcrawl.text.terminal import is_safe

BARS: Final = "▁▂▃▄▅▆▇█"
STYLES: Final = (
    "",
    "bold",
    "dim",
    "head",
    "good",
    "warn",
    "bad",
    "accent",
    "tab",
    "bar",
    "rest",
    "cursor",
    "mark",
    "hover",
    "series1",
    "series2",
    "series3",
    "series4",
    "area1",
    "area2",
    "area3",
    "area-bad",
    "heat0",
    "heat1",
    "heat2",
    "heat3",
    "heat4",
    "tile-warn",
    "tile-bad",
    "tile-off",
)


class Span(NamedTuple):
    text: str
    style: str = ""


Line: TypeAlias = tuple[Span, ...]
Picture: TypeAlias = list[Line]


def line(*parts: Span | str) -> Line:
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def line_width(spans: Line) -> int:
    return sum(width(span.text) for span in spans)


def cut(spans: Line, cells: int, style: str = "") -> Line:
    """The line in exactly so many cells. The last border before the terminal: what a picture
    forgot to make plain is made so here."""
    taken = 0
    kept: list[Span] = []
    for span in spans:
        if not is_safe(span.text):
            span = Span(plain(span.text), span.style)
        size = width(span.text)
        if taken + size > cells:
            kept.append(Span(fit(span.text, cells - taken), span.style))
            return tuple(kept)
        kept.append(span)
        taken += size
    if taken < cells:
        kept.append(Span(" " * (cells - taken), style))
    return tuple(kept)


def beside(left: Picture, right: Picture, left_cells: int, right_cells: int) -> Picture:
    """Two pictures side by side, with a gap of two cells."""
    rows = max(len(left), len(right))
    blank: Line = ()
    return [
        (
            *cut(left[n] if n < len(left) else blank, left_cells),
            Span("  "),
            *cut(right[n] if n < len(right) else blank, right_cells),
        )
        for n in range(rows)
    ]


def title(text: str, cells: int, more: Iterable[Span] = ()) -> Line:
    """A heading with a rule to the right end."""
    spans = (Span(text, "head"), *more, Span(" "))
    rest = max(0, cells - line_width(spans))
    return (*spans, Span("─" * rest, "rest"))


def sparkline(samples: Sequence[float], cells: int) -> str:
    """Bars from 0 to the highest sample; the newest is at the right."""
    shown = list(samples)[-cells:] if cells > 0 else []
    top = max(shown, default=0.0)
    last = len(BARS) - 1
    if top <= 0:
        return (BARS[0] * len(shown)).rjust(cells)
    return "".join(BARS[min(last, round(sample / top * last))] for sample in shown).rjust(cells)


def progress_bar(share: float, cells: int, style: str = "bar") -> Line:
    """A bar that is `share` full."""
    full = min(cells, max(0, round(share * cells)))
    return Span("█" * full, style), Span("░" * (cells - full), "rest")


def as_text(picture: Picture) -> str:
    return "\n".join("".join(span.text for span in spans).rstrip() for spans in picture)
