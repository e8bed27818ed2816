"""All tables of the console: what each row shows, and how it can be sorted. Pure data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from console.lines import Span, sparkline
from console.plain import plain
from console.state import Page, View
from console.tables import Column, Row, Table, number, text
from console.units import clock_text, count, duration, percent, rate, size

STATE_STYLE: Final = {
    "busy": "good",
    "leader": "good",
    "follower": "",
    "idle": "",
    "joining": "warn",
    "suspect": "warn",
    "draining": "warn",
    "lost": "bad",
    "offline": "dim",
    "running": "good",
    "paused": "warn",
    "completed": "dim",
    "cancelled": "dim",
    "deleted": "dim",
}
WHY_STYLE: Final = {
    "fetching": "good",
    "due": "good",
    "concurrency": "good",
    "pace": "accent",
    "crawl_delay": "accent",
    "idle": "dim",
    "paused": "warn",
    "retry": "warn",
    "no_worker": "bad",
    "worker_full": "warn",
}
LEVEL_STYLE: Final = {"warning": "warn", "error": "bad"}


def _text(name: str, style: str = "") -> Callable[[Row], Span]:
    return lambda row: Span(text(row, name), style)


def _count(name: str, style: str = "") -> Callable[[Row], Span]:
    return lambda row: Span(count(number(row, name)), style if number(row, name) else "dim")


def _by(name: str) -> Callable[[Row], Any]:
    return lambda row: text(row, name).casefold()


def _num(name: str) -> Callable[[Row], Any]:
    return lambda row: number(row, name)


def _state(row: Row) -> Span:
    state = text(row, "state")
    return Span(state, STATE_STYLE.get(state, ""))


def _amount(title: str, name: str, letter: str, style: str = "", least: int = 0) -> Column:
    return Column(
        title, 9, _count(name, style), name, letter, True, _num(name), least=least, desc=True
    )


# ---------------------------------------------------------------- nodes


def node_rows(view: View) -> list[Row]:
    snapshot = view.known.snapshot
    if snapshot is None:
        return []
    rows = [msgspec.structs.asdict(one) | {"kind": "worker"} for one in snapshot.workers]
    masters = [dict(one) for one in snapshot.masters if isinstance(one, dict)]
    if not any(text(one, "id") == snapshot.leader for one in masters):
        masters.append({"id": snapshot.leader})
    for one in masters:
        leads = text(one, "id") == snapshot.leader
        rows.append(one | {"kind": "master", "state": "leader" if leads else "follower"})
    return rows


def _load(row: Row) -> Span:
    if row.get("kind") != "worker":
        return Span("")
    return Span(f"{number(row, 'running'):.0f}/{number(row, 'slots'):.0f}")


def _of_worker(
    show: Callable[[Row], str], warn: Callable[[Row], bool] | None = None
) -> Callable[[Row], Span]:
    def cell(row: Row) -> Span:
        if row.get("kind") != "worker":
            return Span("")
        return Span(show(row), "warn" if warn is not None and warn(row) else "")

    return cell


NODES = Table(
    columns=(
        Column("Node", 0, _text("id"), "id", "N", key=_by("id")),
        Column("Kind", 7, _text("kind", "dim"), "kind", "K", key=_by("kind"), least=90),
        Column("State", 9, _state, "state", "S", key=_by("state")),
        Column("Load", 9, _load, "load", "L", True, _num("running"), desc=True),
        Column("Wait", 6, _of_worker(lambda r: count(number(r, "waiting"))), right=True, least=90),
        Column(
            "Rate/s",
            8,
            _of_worker(lambda r: rate(number(r, "rate"))),
            "rate",
            "R",
            True,
            _num("rate"),
            desc=True,
        ),
        Column(
            "Memory",
            10,
            _of_worker(lambda r: size(number(r, "rss_bytes"))),
            "memory",
            "M",
            True,
            _num("rss_bytes"),
            desc=True,
        ),
        Column(
            "laG ms",
            8,
            _of_worker(lambda r: f"{number(r, 'lag_ms'):.0f}", lambda r: number(r, "lag_ms") > 200),
            "lag",
            "G",
            True,
            _num("lag_ms"),
            desc=True,
        ),
        Column(
            "Heard",
            8,
            _of_worker(
                lambda r: duration(number(r, "heard_s_ago")), lambda r: number(r, "heard_s_ago") > 3
            ),
            "heard",
            "H",
            True,
            _num("heard_s_ago"),
            desc=True,
        ),
        Column(
            "Outbox", 7, _of_worker(lambda r: count(number(r, "outbox"))), right=True, least=110
        ),
        Column("Host", 16, _text("hostname", "dim"), least=120),
        Column("Version", 9, _text("version", "dim"), least=130),
    ),
    key=lambda row: f"{text(row, 'kind')}/{text(row, 'id')}",
    sort="id",
    desc=False,
    rows=node_rows,
    empty="no nodes yet",
)

# ---------------------------------------------------------------- jobs


def job_rows(view: View) -> list[Row]:
    known = view.known
    if known.snapshot is None:
        return []
    rows = []
    for one in known.snapshot.runs:
        speed = known.rates.final_by_run.get(one.run, 0.0)
        left = one.left / speed if speed > 0 and not one.ended else None
        rows.append(
            msgspec.structs.asdict(one)
            | {"pages_s": known.rates.by_run.get(one.run, 0.0), "share": one.share, "eta": left}
        )
    return rows


def _share(row: Row) -> Span:
    share = number(row, "share")
    full = round(share * 10)
    bar = "█" * full + "░" * (10 - full)
    style = "good" if text(row, "state") == "running" else "dim"
    return Span(f"{bar}{percent(share):>6}", style)


def _eta(row: Row) -> Span:
    if text(row, "state") in ("completed", "cancelled", "deleted"):
        return Span(duration(number(row, "seconds")), "dim")
    return Span(duration(row.get("eta")))


JOBS = Table(
    columns=(
        Column("Job", 5, _text("job", "dim"), "job", "J", True, _num("job")),
        Column("Name", 0, _text("name"), "name", "N", key=_by("name")),
        Column("State", 10, _state, "state", "S", key=_by("state")),
        Column("Progress", 17, _share, "progress", "P", key=_num("share"), desc=True),
        Column(
            "Rate/s",
            7,
            lambda row: Span(rate(number(row, "pages_s")), "bold"),
            "rate",
            "R",
            True,
            _num("pages_s"),
            desc=True,
        ),
        _amount("Done", "pages", "D"),
        _amount("Queued", "queued", "Q"),
        _amount("Failed", "failed", "F", "bad"),
        _amount("Items", "items", "I", least=110),
        Column("Left", 9, _eta, "left", "L", True, lambda row: row.get("eta") or 1e18),
        Column("Pace", 12, lambda row: Span(_pace(row), "dim"), right=True, least=130),
        Column("Why", 20, _text("reason", "dim"), least=150),
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


# ---------------------------------------------------------------- queues and hosts


def _why(row: Row) -> Span:
    return Span(text(row, "reason"), WHY_STYLE.get(text(row, "why"), ""))


def _trend(row: Row) -> Span:
    trend = row.get("trend")
    if not isinstance(trend, list | tuple):
        return Span("")
    return Span(sparkline([float(one) for one in trend], 12), "accent")


QUEUES = Table(
    columns=(
        Column("Job", 5, _text("job", "dim"), right=True),
        Column("Name", 0, _text("name"), "name", "N"),
        Column("State", 9, _state),
        _amount("Queued", "queued", "Q"),
        Column("trend", 12, _trend, least=90),
        Column("Ready", 8, _count("ready"), right=True),
        Column("Delayed", 8, _count("delayed"), right=True),
        Column("Stored", 9, _count("beyond"), right=True, least=90),
        Column("Leased", 8, _count("leased"), "leased", "L", True, desc=True),
        Column("Uncommitted", 12, _count("backlog"), right=True, least=100),
        Column("Hosts", 7, _count("hosts"), "hosts", "H", True, desc=True),
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="queues",
    empty="no run is going on",
)

LANES = Table(
    columns=(
        Column("Host", 0, _text("host"), "host", "H"),
        _amount("Queued", "queued", "Q"),
        Column("Ready", 7, _count("ready"), right=True),
        Column("Delayed", 8, _count("delayed"), right=True),
        Column("Stored", 8, _count("beyond"), right=True, least=90),
        Column("Owner", 10, _text("owner"), least=90),
        Column("Why it waits", 38, _why),
    ),
    key=lambda row: text(row, "id"),
    sort="queued",
    desc=True,
    op="lanes",
    args=lambda view: {"run": int(view.place.ref or 0)},
    empty="nothing is queued",
)

HOSTS = Table(
    columns=(
        Column("Host", 0, _text("host"), "host", "H"),
        _amount("Queued", "queued", "Q"),
        Column("Flight", 7, _count("in_flight"), "in_flight", "F", True, desc=True),
        Column("Owner", 10, _text("owner"), "owner", "O"),
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
        Column("Robots", 7, lambda row: Span(_delay(row), "accent"), right=True, least=110),
        Column("Why it waits", 38, _why),
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


def _delay(row: Row) -> str:
    return f"{number(row, 'crawl_delay_s'):g} s" if number(row, "crawl_delay_s") else ""


# ---------------------------------------------------------------- errors, items, log

ERRORS = Table(
    columns=(
        _amount("Count", "count", "C", "bad"),
        Column("Reason", 18, _text("reason", "bad"), "reason", "R"),
        Column("Code", 5, lambda row: Span(text(row, "status") if number(row, "status") else "")),
        Column("Host", 26, _text("host"), "host", "H"),
        Column("Job", 14, _text("name"), "name", "J", least=100),
        Column(
            "At", 9, lambda row: Span(clock_text(number(row, "at")), "dim"), "at", "A", desc=True
        ),
        Column("Newest URL", 0, _text("url", "dim")),
    ),
    key=lambda row: f"{text(row, 'run')}/{text(row, 'host_id')}/{text(row, 'reason')}",
    sort="count",
    desc=True,
    op="errors",
    empty="no failures since this leader took over",
)

FAILED = Table(
    columns=(
        Column("State", 8, _text("state", "bad")),
        Column("Reason", 18, _text("reason")),
        Column("Code", 5, lambda row: Span(text(row, "status") if number(row, "status") else "")),
        Column("Tries", 6, _count("attempts"), right=True),
        Column("URL", 0, _text("url")),
        Column("Linked from", 40, _text("parent", "dim"), least=130),
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
    empty="none of them failed any more",
)


def item_of(row: Row) -> Row:
    """The fields of an item; what is no object is shown as it is."""
    try:
        found = json.loads(row.get("data", ""))
    except (TypeError, ValueError):
        return {"data": row.get("data", "")}
    return found if isinstance(found, dict) else {"data": found}


def _item_url(row: Row) -> Span:
    return Span(text(item_of(row), "url"), "dim")


def _item_text(row: Row) -> Span:
    fields = item_of(row)
    if fields.get("title"):
        return Span(text(fields, "title"))
    hidden = ("url", "final_url", "fetched_at", "parent", "content_type")
    parts = [f"{plain(name, 40)}={plain(value, 80)}" for name, value in fields.items() if value]
    return Span("  ".join(one for one in parts if not one.startswith(hidden)))


ITEMS = Table(
    columns=(
        Column("Id", 9, _text("id", "dim"), right=True),
        Column("Run", 5, _text("run", "dim"), right=True),
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


def log_rows(view: View) -> list[Row]:
    """Newest first: what was heard since the console runs, and before that what the leader kept."""
    heard = [msgspec.structs.asdict(one) for one in reversed(view.known.happenings)]
    oldest = min((one["at"] for one in heard if one["source"] != "console"), default=1e18)
    before = [row for row in view.known.rows("log:") if number(row, "at") < oldest]
    return [*heard, *before]


LOG = Table(
    columns=(
        Column("At", 9, lambda row: Span(clock_text(number(row, "at")), "dim")),
        Column(
            "Level",
            8,
            lambda row: Span(text(row, "level"), LEVEL_STYLE.get(text(row, "level"), "dim")),
        ),
        Column("Node", 9, _text("source", "accent")),
        Column(
            "Event",
            20,
            lambda row: Span(text(row, "name"), LEVEL_STYLE.get(text(row, "level"), "")),
        ),
        Column("What", 0, _text("text")),
    ),
    key=lambda row: f"{text(row, 'at')}/{text(row, 'name')}/{text(row, 'text')}",
    sort="",
    desc=True,
    rows=log_rows,
    newest_first=True,
    empty="nothing has happened yet",
)

TABLES: Final[dict[Page, Table]] = {
    Page.NODES: NODES,
    Page.JOBS: JOBS,
    Page.QUEUES: QUEUES,
    Page.LANES: LANES,
    Page.HOSTS: HOSTS,
    Page.ERRORS: ERRORS,
    Page.FAILED: FAILED,
    Page.ITEMS: ITEMS,
    Page.LOG: LOG,
}
