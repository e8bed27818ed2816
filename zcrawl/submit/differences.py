"""What differs between two versions of a job's spec, key by key, for people. Pure.

Used by the view of a job's versions. The text of a spider is named by its hash, not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from zcrawl.model.spec import UNREADABLE

MOST_TEXT: Final = 200  # characters of a value
MOST_CHANGES: Final = 100
_ABSENT: Final = object()


def changes(before: bytes, after: bytes) -> list[str]:
    """Return one line for each key with another value: `politeness.rate: 5.0 → 2.0`."""
    old, new = dict(_flat(_plain(before), "")), dict(_flat(_plain(after), ""))
    keys = [key for key in {**old, **new} if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    lines = [f"{key}: {_text(old, key)} → {_text(new, key)}" for key in keys[:MOST_CHANGES]]
    more = len(keys) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


# What the leader and the workers can take over while a run is alive. All other keys decide about
# rows that are stored already, or about work that a worker has prepared.
LIVE_KEYS: Final = frozenset(
    {
        *("politeness.rate", "politeness.burst", "politeness.concurrency"),
        *("scope.max_depth", "scope.max_pages", "scope.max_pages_per_host"),
        *("tags", "priority", "fail_above", "max_runtime", "expires"),
    }
)
LIVE_SECTIONS: Final = ("placement.", "schedule.", "retention.")


def fixed_keys(before: bytes, after: bytes) -> list[str]:
    """Return the keys that differ and cannot change in a run that is alive."""
    old, new = dict(_flat(_plain(before), "")), dict(_flat(_plain(after), ""))
    fixed = [
        key
        for key in {**old, **new}
        if old.get(key, _ABSENT) != new.get(key, _ABSENT)
        and key not in LIVE_KEYS
        and not key.startswith(LIVE_SECTIONS)
    ]
    pages = "scope.max_pages_per_host"  # not counted in a run that began without it
    if old.get(pages) is None and new.get(pages) is not None:
        fixed.append(pages)
    return fixed


def _plain(spec: bytes) -> dict[str, Any]:
    try:
        plain = msgspec.json.decode(spec)
    except UNREADABLE:
        return {}
    return plain if isinstance(plain, dict) else {}


def _flat(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = f"{prefix}{key}"
        if path == "code" and isinstance(value, dict):
            yield "code.sha256", value.get("sha256")
        elif isinstance(value, dict) and value:
            yield from _flat(value, f"{path}.")
        else:
            yield path, value


def _text(values: dict[str, Any], key: str) -> str:
    if key not in values:
        return "not set"
    text = msgspec.json.encode(values[key]).decode()
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
