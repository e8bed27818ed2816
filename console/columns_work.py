"""The tables of who works on what: nodes, jobs, hosts. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from console.cells import (
    WHY_STYLE,
    amount,
    by_number,
    by_tags,
    by_text,
    count_cell,
    state_cell,
    tags_cell,
    text_cell,
)
from console.latest import Latest
from console.lines import Span
from console.rates import Rates
from console.state import Answer, View
from console.tables import Column, Row, Table, number, text
from console.units import count, duration, percent, rate, size
from zcrawl.model.snapshot import PublishedSnapshot

# ---------------------------------------------------------------- nodes


def node_rows(view: View) -> list[Row]:
    return _node_rows(view.known.snapshot)


@Latest
def _node_rows(snapshot: PublishedSnapshot | None) -> list[Row]:
    if snapshot is None:
        return []
    rows = [msgspec.structs.asdict(worker) | {"kind": "worker"} for worker in snapshot.workers]
    masters: list[Row] = [msgspec.to_builtins(master) for master in snapshot.masters]
    if not any(text(master, "id") == snapshot.leader for master in masters):
        masters.append({"id": snapshot.leader})
    for master in masters:
        leads = text(master, "id") == snapshot.leader
        own = msgspec.structs.asdict(snapshot.process) if leads else {}
        rows.append(master | own | {"kind": "master", "state": "leader" if leads else "follower"})
    return rows


def _load(row: Row) -> Span:
    if row.get("kind") != "worker":
        return Span("")
    return Span(f"{number(row, 'running'):.0f}/{number(row, 'slots'):.0f}")


def _lag(row: Row) -> Span:
    """What late loops cost is the whole cluster's time."""
    if "lag_ms" not in row:
        return Span("")
    return Span(f"{number(row, 'lag_ms'):.0f}", "warn" if number(row, "lag_ms") > 200 else "")


def _heard(row: Row) -> Span:
    """Of workers and of masters that tell something; one that has told nothing shows nothing."""
    if "heard_s_ago" not in row:
        return Span("")
    silent_s = number(row, "heard_s_ago")
    return Span(duration(silent_s), "warn" if silent_s > 3 else "")


def _of_worker(show: Callable[[Row], str]) -> Callable[[Row], Span]:
    return lambda row: Span(show(row) if row.get("kind") == "worker" else "")


NODES = Table(
    columns=(
        Column("Node", 0, text_cell("id"), "id", "N", key=by_text("id")),
        Column("Kind", 7, text_cell("kind", "dim"), "kind", "K", key=by_text("kind"), least=90),
        Column("State", 9, state_cell, "state", "S", key=by_text("state")),
        Column("Load", 9, _load, "load", "L", True, by_number("running"), desc=True),
        Column("Wait", 6, _of_worker(lambda r: count(number(r, "waiting"))), right=True, least=90),
        Column(
            "Rate/s",
            8,
            _of_worker(lambda r: rate(number(r, "rate"))),
            "rate",
            "R",
            True,
            by_number("rate"),
            desc=True,
        ),
        Column(
            "Memory",
            10,
            lambda row: Span(size(number(row, "rss_bytes")) if number(row, "rss_bytes") else ""),
            "memory",
            "M",
            True,
            by_number("rss_bytes"),
            desc=True,
        ),
        Column(
            "laG ms",
            8,
            _lag,
            "lag",
            "G",
            True,
            by_number("lag_ms"),
            desc=True,
        ),
        Column(
            "Heard",
            8,
            _heard,
            "heard",
            "H",
            True,
            by_number("heard_s_ago"),
            desc=True,
        ),
        Column(
            "Outbox", 7, _of_worker(lambda r: count(number(r, "outbox"))), right=True, least=110
        ),
        Column("Host", 16, text_cell("hostname", "dim"), least=120),
        Column("Version", 9, text_cell("version", "dim"), least=130),
    ),
    key=lambda row: f"{text(row, 'kind')}/{text(row, 'id')}",
    sort="id",
    desc=False,
    rows=node_rows,
    empty="no nodes yet",
)

# ---------------------------------------------------------------- jobs

ENDED: Final = ("completed", "cancelled", "deleted")
MOST_ENDED: Final = 500


def job_rows(view: View) -> list[Row]:
    """The snapshot's runs, and jobs that had ended before its leader took over."""
    cluster_state = view.known
    return _job_rows(
        cluster_state.snapshot, cluster_state.rates, cluster_state.answers.get("jobs:")
    )


@Latest
def _job_rows(snapshot: PublishedSnapshot | None, rates: Rates, stored: Answer | None) -> list[Row]:
    if snapshot is None:
        return []
    rows = []
    for run in snapshot.runs:
        speed = rates.final_by_run.get(run.run, 0.0)
        left = run.left / speed if speed > 0 and not run.ended else None
        rows.append(
            msgspec.structs.asdict(run)
            | {"pages_s": rates.by_run.get(run.run, 0.0), "share": run.share, "eta": left}
        )
    return [*rows, *_ended_before(snapshot, stored)]


