"""Numbers as an operator reads them at a glance. Pure."""

from __future__ import annotations

import datetime
import math


def count(number: float) -> str:
    """`812`, `12,345`, `1.23 M`: never more than seven characters."""
    if number < 0:
        return "-" + count(-number)
    if number < 100_000:
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1_000
        if number < 1_000 or unit == "G":
            return f"{number:.{1 if number >= 100 else 2}f} {unit}"
    raise AssertionError("unreachable: the last unit takes every number")


def rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def size(number: float) -> str:
    """`1.5 MB`, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1_000 or unit == "TB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1_000
    raise AssertionError("unreachable: the last unit takes every number")


def duration(seconds: float | None) -> str:
    """`4.2 s`, `3:20`, `2 h 05`, `3 d 04 h`; a dash for what nobody knows."""
    if seconds is None or seconds != seconds or seconds == float("inf"):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02}"
    return f"{hours // 24} d {hours % 24:02} h"


def plural(number: float, noun: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def latency(bound_ms: float) -> str:
    """`≤ 110 ms`, `≤ 1.4 s`: the upper bound of a class of answers, with two digits, because
    more of them would look like a measurement. A dash if there were no answers."""
    if bound_ms <= 0:
        return "–"
    step: float = 10 ** (math.floor(math.log10(bound_ms)) - 1)
    rounded = math.ceil(round(bound_ms / step, 6)) * step
    return f"≤ {rounded / 1_000:g} s" if rounded >= 1_000 else f"≤ {rounded:g} ms"


def percent(share: float) -> str:
    shown = share * 100
    return f"{shown:.0f} %" if shown in (0, 100) or shown >= 10 else f"{shown:.1f} %"


def clock_text(at: float) -> str:
    """The time of day, UTC, of the leader's clock; empty for never."""
    if not 0 < at < 4e10:
        return ""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%H:%M:%S")
