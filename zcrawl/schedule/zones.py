"""Time zones: wall clocks to UTC and back, with the days on which a clock is changed.

Called by `timetable` and by the checks of a job. Pure: the rules of the zones are data that is read
once (`zoneinfo`; the package tzdata has the names, and the rules where the system has none).

Two rules for a wall time:

- A time that exists twice, because the clock is set back, is its first occurrence.
- A time that does not exist, because the clock is set forward, is the next moment that does: the
  moment of the change.

So `moment_of` never decreases when the wall time grows, and `timetable` relies on that.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pkgutil import get_data
from typing import Final
from zoneinfo import ZoneInfo

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import BAD_SCHEDULE
from zcrawl.text.spelling import near_names

EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Before and after it, `datetime` has no room for an offset from UTC.
EARLIEST: Final = datetime(1970, 1, 2)
LATEST: Final = datetime(9000, 1, 1)
LATEST_UTC: Final = (LATEST - EPOCH).total_seconds()


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Return the names of all zones."""
    names = get_data("tzdata", "zones")
    assert names is not None  # it is a file of the package
    return tuple(names.decode().split())


@lru_cache(maxsize=64)
def zone_of(name: str, key: str = "schedule.timezone") -> ZoneInfo:
    """Return the zone; JobError with `key` and the most similar name if it does not exist."""
    # Looked up in the list first: `ZoneInfo` also takes names of other files beside the zones.
    if name not in zone_names():
        raise JobError(
            f"{key} {name[:100]!r} does not exist{_hint(name)}; use a name of the IANA "
            "database, such as Europe/Berlin or UTC",
            code=BAD_SCHEDULE,
        )
    return ZoneInfo(name)


def _hint(name: str) -> str:
    """Return `; did you mean …?` for a misspelt name, or a city without its continent."""
    compared = {zone.lower(): zone for zone in zone_names()}
    cities = {zone.rpartition("/")[2].lower(): zone for zone in zone_names() if "/" in zone}
    key = name.strip().lower().replace(" ", "_")
    if key in compared or key in cities:
        return f"; did you mean {compared.get(key) or cities[key]!r}?"
    near = near_names(key, compared) or near_names(key.rpartition("/")[2], cities)
    return f"; did you mean {compared.get(near[0]) or cities[near[0]]!r}?" if near else ""


def wall_of(zone: ZoneInfo, utc: float) -> datetime:
    """Return what the clock of the zone shows, without seconds' fractions and without zone."""
    return _local(zone, utc).replace(tzinfo=None, fold=0)


def furthest_wall(zone: ZoneInfo, utc: float) -> datetime:
    """Return a wall time such that the moments of all later ones are after `utc`.

    It is later than `wall_of` only while the clock shows times for the second time."""
    local = _local(zone, utc)
    repeated = _offset(local.replace(fold=0)) - _offset(local)
    ahead = repeated if local.fold else timedelta()
    return local.replace(tzinfo=None, fold=0) + ahead


def moment_of(zone: ZoneInfo, wall: datetime) -> float:
    """Return the UTC seconds of a wall time, by the two rules of this module."""
    early = wall.replace(tzinfo=zone, fold=0)
    before, after = _offset(early), _offset(early.replace(fold=1))
    moment = (wall - EPOCH - before).total_seconds()
    if after <= before:  # an ordinary time, or one that exists twice
        return moment
    # The time does not exist. The clock is set forward between these two moments.
    low, high = int((wall - EPOCH - after).total_seconds()), int(moment)
    while low < high:
        middle = (low + high) // 2
        if _offset(_local(zone, middle)) >= after:
            high = middle
        else:
            low = middle + 1
    return float(low)


def _local(zone: ZoneInfo, utc: float) -> datetime:
    return (_EPOCH_UTC + timedelta(seconds=int(utc // 1))).astimezone(zone)


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None  # a zone of `zoneinfo` knows its offset for each time
    return offset


def parse_moment(key: str, text: str, zone: ZoneInfo) -> float:
    """Return the UTC seconds of `2026-12-01T03:00` in `zone`; an offset in the text wins over it.

    JobError with `key` if the text is not a time."""
    advice = "write a date and a time, such as 2026-12-01T03:00, or 2026-12-01T03:00Z for UTC"
    try:
        time = datetime.fromisoformat(text.strip()) if len(text) <= 40 else None
    except ValueError:
        time = None
    if time is None:
        raise JobError(f"{key} is {text[:40]!r}, which is not a time; {advice}", code=BAD_SCHEDULE)
    if time.microsecond:
        raise JobError(f"{key} is {text!r}; parts of a second are not allowed", code=BAD_SCHEDULE)
    if not EARLIEST <= time.replace(tzinfo=None) <= LATEST:
        raise JobError(f"{key} is {text!r}; it must be from 1970 to 9000", code=BAD_SCHEDULE)
    if time.tzinfo is not None:
        return float(int(time.timestamp()))
    return moment_of(zone, time)
