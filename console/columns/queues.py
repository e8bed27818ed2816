"""The tables of what waits: by job, by tag, by host, and the queues of one run. Pure data.

The sums, their order and their filter are the leader's. So is the trend of jobs and tags; that of
a host is what the leader said of it lately.
"""

from __future__ import annotations

from typing import Any, Final

from console.columns.cells import amount, count_cell, state_cell, tags_cell, text_cell
from console.columns.work import why_cell
from console.drawing.lines import Span, sparkline
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


# The three states of a request in flight, the same in every table.
IN_FLIGHT: Final = (
    Column("Fetching", 8, count_cell("fetching"), "fetching", "F", True, desc=True),
    Column("Waiting", 8, count_cell("waiting"), "waiting", "W", True, desc=True),
    Column("Uncommitted", 11, count_cell("uncommitted"), "uncommitted", "U", True, desc=True),
)
SUMS: Final = (
    amount("Queued", "queued", "Q"),
    Column("Trend", 12, _trend, least=112),
    Column("Due", 7, count_cell("ready"), "due", "D", True, desc=True),
    Column("Delayed", 8, count_cell("delayed"), right=True, least=120),
    Column("Stored", 8, count_cell("beyond"), right=True, least=130),
    *IN_FLIGHT,
    Column(
        "Commit queue",
        12,
        count_cell("commit_queue", "warn"),
        "commit_queue",
        "C",
        True,
        desc=True,
        least=100,
    ),
)
_JOBS: Final = Column("Jobs", 6, count_cell("jobs"), "jobs", "J", True, desc=True)
_HOSTS: Final = Column("Hosts", 6, count_cell("hosts"), "hosts", "H", True, desc=True, least=100)

QUEUES = Table(
    columns=(
        Column("Job", 5, text_cell("job", "dim"), right=True),
        Column("Name", 0, text_cell("name"), "name", "N"),
        Column("Tags", 16, tags_cell, least=150),
        Column("State", 9, state_cell),
        *SUMS,
        _HOSTS,
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="queues",
    args=_of_tag,
    empty="no job is running",
)

TAG_QUEUES = Table(
    columns=(Column("Tag", 0, text_cell("tag"), "name", "T"), _JOBS, *SUMS, _HOSTS),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="queues",
    args=lambda view: {"by": "tag"},
    empty="no job is running",
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
        Column("Due", 7, count_cell("ready"), right=True),
        Column("Delayed", 8, count_cell("delayed"), right=True, least=90),
        Column("Trend", 12, _trend, least=130),
        Column("Stored", 8, count_cell("beyond"), right=True, least=90),
        Column("Fetching", 8, count_cell("fetching"), right=True),
        Column("Waiting", 8, count_cell("waiting"), right=True, least=110),
        Column("Uncommitted", 11, count_cell("uncommitted"), right=True, least=110),
        Column("Kinds", 22, _kinds, least=140),
        Column("Owner", 10, text_cell("owner"), least=90),
        Column("Why not faster", 0, why_cell),
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="lanes",
    args=lambda view: {"run": int(view.place.ref or 0)},
    empty="nothing is queued",
)
