"""What limits the crawl, as shares of what is queued, with what would help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.drawing.bars import bar
from console.drawing.lines import Span, line
from console.drawing.panel_row import PanelRow
from console.plain import fit, plain, width
from console.state import Place
from console.units import percent


class LimitShare(NamedTuple):
    """One reason why the crawl is not faster."""

    share: float  # of the queued URLs, 0 to 1
    style: str
    text: str
    advice: str = ""
    gain: str = ""  # `about 2 × faster`
    place: Place | None = None


def limit_rows(limits: Sequence[LimitShare], cells: int, rows: int) -> list[PanelRow]:
    """Draw a bar for each; where there is room, a second line says what helps."""
    roomy = len(limits) * 2 <= rows
    bar_cells = 8 if cells < 60 else 14
    drawn: list[PanelRow] = []
    for limit in sorted(limits, key=lambda limit: -limit.share):
        head = [
            Span(" "),
            *bar(limit.share, bar_cells, limit.style),
            Span(f"{percent(limit.share):>7} "),
        ]
        room = cells - bar_cells - 9
        text = plain(limit.text, 300)
        advice = plain(limit.advice, 300)
        if not roomy and advice:
            text = f"{text}: {advice}"
        gain = _gain(plain(limit.gain, 40), room - width(text))
        text_cells = max(0, min(width(text), room - width(gain)))
        head += [Span(fit(text, text_cells)), Span(gain, "accent")]
        drawn.append(PanelRow(tuple(head), limit.place))
        if roomy and advice:
            drawn.append(PanelRow(line(Span(" " * (bar_cells + 9)), Span(advice, "dim"))))
    return drawn or [PanelRow(line(Span(" nothing is queued", "dim")))]


def _gain(gain: str, room: int) -> str:
    """The gain beside a text, `2 ×` where there is no room for `about 2 × faster`."""
    if not gain or 2 + width(gain) <= room:
        return gain and f"  {gain}"
    return f"  {gain.removeprefix('about ').removesuffix(' faster')}"
