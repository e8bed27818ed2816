"""The tables of what came out of it: errors, failed URLs, items, the log. Pure data."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from console.columns.cells import LEVEL_STYLE, amount, count_cell, text_cell
from console.drawing.lines import Span
from console.latest import Latest
from console.plain import plain
from console.state import Answer, ConsolePage, Happening, View
from console.tables import Column, Row, Table, number, text
from console.units import clock_text
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.telemetry.log_lines import read_filter

ERRORS = Table(
    columns=(
        amount("Count", "count", "C", "bad"),
        Column("Reason", 16, text_cell("reason", "bad"), "reason", "R"),
        Column("Code", 5, lambda row: Span(text(row, "status") if number(row, "status") else "")),
        Column("Host", 0, text_cell("host"), "host", "H"),
        Column("Job", 14, text_cell("name"), "name", "J", least=100),
        Column(
            "At", 9, lambda row: Span(clock_text(number(row, "at")), "dim"), "at", "A", desc=True
        ),
        Column("Newest URL", 0, text_cell("url", "dim")),
        Column("What happened", 0, text_cell("detail"), least=130),
    ),
    key=lambda row: f"{text(row, 'run')}/{text(row, 'host_id')}/{text(row, 'reason')}",
    sort="count",
    desc=True,
    op="errors",
    empty="no failures",
)


def url_state(state: str) -> str:
    """A URL's state in a word for people: one that is not tried again has failed."""
    return "failed" if state == "dead" else state


FAILED = Table(
    columns=(
        Column("State", 8, lambda row: Span(url_state(text(row, "state")), "bad")),
        Column("Reason", 18, text_cell("reason")),
        Column("Code", 5, lambda row: Span(text(row, "status") if number(row, "status") else "")),
        Column("Tries", 6, count_cell("attempts"), right=True),
        Column("URL", 0, text_cell("url")),
        Column("What happened", 0, text_cell("detail"), least=100),
        Column("Linked from", 40, text_cell("parent", "dim"), least=150),
    ),
    key=lambda row: text(row, "seq"),
    sort="",
    desc=False,
    op="failed",
    args=lambda view: {
        "run": int(number(view.place.about, "run")),
        "reason": text(view.place.about, "reason"),
        "host": int(number(view.place.about, "host_id")),
    },
    newest_first=True,
    empty="nothing to retry",
)


def item_of(row: Row) -> Row:
    """The fields of an item; what is no object is shown as it is."""
    try:
        item = json.loads(row.get("data", ""))
    except (TypeError, ValueError):
        return {"data": row.get("data", "")}
    return item if isinstance(item, dict) else {"data": item}


def _item_url(row: Row) -> Span:
    return Span(text(item_of(row), "url"), "dim")


def _item_text(row: Row) -> Span:
    fields = item_of(row)
    if fields.get("title"):
        return Span(text(fields, "title"))
    hidden = ("url", "final_url", "fetched_at", "parent", "content_type")
    parts = [f"{plain(name, 40)}={plain(value, 80)}" for name, value in fields.items() if value]
    return Span("  ".join(part for part in parts if not part.startswith(hidden)))


ITEMS = Table(
    columns=(
        Column("Id", 9, text_cell("id", "dim"), right=True),
        Column("Run", 5, text_cell("run", "dim"), right=True),
        Column("What", 0, _item_text),
        Column("URL", 50, _item_url, least=100),
    ),
    key=lambda row: text(row, "id"),
    sort="",
    desc=True,
    op="items",
    args=lambda view: {"run": int(view.place.ref)} if view.place.ref else {},
    newest_first=True,
    text=lambda row: text(row, "data"),
    empty="no items yet",
)


def log_slot(view: View) -> str:
    """Where the leader's answer about older lines is: of a filtered log it has more of them."""
    return "log:found" if view.page is ConsolePage.LOG and view.table.filter else "log:"


def log_rows(view: View) -> list[Row]:
    cluster_state = view.content
    return _log_rows(
        cluster_state.happenings, cluster_state.answers.get(log_slot(view)), cluster_state.snapshot
    )


def node_lines(view: View, node: str) -> list[Row]:
    """What a node logged, and what others say about it."""
    cluster_state = view.content
    rows = _node_lines(
        cluster_state.happenings,
        cluster_state.answers.get(view.place.key + ":log"),
        cluster_state.snapshot,
    )
    named = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])")
    return [
        row for row in rows if row.get("source") == node or named.search(str(row.get("text", "")))
    ]


def _merged(
    happenings: tuple[Happening, ...], kept: Answer | None, snapshot: PublishedSnapshot | None
) -> list[Row]:
    """Newest first: what was heard since the console runs, and before that what the leader kept."""
    jobs = {run.run: run for run in snapshot.runs} if snapshot is not None else {}
    heard = [msgspec.structs.asdict(happening) for happening in reversed(happenings)]
    oldest = min((row["at"] for row in heard if row["source"] != "console"), default=1e18)
    before = [row for row in kept.rows if number(row, "at") < oldest] if kept is not None else []

    def with_job(row: Row) -> Row:
        of = jobs.get(int(number(row, "run")))
        return row | ({"job": of.name, "job_number": of.job} if of is not None else {})

    return folded(with_job(row) for row in (*heard, *before) if text(row, "name") not in HIDDEN)


# Bookkeeping of the protocol, and requests whose outcome is an event of its own.
HIDDEN: Final = frozenset(("settled_by_welcome", "asked"))
_SAME: Final = ("name", "source", "level", "text", "run")


def folded(rows: Iterable[Row]) -> list[Row]:
    """Rows that repeat the one before them become one row, with how often it came."""
    kept: list[Row] = []
    for row in rows:
        if kept and all(kept[-1].get(name) == row.get(name) for name in _SAME):
            kept[-1]["times"] += 1
        else:
            kept.append(row | {"times": 1})
    return kept


def _what(row: Row) -> Span:
    times = int(number(row, "times"))
    return Span(f"{text(row, 'text')}{f'  × {times}' if times > 1 else ''}")


_log_rows = Latest(_merged)
_node_lines = Latest(_merged)


def _fits(row: Row, typed: str) -> bool:
    about = [str(row[name]) for name in ("job", "job_number") if name in row]
    return _filter_of(typed).fits(row, about)


_filter_of = functools.lru_cache(16)(read_filter)


LOG = Table(
    columns=(
        Column("At", 9, lambda row: Span(clock_text(number(row, "at")), "dim")),
        Column(
            "Level",
            8,
            lambda row: Span(text(row, "level"), LEVEL_STYLE.get(text(row, "level"), "dim")),
        ),
        Column("Node", 12, text_cell("source", "accent")),
        Column(
            "Event",
            20,
            lambda row: Span(text(row, "name"), LEVEL_STYLE.get(text(row, "level"), "")),
            least=150,
        ),
        Column("Job", 14, text_cell("job", "dim"), least=110),
        Column("What", 0, _what),
    ),
    key=lambda row: f"{text(row, 'at')}/{text(row, 'name')}/{text(row, 'text')}",
    sort="",
    desc=True,
    rows=log_rows,
    fits=_fits,
    newest_first=True,
    empty="no events yet",
)
