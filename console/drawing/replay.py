"""The line of a replay: state, position, speed, keys. Pure."""

from __future__ import annotations

from typing import NamedTuple

from console.drawing.lines import Line, Span
from console.state import ReplayState
from console.units import duration


class ReplayLine(NamedTuple):
    """A line, and where in it the bar is."""

    line: Line
    first: int
    cells: int


def replay_line(replay: ReplayState, cells: int) -> ReplayLine:
    """`▶ recorded  3:20 of 15:00  ━━━●───  4 ×   p pause  , . 10 s  < > 1 min  - + speed`."""
    ended = replay.position_s >= replay.length_s
    mark, word = ("■", "end") if ended else ("‖", "paused") if replay.paused else ("▶", "playing")
    left = (
        f" {mark} recorded, {word}  {duration(replay.position_s)} of {duration(replay.length_s)}  "
    )
    right = f"  {replay.speed:g} × "
    keys = " p pause  , . 10 s  < > 1 min  - + speed "
    if cells < len(left) + len(right) + len(keys) + 20:
        keys = ""
    room = max(4, cells - len(left) - len(right) - len(keys))
    share = replay.position_s / replay.length_s if replay.length_s > 0 else 1.0
    at = min(room - 1, int(share * room))
    line = (
        Span(left, "warn"),
        Span("━" * at + "●", "accent"),
        Span("─" * (room - at - 1), "rest"),
        Span(right, "bold"),
        Span(keys, "dim"),
    )
    return ReplayLine(line, len(left), room)
