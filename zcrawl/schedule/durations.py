"""Durations as people write them in a job file: `90s`, `15m`, `1h30m`, `2d`.

Called by `timetable` and by the checks of a job. Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.errors import JobError
from zcrawl.text.patterns import lazy_pattern

LONGEST_S: Final = 3_660 * 86_400  # ten years
MOST_CHARACTERS: Final = 40
UNITS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = lazy_pattern(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(key: str, text: str) -> int:
    """Return the whole seconds of `text`; JobError with `key` if it is not a duration."""
    compact = text.replace(" ", "").lower()
    match = _DURATION.fullmatch(compact) if len(text) <= MOST_CHARACTERS else None
    if match is None or not compact:
        raise JobError(
            f"{key} is {text[:MOST_CHARACTERS]!r}, which is not a duration; write whole numbers "
            "with units, the largest first, such as 90s, 15m, 1h30m or 2d"
        )
    seconds = sum(
        int(number or 0) * size for number, size in zip(match.groups(), UNITS.values(), strict=True)
    )
    if seconds > LONGEST_S:
        raise JobError(f"{key} is {text!r}; it can be at most ten years")
    return seconds


def duration_text(seconds: float) -> str:
    """Return the shortest text of a duration: `1h30m`; `0s` for none."""
    rest, parts = int(seconds), []
    for unit, size in UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
