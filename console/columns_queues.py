"""The tables of what waits: by job, by tag, by host, and the queues of one run. Pure data.

The sums, their order and their filter are the leader's. So is the trend of jobs and tags; that of
a host is what the leader said of it lately.
"""

from __future__ import annotations

from typing import Any, Final

from console.cells import amount, count_cell, state_cell, tags_cell, text_cell
from console.columns_work import why_cell
from console.lines import Span, sparkline
from console.state import ConsolePage, View
from console.tables import Column, Row, Table, text, trend_in

# How the queues can be grouped, in the order in which `b` goes through it.
BY: Final = {
    "job": ConsolePage.QUEUES,
    "tag": ConsolePage.TAG_QUEUES,
    "host": ConsolePage.HOST_QUEUES,
}


def next_grouping(page: ConsolePage) -> str:
    """What `b` groups by on this page; empty where it does nothing."""
    names, pages = list(BY), list(BY.values())
    return names[(pages.index(page) + 1) % len(names)] if page in pages else ""


def _trend(row: Row) -> Span:
    return Span(sparkline(trend_in(row), 12), "accent")


def _kinds(row: Row) -> Span:
    """How many of a queue's rows go to which extraction block, the most first."""
    counted = row.get("kinds")
    kinds = counted.items() if isinstance(counted, dict) else ()
    counts_text = ", ".join(f"{name} {times}" for name, times in kinds)
    return Span(text({"kinds": counts_text}, "kinds"), "dim")  # block names are a stranger's text


def _of_tag(view: View) -> dict[str, Any]:
    """All jobs, or those with the tag that one came from."""
    return {"by": "job", **({"tag": view.place.ref} if view.place.ref else {})}


SUMS: Final = (
    amount("Waiting", "queued", "W"),
    Column("trend", 12, _trend, least=90),
    Column("Due", 7, count_cell("ready"), "due", "D", True, desc=True),
    Column("Delayed", 8, count_cell("delayed"), right=True, least=110),
    Column("Stored", 8, count_cell("beyond"), right=True, least=120),
    Column("Leased", 7, count_cell("leased"), "leased", "L", True, desc=True),
    Column("Unacked", 8, count_cell("unacked"), "unacked", "U", True, desc=True),
    Column("Backlog", 8, count_cell("backlog", "warn"), "backlog", "B", True, desc=True),
)
_JOBS: Final = Column("Jobs", 6, count_cell("jobs"), "jobs", "J", True, desc=True)
_HOSTS: Final = Column("Hosts", 6, count_cell("hosts"), "hosts", "H", True, desc=True, least=100)

QUEUES = Table(
    columns=(
        Column("Job", 5, text_cell("job", "dim"), right=True),
        Column("Name", 0, text_cell("name"), "name", "N"),
        Column("Tags", 16, tags_cell, least=140),
        Column("State", 9, state_cell),
        *SUMS,
        _HOSTS,
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="queues",
    args=_of_tag,
    empty="no run is going on",
)

TAG_QUEUES = Table(
    columns=(Column("Tag", 0, text_cell("tag"), "name", "T"), _JOBS, *SUMS, _HOSTS),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="queues",
    args=lambda view: {"by": "tag"},
    empty="no run is going on",
)

HOST_QUEUES = Table(
    columns=(Column("Host", 0, text_cell("host"), "name", "H"), _JOBS, *SUMS),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="queues",
    args=lambda view: {"by": "host"},
    empty="nothing is queued",
)

LANES = Table(
    columns=(
        Column("Host", 0, text_cell("host"), "host", "H"),
        amount("Queued", "queued", "Q"),
        Column("Ready", 7, count_cell("ready"), right=True),
        Column("Delayed", 8, count_cell("delayed"), right=True),
        Column("trend", 12, _trend, least=100),
        Column("Stored", 8, count_cell("beyond"), right=True, least=90),
        Column("Leased", 7, count_cell("in_flight"), right=True, least=100),
        Column("Kinds", 22, _kinds, least=140),
        Column("Owner", 10, text_cell("owner"), least=90),
        Column("Why it waits", 0, why_cell),
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="lanes",
    args=lambda view: {"run": int(view.place.ref or 0)},
    empty="nothing is queued",
)