def _ended_before(snapshot: PublishedSnapshot, stored: Answer | None) -> list[Row]:
    jobs = stored.data.get("jobs") if stored is not None else None
    run_numbers = {run.run for run in snapshot.runs}
    return [
        {**row, "share": 1.0, "pages_s": 0.0}
        for row in (jobs if isinstance(jobs, list) else [])[-MOST_ENDED:]
        if isinstance(row, dict)
        and row.get("run") not in run_numbers
        and text(row, "state") in ENDED
    ]


def _share(bar: int) -> Callable[[Row], Span]:
    def cell(row: Row) -> Span:
        share = number(row, "share")
        full = round(share * bar)
        style = "good" if text(row, "state") == "running" else "dim"
        return Span(f"{'█' * full}{'░' * (bar - full)}{percent(share):>6}", style)

    return cell


def _eta(row: Row) -> Span:
    if text(row, "state") in ENDED:
        return Span(duration(number(row, "seconds")), "dim")
    return Span(duration(row.get("eta")))


JOBS = Table(
    columns=(
        Column("Job", 5, text_cell("job", "dim"), "job", "J", True, by_number("job"), least=90),
        Column("Name", 0, text_cell("name"), "name", "N", key=by_text("name")),
        Column("State", 10, state_cell, "state", "S", key=by_text("state")),
        Column("Progr", 9, _share(3), key=by_number("share"), most=99),
        Column(
            "Progress",
            17,
            _share(10),
            "progress",
            "P",
            key=by_number("share"),
            least=100,
            desc=True,
        ),
        Column(
            "Rate/s",
            7,
            lambda row: Span(rate(number(row, "pages_s")), "bold"),
            "rate",
            "R",
            True,
            by_number("pages_s"),
            desc=True,
        ),
        amount("Done", "pages", "D"),
        amount("Queued", "queued", "Q"),
        amount("Failed", "failed", "F", "bad"),
        amount("Items", "items", "I", least=110),
        Column("Left", 9, _eta, "left", "L", True, lambda row: row.get("eta") or 1e18),
        Column("Pace", 12, lambda row: Span(_pace(row), "dim"), right=True, least=130),
        Column("Tags", 16, tags_cell, "tags", "T", key=by_tags, least=140),
        Column("Why", 20, text_cell("reason", "dim"), least=150),
    ),
    key=lambda row: text(row, "run"),
    sort="job",
    desc=True,
    rows=job_rows,
    empty="no jobs; `n` submits one",
)


def _pace(row: Row) -> str:
    if row.get("rate") is None:
        return ""
    speed = f"{number(row, 'rate'):g}/s" if number(row, "rate") else "no limit"
    return f"{speed} × {number(row, 'concurrency'):.0f}"


# ---------------------------------------------------------------- hosts


def why_cell(row: Row) -> Span:
    return Span(text(row, "reason"), WHY_STYLE.get(text(row, "why"), ""))


def _robots(row: Row) -> str:
    """What robots.txt asks for; a dash as long as nobody has read it."""
    if number(row, "crawl_delay_s"):
        return f"{number(row, 'crawl_delay_s'):g} s"
    return "read" if row.get("robots") else "–"


def _breaker(row: Row) -> Span:
    if number(row, "opens"):
        return Span(f"open {number(row, 'opens'):.0f}×", "bad")
    failures = number(row, "failures")
    return Span(f"{failures:.0f} failed", "warn") if failures else Span("closed", "dim")


HOSTS = Table(
    columns=(
        Column("Host", 0, text_cell("host"), "host", "H"),
        amount("Queued", "queued", "Q"),
        Column("Flight", 7, count_cell("in_flight"), "in_flight", "F", True, desc=True),
        Column("Owner", 10, text_cell("owner"), "owner", "O"),
        Column(
            "Pace",
            9,
            lambda row: Span(host_pace(row), "dim"),
            "interval",
            "P",
            True,
            desc=True,
            least=90,
        ),
        Column(
            "Next",
            7,
            lambda row: Span(duration(number(row, "next_in_s")), "dim"),
            "next",
            "N",
            True,
            least=100,
        ),
        Column("Robots", 8, lambda row: Span(_robots(row), "accent"), right=True, least=110),
        Column("Breaker", 8, _breaker, least=130),
        Column("Why it waits", 0, why_cell),
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="hosts",
    empty="no host is known yet",
)


def host_pace(row: Row) -> str:
    interval_s = number(row, "interval_s")
    return f"{1 / interval_s:.3g}/s" if interval_s > 0 else "no limit"
