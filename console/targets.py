"""What an action is about: a run, a job with all its runs, a group of errors, a worker, a host.

A `Target` is made once of a row. The words of the dialog, the command line and the request that is
sent are all taken from it, so a dialog cannot say one thing and send another. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from console.tables import Row, number, text


class Target(NamedTuple):
    """What one request is about."""

    text: str  # as the dialog names it
    args: Mapping[str, Any]  # as the request names it
    words: str  # as the command line names it
    data: str = ""  # what is deleted with it
    all_runs: frozenset[int] = frozenset()  # the runs of a job that is meant with all its runs
    job: str = ""  # of a run or a job
    is_job: bool = False  # with all its runs


def run_target(row: Row) -> Target:
    """Return the run of a row. A row that names only a job means its newest run, whichever that is
    when the request arrives."""
    job, run = text(row, "job"), _run(row)
    words = f"{_q(job)} --run {run}" if run else _q(job)
    args = {"ref": job, "run": run} if run else {"ref": job}
    return Target(_run_text(row), args, words, data=_data_text(row), job=job)


def deletion_target(row: Row) -> Target:
    """Return the job with all its runs if the row is that of a job, else the run of the row."""
    if _run(row) and "all_runs" not in row:
        return run_target(row)
    job = text(row, "job")
    runs: list[Row] = [run for run in row.get("all_runs", ()) if isinstance(run, dict)]
    if not runs:  # a job that this console has not seen
        return Target(f"job {job}, all runs", {"ref": job}, _q(job), "all its data", job=job)
    newest = ", ".join(f"run {_run(run)} {text(run, 'state')}".rstrip() for run in runs[:4])
    more = f" and {len(runs) - 4:,} more" if len(runs) > 4 else ""
    counted = f"all {len(runs):,} runs" if len(runs) > 1 else "its only run"
    return Target(
        f"job {_job(row)}, {counted}: {newest}{more}",
        {"ref": job},
        _q(job),
        _data_text(*runs),
        frozenset(map(_run, runs)),
        job,
        is_job=True,
    )


def group_target(row: Row) -> Target:
    """Return the failed URLs of one run, reason and host."""
    job, reason, host = text(row, "job"), text(row, "reason"), int(number(row, "host_id"))
    run = run_target(row)
    where = f"{reason} at {text(row, 'host')}"
    return Target(
        f"{number(row, 'count'):,.0f} failed: {where}, {run.text}",
        {"reason": reason, "host": host, **run.args},
        f"{_q(job)} --reason {_q(reason)} --host {host}{run.words.removeprefix(_q(job))}",
        job=job,
    )


def worker_target(row: Row) -> Target:
    """Return a worker."""
    node = text(row, "id")
    state = f" ({text(row, 'state')})" if text(row, "state") else ""
    return Target(f"worker {node}{state}", {"node": node}, _q(node))


def host_target(row: Row) -> Target:
    """Return a host."""
    host = text(row, "host")
    return Target(f"host {host}", {"host": host}, _q(host))


def leader_target(row: Row) -> Target:
    """Return the leader of an epoch."""
    leader = text(row, "leader") or "unknown"
    return Target(f"leader {leader}", {"epoch": int(number(row, "epoch"))}, "")


def without_covered(targets: list[Target]) -> list[Target]:
    """Leave out what is named twice, and runs of a job that is meant with all its runs."""
    jobs = {target.job for target in targets if target.is_job}
    seen: dict[str, Target] = {}
    for target in targets:
        if target.is_job or target.job not in jobs:
            seen.setdefault(target.words, target)
    return list(seen.values())


def queued_text(row: Row) -> str:
    """Return what a run loses that ends now."""
    queued = number(row, "queued")
    return f"{queued:,.0f} queued URLs are dropped" if queued else ""


def _run(row: Row) -> int:
    """The run that a row is about. The queues have it as the id of the row."""
    return int(number(row, "run") or number(row, "id"))


def _job(row: Row) -> str:
    name, job = text(row, "name"), text(row, "job")
    return f"{name} ({job})" if name else job


def _run_text(row: Row) -> str:
    """`job docs (3), run 7, running`."""
    parts = [f"job {_job(row)}", f"run {_run(row)}" if _run(row) else "its newest run"]
    return ", ".join([*parts, *filter(None, [text(row, "state")])])


def _data_text(*runs: Row) -> str:
    """What is deleted with these runs."""
    counts = []
    for name in ("pages", "items"):
        if all(name in run for run in runs):
            counts.append(f"{sum(number(run, name) for run in runs):,.0f} {name}")
    return f"its data is deleted: {', '.join(counts)}" if counts else "all its data"


def _q(value: str) -> str:
    return shlex.quote(value)
