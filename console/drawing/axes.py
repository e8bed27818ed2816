"""Axes: round values for the y axis, round clock times for the time axis. Pure.

Called by `chart`. A label stands at a round number or a round time, never at the edge of the data:
"14:05" can be read at a glance, "14:03:27" cannot.
"""

from __future__ import annotations

import datetime
import math
from typing import Final, NamedTuple

TIME_STEPS_S: Final = (
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
)
# Steps of the y axis, times a power of ten. With few labels, finer steps waste less of the height.
COARSE: Final = (1.0, 2.0, 5.0, 10.0)
FINE: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
MANY: Final = 4
LABEL_GAP: Final = 4  # cells between two labels of the time axis, so that they do not run together


class TimeTick(NamedTuple):
    at: float  # UTC
    label: str


def nice_step(top: float, most: int) -> float:
    """Return the smallest round number that needs at most `most` steps to reach `top`.

    0.0 when there is nothing to divide.
    """
    if top <= 0 or most < 1 or not math.isfinite(top):
        return 0.0
    least = top / most
    power = 10.0 ** math.floor(math.log10(least))
    for factor in COARSE if most >= MANY else FINE:
        step = factor * power
        if step * most >= top * (1 - 1e-9):
            return step
    raise AssertionError("unreachable: ten times the power is above the least step")


def value_ticks(top: float, rows: int, whole: bool = False) -> list[float]:
    """Return the values with a label, from 0 to the top of the axis, which is the last of them.

    `whole`: what is counted has no half, so the steps are whole numbers.
    """
    step = nice_step(top, max(1, min(5, rows // 2)))
    if step == 0.0:
        return [0.0, 1.0]
    if whole:
        step = max(1.0, float(math.ceil(step)))
    return [step * n for n in range(math.ceil(top / step - 1e-9) + 1)]


def time_ticks(since: float, until: float, cells: int) -> list[TimeTick]:
    """Return the clock times with a label: as many round ones as fit."""
    length = until - since
    if length <= 0 or cells <= 0:
        return []
    step = next(
        (
            step
            for step in TIME_STEPS_S
            if step * cells / length >= len(clock_label(0, step)) + LABEL_GAP
        ),
        0,
    )
    if step == 0:  # days in a few cells
        return []
    first = math.ceil(since / step) * step
    count = math.floor((until - first) / step) + 1 if first <= until else 0
    return [TimeTick(first + n * step, clock_label(first + n * step, step)) for n in range(count)]


def clock_label(at: float, step_s: float) -> str:
    """Return `14:05`, with seconds where the steps are shorter than a minute."""
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return moment.strftime("%H:%M" if step_s >= 60 else "%H:%M:%S")
