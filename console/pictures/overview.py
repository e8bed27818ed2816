"""The overview: how fast, what is left, who works, what is wrong, what happened."""

from __future__ import annotations

from collections import Counter

from console.cells import LEVEL_STYLE, STATE_STYLE
from console.columns_found import log_rows
from console.lines import (
    Line,
    Picture,
    Span,
    beside,
    line,
    progress_bar,
    sparkline,
    title,
)
from console.plain import fit, plain
from console.rates import Rates
from console.state import Known, View
from console.tables import number, text
from console.units import clock_text, count, duration, percent, rate, size
from zcrawl.model.reasons.waiting import (
    AWAY,
    CONCURRENCY,
    CRAWL_DELAY,
    DUE,
    ENDING,
    HOURS,
    INHERITED,
    LOADING,
    MOVING,
    NO_WORKER,
    PACE,
    PAGES_IN_FLIGHT,
    PAUSED,
    RETRY,
    SHARED,
    STORING,
    SUSPECTS,
    THROTTLED,
    WORKER_FULL,
)
from zcrawl.model.snapshot import LiveRunView, PublishedSnapshot, WorkerView

BACKLOG = 400  # results; two full batches
WIDE = 140  # from here on two columns
# What hosts wait for, in an operator's words; what is to be mended first comes first.
WHY_TEXT = (
    (NO_WORKER, "no worker has them: start workers", "bad"),
    (WORKER_FULL, "their workers have no room: add workers or slots", "warn"),
    (STORING, "an owner is being stored: the database is slow", "warn"),
    (LOADING, "their queue is being read: the database is slow", "warn"),
    (INHERITED, "an earlier owner may still fetch: passes by itself", "warn"),
    (MOVING, "hosts that share their limits are being moved: passes by itself", "warn"),
    (PAUSED, "their jobs are paused", "warn"),
    (AWAY, "they do not answer: their breakers are open", "bad"),
    (ENDING, "down, or enough of them: their rows end", "warn"),
    (THROTTLED, "they ask for patience (429, 503, slow answers)", "warn"),
    (HOURS, "their jobs' hours have not begun", "accent"),
    (RETRY, "all that is left waits for a retry", "warn"),
    (CRAWL_DELAY, "robots.txt asks for a delay", "accent"),
    (SHARED, "the limits of their domain or address", "accent"),
    (PACE, "their pace: raise the job's rate (t on Jobs)", "accent"),
    (CONCURRENCY, "all they may have is in flight: slow answers, or raise concurrency", "accent"),
    (SUSPECTS, "URLs that may crash a worker wait for one to try them", "warn"),
    (PAGES_IN_FLIGHT, "all pages that their jobs may still fetch are in flight", "good"),
    (DUE, "being sent right now", "good"),
)


