"""The tables of who works on what: nodes, jobs, hosts. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from console.columns.cells import (
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
from console.drawing.lines import Span
from console.latest import Latest
from console.rates import Rates
from console.state import Answer, ConsolePage, View
from console.tables import Column, Row, Table, number, text
from console.units import count, duration, percent, rate, size
from zcrawl.model.snapshot import (
    LEADER,
    ListedNodeView,
    NodeListView,
    PublishedSnapshot,
    WorkerView,
)

# ---------------------------------------------------------------- nodes


def node_rows(view: View) -> list[Row]:
    return _node_rows(view.content.snapshot)


# Figures of a worker that are those of its last heartbeat. Once it is silent they are old.
FIGURES: Final = (
    *("slots", "rate", "running", "waiting", "outbox", "rss_bytes", "lag_ms", "cpu_percent"),
    *("leases", "uncommitted"),
)
GONE: Final = ("lost", "offline")
LISTED: Final = "listed"  # the kind of a node of the list of standalone nodes


@Latest
def _node_rows(snapshot: PublishedSnapshot | None) -> list[Row]:
    if snapshot is None:
        return []
    rows = [_worker_row(worker) for worker in snapshot.workers]
    masters: list[Row] = [msgspec.to_builtins(master) for master in snapshot.masters]
    if not any(text(master, "id") == snapshot.leader for master in masters):
        masters.append({"id": snapshot.leader, "role": LEADER})
    for master in masters:
        leads = text(master, "id") == snapshot.leader
        own = msgspec.structs.asdict(snapshot.process) if leads else {}
        state = LEADER if leads else text(master, "role")
        rows.append(master | _measured(own) | {"kind": "master", "state": state})
    if snapshot.standalone is not None:
        rows += (_listed_row(snapshot.standalone, node) for node in snapshot.standalone.nodes)
    return rows


def _listed_row(list_: NodeListView, node: ListedNodeView) -> Row:
    """A node of the list of standalone nodes: nobody measures the others."""
    state = "alive" if list_.watched else "listed"
    if not node.alive:
        state = "silent"
    elif node.differs:
        state = "differs"
    fields = {"id": node.id, "kind": LISTED, "state": state, "hostname": node.address}
    return fields | {"list": node.fingerprint, "differs": node.differs}


def _node_name(row: Row) -> Span:
    """The name; of a listed node also the fingerprint of its list, marked if it is another one."""
    name, its = text(row, "id"), text(row, "list")
    if text(row, "kind") != LISTED or not its:
        return Span(name)
    return Span(f"{name}  ▲ {its}", "warn") if row.get("differs") else Span(f"{name}  {its}")


def _worker_row(worker: WorkerView) -> Row:
    """A worker without the figures of a process that is gone: a blank cell is true."""
    row = _measured(msgspec.structs.asdict(worker)) | {"kind": "worker"}
    if worker.state in GONE:
        row = {name: value for name, value in row.items() if name not in FIGURES}
    return row


def _measured(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _figure(name: str, show: Callable[[float], str]) -> Callable[[Row], Span]:
    """A cell that is blank where nothing was measured."""
    return lambda row: Span(show(number(row, name)) if name in row else "")


def _load(row: Row) -> Span:
    """What a worker is fetching, of what it can fetch at a time."""
    if "slots" not in row:
        return Span("")
    return Span(f"{number(row, 'running'):.0f}/{number(row, 'slots'):.0f}")


def _lag(row: Row) -> Span:
    """A late event loop delays everything that the process does."""
    if "lag_ms" not in row:
        return Span("")
    lag_ms = number(row, "lag_ms")
    return Span(f"{lag_ms:.0f} ms", "warn" if lag_ms > 200 else "")


def _cpu(row: Row) -> Span:
    if "cpu_percent" not in row:
        return Span("")
    used = number(row, "cpu_percent")
    return Span(f"{used:.0f} %", "warn" if used > 90 else "")


def _heard(row: Row) -> Span:
    """When the node last reported; blank if it never did."""
    if "heard_s_ago" not in row:
        return Span("")
    silent_s = number(row, "heard_s_ago")
    return Span(f"{duration(silent_s)} ago", "warn" if silent_s > 3 else "")


NODES = Table(
    columns=(
        Column("Node", 0, _node_name, "id", "N", key=by_text("id")),
        Column("Kind", 7, text_cell("kind", "dim"), "kind", "K", key=by_text("kind"), least=100),
        Column("State", 9, state_cell, "state", "S", key=by_text("state")),
        Column("Fetching", 9, _load, "load", "F", True, by_number("running"), desc=True),
        Column("Waiting", 8, _figure("waiting", count), right=True),
        Column("Uncommitted", 11, _figure("uncommitted", count), right=True),
        Column("Rate/s", 8, _figure("rate", rate), "rate", "R", True, by_number("rate"), desc=True),
        Column("CPU", 6, _cpu, "cpu", "C", True, by_number("cpu_percent"), desc=True),
        Column(
            "Memory",
            10,
            _figure("rss_bytes", size),
            "memory",
            "M",
            True,
            by_number("rss_bytes"),
            desc=True,
            least=90,
        ),
        Column("Lag", 8, _lag, "lag", "L", True, by_number("lag_ms"), desc=True, least=110),
        Column(
            "Heard", 11, _heard, "heard", "H", True, by_number("heard_s_ago"), desc=True, least=120
        ),
        Column("Machine", 16, text_cell("hostname", "dim"), least=130),
        Column("Version", 9, text_cell("version", "dim"), least=140),
    ),
    key=lambda row: f"{text(row, 'kind')}/{text(row, 'id')}",
    sort="id",
    desc=False,
    rows=node_rows,
    empty="no nodes yet",
)

# ---------------------------------------------------------------- jobs

COMPLETED, CANCELLED, DELETED = "completed", "cancelled", "deleted"
FAILED: Final = "failed"
ENDED: Final = (COMPLETED, FAILED, CANCELLED, DELETED)
MOST_ENDED: Final = 500
JOBS_SLOT: Final = f"{ConsolePage.JOBS}:"  # where the answer with all runs is kept


def job_rows(view: View) -> list[Row]:
    """One row a job: that of its newest run. Open jobs have a row for each run below it."""
    return _job_rows(
        _runs(view), view.table.expanded if view.page is ConsolePage.JOBS else NOT_OPEN
    )


def run_row(view: View, run: str) -> Row | None:
    """The row of one run, with the figures of this run only."""
    return next((row for row in _runs(view) if text(row, "run") == run), None)


def job_facts(view: View) -> Row:
    """Everything that is known about the run of a job's page, and nothing of another run.

    The stored view counts only if it is that of the run: a job that was just submitted again has
    a newer one. The counters of the snapshot are the newest.
    """
    answer = view.content.answers.get(view.place.key)
    data = answer.data if answer is not None else {}
    ref = view.place.ref
    stored = data if text(data, "run") == ref else {}
    about = view.place.about if text(view.place.about, "run") == ref else {}
    row = {**about, **stored, **(run_row(view, ref) or {})}
    if "share" not in row:
        row["share"] = number(row, "percent") / 100
    return row


def in_flight_text(row: Row) -> str:
    """The three numbers of what is in flight, in words."""
    return (
        f"{count(number(row, 'fetching'))} fetching, {count(number(row, 'waiting'))} waiting, "
        f"{count(number(row, 'uncommitted'))} uncommitted"
    )


NOT_OPEN: Final[frozenset[str]] = frozenset()


def _runs(view: View) -> list[Row]:
    content = view.content
    return _run_rows(content.snapshot, content.rates, content.answers.get(JOBS_SLOT))


@Latest
def _run_rows(snapshot: PublishedSnapshot | None, rates: Rates, stored: Answer | None) -> list[Row]:
    """The runs of the snapshot, and runs that had ended before its leader took over."""
    if snapshot is None:
        return []
    rows = []
    for run in snapshot.runs:
        if run.state == DELETED:
            continue
        speed = rates.final_by_run.get(run.run, 0.0)
        left = run.left / speed if speed > 0 and not run.ended else None
        rows.append(
            msgspec.structs.asdict(run)
            | {"pages_s": rates.by_run.get(run.run, 0.0), "share": run.share, "eta": left}
        )
    numbers = {run.run for run in snapshot.runs}
    return [*rows, *(row for row in _stored_runs(stored) if row.get("run") not in numbers)]


def _stored_runs(stored: Answer | None) -> list[Row]:
    """The ended runs of all jobs, as the database has them."""
    jobs = stored.data.get("jobs") if stored is not None else None
    rows: list[Row] = []
    for job in (jobs if isinstance(jobs, list) else [])[-MOST_ENDED:]:
        if not isinstance(job, dict):
            continue
        runs = job.get("runs")
        for run in runs if isinstance(runs, list) else [job]:
            if isinstance(run, dict) and text(run, "state") in (COMPLETED, FAILED, CANCELLED):
                is_shown = run.get("run") == job.get("run")
                of_job = {"tags": job.get("tags", ())} if is_shown else {}
                rows.append({**run, **of_job, "share": _stored_share(run), "pages_s": 0.0})
    return rows


def _stored_share(run: Row) -> float:
    admitted = number(run, "admitted")
    if text(run, "state") == COMPLETED:
        return 1.0
    return 1 - number(run, "unfetched") / admitted if admitted else 0.0


@Latest
def _job_rows(runs: list[Row], expanded: frozenset[str]) -> list[Row]:
    by_job: dict[int, list[Row]] = {}
    for run in runs:
        by_job.setdefault(int(number(run, "job")), []).append(run)
    rows: list[Row] = []
    for job, of_job in by_job.items():
        of_job.sort(key=lambda row: -number(row, "run"))
        outer = f"job/{job}" if len(of_job) > 1 else ""
        is_open = outer in expanded
        about: Row = {"runs": len(of_job), "outer": outer, "expanded": is_open, "level": 0}
        about["all_runs"] = of_job  # what an action on the whole job is about
        rows.append(of_job[0] | about)
        if is_open:
            inner = {"outer": outer, "level": 1, "runs": 0}
            rows.extend(run | inner for run in of_job)
    return rows


def _share(bar: int) -> Callable[[Row], Span]:
    def cell(row: Row) -> Span:
        share = number(row, "share")
        full = round(share * bar)
        style = "good" if text(row, "state") == "running" else "dim"
        return Span(f"{'█' * full}{'░' * (bar - full)}{percent(share):>6}", style)

    return cell


def _eta(row: Row) -> Span:
    """The time until the run ends at its present speed; blank for a run that has ended."""
    return Span("" if text(row, "state") in ENDED else duration(row.get("eta")))


def _job_name(row: Row) -> Span:
    """The name, with a mark where runs are inside: a run inside is named by its number."""
    if row.get("level"):
        return Span(f"  run {text(row, 'run')}", "dim")
    sign = "" if not text(row, "outer") else "▾ " if row.get("expanded") else "▸ "
    return Span(f"{sign}{text(row, 'name')}")


def _why(row: Row) -> Span:
    """Why the run waits, was ended or is not faster."""
    reason = text(row, "reason")
    return (
        Span(reason, "warn" if row.get("waits") else "dim")
        if reason
        else Span(text(row, "why"), "dim")
    )


JOBS = Table(
    columns=(
        Column("Job", 5, text_cell("job", "dim"), "job", "J", True, by_number("job"), least=100),
        Column("Name", 0, _job_name, "name", "N", key=by_text("name")),
        Column("State", 10, state_cell, "state", "S", key=by_text("state")),
        Column("Done", 9, _share(3), key=by_number("share"), most=129),
        Column(
            "Progress",
            17,
            _share(10),
            "progress",
            "P",
            key=by_number("share"),
            least=130,
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
        amount("Pages", "pages", "D"),
        amount("Queued", "queued", "Q"),
        amount("Failed", "failed", "F", "bad"),
        amount("Fetching", "fetching", "G", least=150),
        Column("Waiting", 8, count_cell("waiting"), right=True, least=170),
        Column("Uncommitted", 11, count_cell("uncommitted"), right=True, least=170),
        amount("Items", "items", "I", least=140),
        Column("ETA", 8, _eta, "eta", "E", True, lambda row: row.get("eta") or 1e18),
        Column(
            "Elapsed",
            9,
            lambda row: Span(duration(number(row, "seconds")), "dim"),
            "elapsed",
            "L",
            True,
            by_number("seconds"),
            desc=True,
            least=96,
        ),
        Column("Rate limit", 12, lambda row: Span(_pace(row), "dim"), right=True, least=210),
        Column("Tags", 16, tags_cell, "tags", "T", key=by_tags, least=190),
        Column("Why", 0, _why, least=120),
    ),
    key=lambda row: text(row, "run") if row.get("level") else f"job/{text(row, 'job')}",
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


def _failures(row: Row) -> Span:
    """How many requests failed in a row; after some the host counts as down."""
    if number(row, "opens"):
        return Span("down", "bad")
    failures = number(row, "failures")
    return Span(f"{failures:.0f} in a row", "warn") if failures else Span("none", "dim")


HOSTS = Table(
    columns=(
        Column("Host", 0, text_cell("host"), "host", "H"),
        amount("Queued", "queued", "Q"),
        Column("Fetching", 8, count_cell("fetching"), "fetching", "F", True, desc=True),
        Column("Waiting", 8, count_cell("waiting"), right=True, least=100),
        Column("Uncommitted", 11, count_cell("uncommitted"), right=True, least=100),
        Column("Owner", 10, text_cell("owner"), "owner", "O"),
        Column(
            "Rate limit",
            10,
            lambda row: Span(host_pace(row), "dim"),
            "interval",
            "R",
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
            least=116,
        ),
        Column("Robots", 8, lambda row: Span(_robots(row), "accent"), right=True, least=140),
        Column("Failures", 10, _failures, least=130),
        Column("Why not faster", 0, why_cell),
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
