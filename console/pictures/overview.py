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
    known = view.known
    if known.snapshot is None:
        return [(), line(Span("  waiting for the leader's first snapshot", "dim"))]
    if cells >= WIDE:
        half = (cells - 2) // 2
        left = [*throughput(known, half), (), *why_not_faster(known, half), ()]
        left += jobs(known, half, rows - len(left))
        right = [*nodes(known.snapshot, half, max(6, rows // 2)), ()]
        right += events(view, half, rows - len(right))
        return beside(left, right, half, cells - 2 - half)[:rows]
    top = [*throughput(known, cells), *why_not_faster(known, cells, 2 if rows < 24 else 4)]
    top += nodes(known.snapshot, cells, max(2, min(8, (rows - len(top)) // 4)))
    middle = jobs(known, cells, max(3, (rows - len(top)) // 2))
    return [*top, *middle, *events(view, cells, rows - len(top) - len(middle))][:rows]


# ---------------------------------------------------------------- how fast


def throughput(known: Known, cells: int) -> Picture:
    assert known.snapshot is not None
    snapshot, rates = known.snapshot, known.rates
    now = rates.now
    pages = rates.smooth("pages_s")
    failed = rates.smooth("failed_s")
    spark_cells = max(10, cells - 22)
    pages_line = line(
        Span(f"{rate(pages):>8}", "bold"),
        Span(" pages/s  ", "dim"),
        Span(sparkline([one.pages_s for one in rates.samples], spark_cells), "accent"),
    )
    queue_line = line(
        Span(f"{count(now.queued):>8}", "bold"),
        Span(" queued   ", "dim"),
        Span(sparkline([float(one.queued) for one in rates.samples], spark_cells), "rest"),
    )
    slots = sum(one.slots for one in snapshot.workers if one.state in ("busy", "idle"))
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
        *trouble(known, snapshot),
        *answers(snapshot, cells),
    ]


def why_not_faster(known: Known, cells: int, most: int = 4) -> Picture:
    """What most hosts with work wait for."""
    answer = known.answers.get("overview:")
    counts = answer.data.get("why") if answer is not None else None
    lines: Picture = [title("Why not faster", cells)]
    if not isinstance(counts, dict):
        return [*lines, line(Span("  asking the leader", "dim"))]
    backlog = number(answer.data, "commit_backlog") if answer is not None else 0
    if backlog > BACKLOG:
        text = f"  {count(backlog):>7} results wait to be committed: the database is the bottleneck"
        lines.append(line(Span(text, "bad")))
    found: list[tuple[float, float, str, str]] = []
    for code, words, style in WHY_TEXT:
        pair = counts.get(code)
        if isinstance(pair, list | tuple) and len(pair) == 2:
            hosts, queued = (number({"n": one}, "n") for one in pair)
            found.append((hosts, queued, words, style))
    # What is broken first, then what holds the most.
    for hosts, queued, words, style in sorted(found, key=lambda one: (one[3] != "bad", -one[1])):
        what = f"{count(hosts):>7} host{'s' if hosts != 1 else ' '} "
        lines.append(
            line(Span("  " + what, style), Span(f"({count(queued)} queued)  ", "dim"), Span(words))
        )
    if len(lines) == 1:
        lines.append(line(Span("  nothing is queued", "dim")))
    return lines[: most + 1]


def _only_retries(known: Known) -> bool:
    """Whether all that is queued has failed before: the leader counts why hosts wait."""
    answer = known.answers.get("overview:")
    counts = answer.data.get("why") if answer is not None else None
    return isinstance(counts, dict) and set(counts) == {RETRY}


def trouble(known: Known, snapshot: PublishedSnapshot) -> Picture:
    """What stands between the crawl and its speed, as far as the snapshot tells."""
    lines: Picture = []
    store = snapshot.store
    if store.error:
        text = f"  ! the store has failed for {duration(store.since_s)} [{plain(store.error)}]"
        lines.append(line(Span(text + ", retrying", "bad")))
    usable = [one for one in snapshot.workers if one.state in ("busy", "idle", "joining")]
    waiting = [one for one in snapshot.runs if one.state == "running"]
    if waiting and not usable:
        lines.append(line(Span("  ! no worker is there to do the work", "bad")))
    idle = not any(one.in_flight for one in snapshot.runs) and _only_retries(known)
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
    states = Counter(one.state for one in snapshot.workers)
    more = [
        Span(f"  {number} {plain(state, 20)}", STATE_STYLE.get(state, ""))
        for state, number in states.most_common()
    ]
    lines: Picture = [title("Nodes", cells, more or [Span("  no workers", "bad")])]
    ranked = sorted(snapshot.workers, key=_trouble_first)
    shown = ranked[: max(0, rows - 1)]
    if len(ranked) > len(shown) and shown:
        shown = shown[:-1]
    lines += [_worker(one, cells) for one in shown]
    total = max(len(ranked), snapshot.workers_total)
    if total > len(shown):
        lines.append(line(Span(f"  and {total - len(shown)} more (key 2)", "dim")))
    return lines


def _trouble_first(one: WorkerView) -> tuple[int, float, str]:
    order = ("suspect", "lost", "draining", "joining")
    rank = order.index(one.state) if one.state in order else len(order)
    return rank, -one.rate, one.id


def _worker(one: WorkerView, cells: int) -> Line:
    load = one.running / one.slots if one.slots else 0.0
    name = max(8, cells - 66)
    return line(
        Span("  " + fit(plain(one.id), name)),
        Span(fit(plain(one.state, 9), 9), STATE_STYLE.get(one.state, "")),
        *progress_bar(load, 8),
        Span(f" {one.running:>4}/{one.slots:<4}"),
        Span(f"{rate(one.rate):>6}/s ", "bold"),
        Span(f"{size(one.rss_bytes):>9} "),
        Span(f"{one.lag_ms:>5.0f} ms lag", "warn" if one.lag_ms > 200 else "dim"),
    )


# ---------------------------------------------------------------- what


def jobs(known: Known, cells: int, rows: int) -> Picture:
    assert known.snapshot is not None
    runs = sorted(known.snapshot.runs, key=lambda one: (one.ended, -one.run))
    lines: Picture = [title("Jobs", cells, [Span(f"  {_job_counts(runs)}", "dim")])]
    lines += [_job(one, known.rates, cells) for one in runs[: max(0, rows - 1)]]
    if not runs:
        lines.append(line(Span("  none; submit one with: zcrawl submit URL", "dim")))
    return lines


def _job_counts(runs: list[LiveRunView]) -> str:
    states = Counter(one.state for one in runs)
    return ", ".join(f"{number} {plain(state, 12)}" for state, number in states.most_common())


def time_left(run: LiveRunView, rates: Rates) -> float | None:
    speed = rates.final_by_run.get(run.run, 0.0)
    if run.ended or speed <= 0:
        return None
    return run.left / speed


def _job(one: LiveRunView, rates: Rates, cells: int) -> Line:
    room = cells - 54  # what the name and the bar share
    name = max(8, min(40, room - 6))
    bar = max(6, min(24, room - name))
    speed = "" if one.ended else rate(rates.by_run.get(one.run, 0.0)) + "/s"
    left = duration(one.seconds) if one.ended else duration(time_left(one, rates))
    return line(
        Span("  " + fit(plain(one.name), name) + " "),
        Span(fit(plain(one.state, 10), 10), STATE_STYLE.get(one.state, "")),
        *progress_bar(one.share, bar, "bar" if one.state == "running" else "rest"),
        Span(f"{percent(one.share):>6}"),
        Span(f"{count(one.pages):>8} pages"),
        Span(f"{count(one.failed):>6}", "bad" if one.failed else "dim"),
        Span(f"{speed:>7}{left:>8}", "dim" if one.ended else "bold"),
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