def overview(view: View, cells: int, rows: int) -> Picture:
    cluster_state = view.known
    if cluster_state.snapshot is None:
        return [(), line(Span("  waiting for the leader's first snapshot", "dim"))]
    if cells >= WIDE:
        half = (cells - 2) // 2
        left = [*throughput(cluster_state, half), (), *why_not_faster(cluster_state, half), ()]
        left += jobs(cluster_state, half, rows - len(left))
        right = [*nodes(cluster_state.snapshot, half, max(6, rows // 2)), ()]
        right += events(view, half, rows - len(right))
        return beside(left, right, half, cells - 2 - half)[:rows]
    top = [
        *throughput(cluster_state, cells),
        *why_not_faster(cluster_state, cells, 2 if rows < 24 else 4),
    ]
    top += nodes(cluster_state.snapshot, cells, max(2, min(8, (rows - len(top)) // 4)))
    middle = jobs(cluster_state, cells, max(3, (rows - len(top)) // 2))
    return [*top, *middle, *events(view, cells, rows - len(top) - len(middle))][:rows]


# ---------------------------------------------------------------- how fast


def throughput(cluster_state: Known, cells: int) -> Picture:
    assert cluster_state.snapshot is not None
    snapshot, rates = cluster_state.snapshot, cluster_state.rates
    now = rates.now
    pages = rates.smooth("pages_s")
    failed = rates.smooth("failed_s")
    spark_cells = max(10, cells - 22)
    pages_line = line(
        Span(f"{rate(pages):>8}", "bold"),
        Span(" pages/s  ", "dim"),
        Span(sparkline([sample.pages_s for sample in rates.samples], spark_cells), "accent"),
    )
    queue_line = line(
        Span(f"{count(now.queued):>8}", "bold"),
        Span(" queued   ", "dim"),
        Span(sparkline([float(sample.queued) for sample in rates.samples], spark_cells), "rest"),
    )
    slots = sum(worker.slots for worker in snapshot.workers if worker.state in ("busy", "idle"))
    facts = line(
        Span(f"{count(now.in_flight):>8}", "bold"),
        Span(f" in flight of {count(slots)} slots   ", "dim"),
        Span(f"{rate(failed)}", "bad" if failed else "bold"),
        Span(" errors/s   ", "dim"),
        Span(size(rates.smooth("bytes_s")), "bold"),
        Span("/s", "dim"),
    )
    return [
        title("Throughput", cells),
        pages_line,
        queue_line,
        facts,
        *trouble(cluster_state, snapshot),
        *answers(snapshot, cells),
    ]


def why_not_faster(cluster_state: Known, cells: int, most: int = 4) -> Picture:
    """What most hosts with work wait for."""
    answer = cluster_state.answers.get("overview:")
    counts = answer.data.get("why") if answer is not None else None
    lines: Picture = [title("Why not faster", cells)]
    if not isinstance(counts, dict):
        return [*lines, line(Span("  asking the leader", "dim"))]
    backlog = number(answer.data, "commit_backlog") if answer is not None else 0
    if backlog > BACKLOG:
        text = f"  {count(backlog):>7} results wait to be committed: the database is the bottleneck"
        lines.append(line(Span(text, "bad")))
    reasons: list[tuple[float, float, str, str]] = []
    for code, words, style in WHY_TEXT:
        pair = counts.get(code)
        if isinstance(pair, list | tuple) and len(pair) == 2:
            hosts, queued = (number({"n": value}, "n") for value in pair)
            reasons.append((hosts, queued, words, style))
    # What is broken first, then what holds the most.
    for hosts, queued, words, style in sorted(
        reasons, key=lambda reason: (reason[3] != "bad", -reason[1])
    ):
        what = f"{count(hosts):>7} host{'s' if hosts != 1 else ' '} "
        lines.append(
            line(Span("  " + what, style), Span(f"({count(queued)} queued)  ", "dim"), Span(words))
        )
    if len(lines) == 1:
        lines.append(line(Span("  nothing is queued", "dim")))
    return lines[: most + 1]


def _only_retries(cluster_state: Known) -> bool:
    """Whether all that is queued has failed before: the leader counts why hosts wait."""
    answer = cluster_state.answers.get("overview:")
    counts = answer.data.get("why") if answer is not None else None
    return isinstance(counts, dict) and set(counts) == {RETRY}


def trouble(cluster_state: Known, snapshot: PublishedSnapshot) -> Picture:
    """What stands between the crawl and its speed, as far as the snapshot tells."""
    lines: Picture = []
    store = snapshot.store
    if store.error:
        text = f"  ! the store has failed for {duration(store.since_s)} [{plain(store.error)}]"
        lines.append(line(Span(text + ", retrying", "bad")))
    usable = [worker for worker in snapshot.workers if worker.state in ("busy", "idle", "joining")]
    waiting = [run for run in snapshot.runs if run.state == "running"]
    if waiting and not usable:
        lines.append(line(Span("  ! no worker is there to do the work", "bad")))
    idle = not any(run.in_flight for run in snapshot.runs) and _only_retries(cluster_state)
    if waiting and usable and idle and snapshot.next_retry_s is not None:
        text = (
            f"  all that is left waits for its next attempt, in {duration(snapshot.next_retry_s)}"
        )
        lines.append(line(Span(text, "warn")))
    return lines


def answers(snapshot: PublishedSnapshot, cells: int) -> Picture:
    """Answers by status and failures by reason, of the runs on the screen."""
    statuses: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for tally in snapshot.statuses.values():
        statuses.update(tally)
    for tally in snapshot.failed.values():
        failed.update(tally)
    lines: Picture = []
    if statuses:
        spans = [Span("  answers ", "dim")]
        for status, number in statuses.most_common(6):
            style = "good" if status.startswith("2") else "dim" if status < "400" else "bad"
            spans += [Span(f" {plain(status, 4)}", style), Span(f" {count(number)} ")]
        lines.append(tuple(spans))
    if failed:
        spans = [Span("  failures", "dim")]
        for reason, number in failed.most_common(5):
            spans += [Span(f" {plain(reason, 40)}", "bad"), Span(f" {count(number)} ")]
        lines.append(tuple(spans))
    return lines


# ---------------------------------------------------------------- who


def nodes(snapshot: PublishedSnapshot, cells: int, rows: int) -> Picture:
    states = Counter(worker.state for worker in snapshot.workers)
    more = [
        Span(f"  {number} {plain(state, 20)}", STATE_STYLE.get(state, ""))
        for state, number in states.most_common()
    ]
    lines: Picture = [title("Nodes", cells, more or [Span("  no workers", "bad")])]
    ranked = sorted(snapshot.workers, key=_trouble_first)
    shown = ranked[: max(0, rows - 1)]
    if len(ranked) > len(shown) and shown:
        shown = shown[:-1]
    lines += [_worker(worker, cells) for worker in shown]
    total = max(len(ranked), snapshot.workers_total)
    if total > len(shown):
        lines.append(line(Span(f"  and {total - len(shown)} more (key 2)", "dim")))
    return lines


def _trouble_first(worker: WorkerView) -> tuple[int, float, str]:
    order = ("suspect", "lost", "draining", "joining")
    rank = order.index(worker.state) if worker.state in order else len(order)
    return rank, -worker.rate, worker.id


def _worker(worker: WorkerView, cells: int) -> Line:
    load = worker.running / worker.slots if worker.slots else 0.0
    name = max(8, cells - 66)
    return line(
        Span("  " + fit(plain(worker.id), name)),
        Span(fit(plain(worker.state, 9), 9), STATE_STYLE.get(worker.state, "")),
        *progress_bar(load, 8),
        Span(f" {worker.running:>4}/{worker.slots:<4}"),
        Span(f"{rate(worker.rate):>6}/s ", "bold"),
        Span(f"{size(worker.rss_bytes):>9} "),
        Span(f"{worker.lag_ms:>5.0f} ms lag", "warn" if worker.lag_ms > 200 else "dim"),
    )


# ---------------------------------------------------------------- what


def jobs(cluster_state: Known, cells: int, rows: int) -> Picture:
    assert cluster_state.snapshot is not None
    runs = sorted(cluster_state.snapshot.runs, key=lambda run: (run.ended, -run.run))
    lines: Picture = [title("Jobs", cells, [Span(f"  {_job_counts(runs)}", "dim")])]
    lines += [_job(run, cluster_state.rates, cells) for run in runs[: max(0, rows - 1)]]
    if not runs:
        lines.append(line(Span("  none; submit one with: zcrawl submit URL", "dim")))
    return lines


def _job_counts(runs: list[LiveRunView]) -> str:
    states = Counter(run.state for run in runs)
    return ", ".join(f"{number} {plain(state, 12)}" for state, number in states.most_common())


def time_left(run: LiveRunView, rates: Rates) -> float | None:
    speed = rates.final_by_run.get(run.run, 0.0)
    if run.ended or speed <= 0:
        return None
    return run.left / speed


def _job(run: LiveRunView, rates: Rates, cells: int) -> Line:
    room = cells - 54  # what the name and the bar share
    name = max(8, min(40, room - 6))
    bar = max(6, min(24, room - name))
    speed = "" if run.ended else rate(rates.by_run.get(run.run, 0.0)) + "/s"
    left = duration(run.seconds) if run.ended else duration(time_left(run, rates))
    return line(
        Span("  " + fit(plain(run.name), name) + " "),
        Span(fit(plain(run.state, 10), 10), STATE_STYLE.get(run.state, "")),
        *progress_bar(run.share, bar, "bar" if run.state == "running" else "rest"),
        Span(f"{percent(run.share):>6}"),
        Span(f"{count(run.pages):>8} pages"),
        Span(f"{count(run.failed):>6}", "bad" if run.failed else "dim"),
        Span(f"{speed:>7}{left:>8}", "dim" if run.ended else "bold"),
    )


def events(view: View, cells: int, rows: int) -> Picture:
    lines: Picture = [title("Events", cells)]
    newest = log_rows(view)[: max(0, rows - 1)]
    for row in newest:
        style = LEVEL_STYLE.get(text(row, "level"), "")
        lines.append(
            line(
                Span(f"  {clock_text(number(row, 'at')):8} ", "dim"),
                Span(f"{text(row, 'source')} {text(row, 'name')} ", style or "accent"),
                Span(text(row, "text"), style),
            )
        )
    if not newest:
        lines.append(line(Span("  nothing yet", "dim")))
    return lines
