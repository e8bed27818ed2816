"""What the commands `user`, `token` and `audit` share: one request, and the texts of their rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from zcrawl.cli.base import Settings
from zcrawl.errors import UsageError

T = TypeVar("T")
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def with_cluster(settings: Settings, work: Callable[[Ask], Awaitable[T]]) -> T:
    """Do the work with the running cluster, or with a temporary one in the data folder."""
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    async def connected() -> T:
        async with connect.for_actions(settings) as ask:
            return await work(ask)

    return run_async(connected())


def request(settings: Settings, op: str, args: dict[str, Any]) -> dict[str, Any]:
    return with_cluster(settings, lambda ask: ask(op, args))


def moment(utc: float) -> str:
    """A time for people; empty: never."""
    return datetime.fromtimestamp(utc, UTC).strftime("%Y-%m-%d %H:%M:%S") if utc else ""


def parse_moment(text: str, flag: str) -> float:
    """Read a date, a date with a time, or both with a zone; without one it is UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{flag} {text!r} is not a date; write 2026-01-31 or 2026-01-31T08:00"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
