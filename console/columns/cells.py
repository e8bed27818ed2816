"""The small parts that tables are made of: how one value of a row looks and compares. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from console.drawing.lines import Span
from console.plain import plain
from console.tables import Column, Row, number, text
from console.units import count
from zcrawl.model.reasons.waiting import (
    AWAY,
    CONCURRENCY,
    CRAWL_DELAY,
    DUE,
    ENDING,
    FETCHING,
    HOURS,
    IDLE,
    MOVING,
    NO_WORKER,
    PACE,
    PAGES_IN_FLIGHT,
    PAUSED,
    RETRY,
    SHARED,
    SUSPECTS,
    THROTTLED,
    WORKER_FULL,
)

STATE_STYLE: Final = {
    "busy": "good",
    "leader": "good",
    "follower": "",
    "alive": "good",
    "listed": "",
    "silent": "bad",
    "differs": "warn",
    "idle": "",
    "joining": "warn",
    "suspect": "warn",
    "draining": "warn",
    "lost": "bad",
    "offline": "dim",
    "pending": "warn",
    "running": "good",
    "failed": "bad",
    "active": "",
    "archived": "dim",
    "paused": "warn",
    "completed": "dim",
    "cancelled": "dim",
    "deleted": "dim",
}
WHY_STYLE: Final = {
    FETCHING: "good",
    DUE: "good",
    CONCURRENCY: "good",
    PAGES_IN_FLIGHT: "good",
    SUSPECTS: "warn",
    PACE: "accent",
    CRAWL_DELAY: "accent",
    SHARED: "accent",
    MOVING: "warn",
    IDLE: "dim",
    PAUSED: "warn",
    RETRY: "warn",
    NO_WORKER: "bad",
    AWAY: "bad",
    THROTTLED: "warn",
    ENDING: "warn",
    HOURS: "accent",
    WORKER_FULL: "warn",
}
LEVEL_STYLE: Final = {"warning": "warn", "error": "bad"}
LEVEL_MARK: Final = {"bad": "✖", "warn": "▲"}


def text_cell(name: str, style: str = "") -> Callable[[Row], Span]:
    return lambda row: Span(text(row, name), style)


def count_cell(name: str, style: str = "") -> Callable[[Row], Span]:
    return lambda row: Span(count(number(row, name)), style if number(row, name) else "dim")


def by_text(name: str) -> Callable[[Row], Any]:
    return lambda row: text(row, name).casefold()


def by_number(name: str) -> Callable[[Row], Any]:
    return lambda row: number(row, name)


def tags_in(row: Row) -> list[str]:
    """A job's tags; what is no list of them is none."""
    tags = row.get("tags")
    return [plain(tag, 40) for tag in tags] if isinstance(tags, list | tuple) else []


def by_tags(row: Row) -> str:
    return ", ".join(tags_in(row))


def tags_cell(row: Row) -> Span:
    return Span(by_tags(row), "dim")


def state_cell(row: Row) -> Span:
    state = text(row, "state")
    return Span(state, STATE_STYLE.get(state, ""))


def amount(title: str, name: str, letter: str, style: str = "", least: int = 0) -> Column:
    return Column(
        title,
        8,
        count_cell(name, style),
        name,
        letter,
        True,
        by_number(name),
        least=least,
        desc=True,
    )
