"""Times as views show them. Pure."""

from __future__ import annotations

import datetime


def iso(at: float) -> str | None:
    """Return a UTC time as `2026-01-31T12:00:00.250Z`; None for 0, which means never."""
    if not at:
        return None
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
