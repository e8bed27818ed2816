"""Pages about one thing: a worker, a job, a host, an item. Text that scrolls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from console.columns.cells import LEVEL_MARK, LEVEL_STYLE, STATE_STYLE, WHY_STYLE, by_tags
from console.columns.outcomes import item_of, node_lines, url_state
from console.columns.work import LISTED, host_pace, in_flight_text, job_facts, node_rows
from console.drawing.lines import Line, Picture, Span, beside, line, progress_bar, title
from console.drawing.schedule import chain_lines, schedule_facts
from console.plain import fit, plain
from console.state import ConsolePage, View
from console.tables import Row, number, text
from console.units import clock_text, count, duration, percent, plural, rate, size

NAME: Final = 16
INTERNAL: Final = ("n", "seq")  # numbers of rows: they say nothing
WIDE: Final = 120


def details(view: View, cells: int) -> Picture:
    """All lines of a page about one thing."""
    pictures = {
        ConsolePage.NODE: node_page,
        ConsolePage.JOB: job_page,
        ConsolePage.HOST: host_page,
        ConsolePage.ITEM: item_page,
        ConsolePage.LINE: line_page,
    }
    return pictures[view.page](view, cells)


def fact(name: str, value: object, style: str = "") -> Line:
    """A name and its value."""
    return line(Span(f"  {fit(name, NAME)}", "dim"), Span(plain(value), style))


def _answer(view: View, more: str = "") -> tuple[dict[str, Any], Picture]:
    """What was answered about this place, and a line that says why it is not there."""
    answer = view.content.answers.get(view.place.key + more)
    if answer is None:
        return {}, [line(Span("  asking the leader", "dim"))]
    if answer.error:
        return answer.data, [line(Span(f"  {plain(answer.error)}", "bad"))]
    return answer.data, []


def _is_unknown(view: View) -> bool:
    """Somebody typed a name, and the leader knows nothing by it: no zeros as if they were facts."""
    answer = view.content.answers.get(view.place.key)
    return answer is not None and bool(answer.error) and not answer.data and len(view.place.row) < 3


# ---------------------------------------------------------------- a node


def node_page(view: View, cells: int) -> Picture:
    if view.place.about.get("kind") == "master":
        return master_page(view, cells)
    if view.place.about.get("kind") == LISTED:
        return listed_page(view, cells)
    data, note = _answer(view)
    if _is_unknown(view):
        head: Picture = [title(f"Worker {plain(view.place.ref, 60)}", cells), *note]
        return [*head, (), *log_of(view, view.place.ref, cells)]
    row = {**view.place.about, **data}
    state = text(row, "state")
    running, slots = number(row, "running"), number(row, "slots")
    facts: Picture = [
        title(f"Worker {plain(view.place.ref, 60)}", cells),
        *note,
        fact("state", state, STATE_STYLE.get(state, "")),
        line(
            Span(f"  {fit('load', NAME)}", "dim"),
            *progress_bar(running / slots if slots else 0.0, 20),
            Span(
                f"  {running:.0f} of {slots:.0f} slots, "
                f"{number(row, 'waiting'):.0f} waiting for rate limit"
            ),
        ),
        fact("rate", f"{rate(number(row, 'rate'))} results/s"),
        fact("credit", f"room for {number(row, 'credit'):.0f} more requests"),
        fact("hosts", f"{number(row, 'hosts'):.0f} owned or shared"),
        fact("outbox", f"{number(row, 'outbox'):.0f} uncommitted results"),
        fact("memory", size(number(row, "rss_bytes"))),
        fact(
            "loop lag",
            f"{number(row, 'lag_ms'):.0f} ms",
            "warn" if number(row, "lag_ms") > 200 else "",
        ),
        fact("heard", f"{duration(number(row, 'heard_s_ago'))} ago"),
        fact("process", f"pid {number(row, 'pid'):.0f} on {text(row, 'hostname')}"),
        fact("version", text(row, "version")),
        (),
    ]
    return [*facts, *in_flight(view, cells), (), *log_of(view, view.place.ref, cells)]


def listed_page(view: View, cells: int) -> Picture:
    """A node of the list of standalone nodes: only its heartbeats are known here."""
    listed = {text(row, "id"): row for row in node_rows(view) if row["kind"] == LISTED}
    about = listed.get(view.place.ref, view.place.about)
    state = text(about, "state")
    its = text(about, "list") or "not heard"
    return [
        title(f"Listed node {plain(view.place.ref, 60)}", cells),
        fact("state", state, STATE_STYLE.get(state, "")),
        fact("list", f"▲ {its}, another one than here", "warn")
        if about.get("differs")
        else fact("list", its),
        fact("address", text(about, "hostname") or "none: nodes do not hear each other"),
        (),
        *log_of(view, view.place.ref, cells),
    ]


def master_page(view: View, cells: int) -> Picture:
    masters = {text(row, "id"): row for row in node_rows(view) if row["kind"] == "master"}
    about = masters.get(view.place.ref, view.place.about)  # as it is now, if it is still there
    state = text(about, "state")
    facts: Picture = [
        title(f"Master {plain(view.place.ref, 60)}", cells),
        fact("state", state, STATE_STYLE.get(state, "")),
    ]
    if number(about, "rss_bytes"):
        lag_ms = number(about, "lag_ms")
        facts += [
            fact("memory", size(number(about, "rss_bytes"))),
            fact("loop lag", f"{lag_ms:.0f} ms", "warn" if lag_ms > 200 else ""),
        ]
    if "healthy" in about:  # as the catalogue has it; an embedded cluster has none
        health = "passing" if about["healthy"] else "critical"
        facts += [
            fact("health", f"{health} {text(about, 'detail')}", "" if about["healthy"] else "bad"),
            fact("listens at", text(about, "control")),
            fact("process", f"pid {number(about, 'pid'):.0f} on {text(about, 'hostname')}"),
            fact("version", text(about, "version")),
        ]
    return [*facts, (), *log_of(view, view.place.ref, cells)]


def in_flight(view: View, cells: int) -> Picture:
    answer = view.content.answers.get(view.place.key + ":flight")
    rows = answer.rows if answer is not None else []
    total = number(answer.data, "total") if answer is not None else 0
    lines: Picture = [title(f"In flight: {total:.0f}", cells)]
    for row in rows:
        since = number(row, "since_s")
        state = text(row, "state")
        attempt = f"try {number(row, 'attempt'):.0f}" if number(row, "attempt") > 1 else ""
        lines.append(
            line(
                Span(f"  {duration(since):>7} ", "warn" if since > 15 else "dim"),
                Span(f"{fit(attempt, 6)}{fit(state, 12 if state else 0)} ", "accent"),
                Span(text(row, "url")),
            )
        )
    return lines


def log_of(view: View, node: str, cells: int) -> Picture:
    """What a node logs, and what others say about it, newest first."""
    return log_lines(node_lines(view, node), "Events", cells)


def log_lines(rows: Sequence[Row], name: str, cells: int) -> Picture:
    """Events as lines: when, who, and the sentence."""
    lines: Picture = [title(name, cells)]
    for row in rows[:200]:
        style = LEVEL_STYLE.get(text(row, "level"), "")
        times = f"  × {number(row, 'times'):.0f}" if number(row, "times") > 1 else ""
        lines.append(
            line(
                Span(f"  {clock_text(number(row, 'at')):8} ", "dim"),
                Span(f"{LEVEL_MARK.get(style, ' ')} ", style),
                Span(f"{fit(text(row, 'source'), 10)} ", "dim"),
                Span((text(row, "text") or text(row, "name")) + times, style),
            )
        )
    return lines if len(lines) > 1 else [*lines, line(Span("  nothing yet", "dim"))]


# ---------------------------------------------------------------- a job


def job_page(view: View, cells: int) -> Picture:
    _, note = _answer(view)
    row = job_facts(view)
    if _is_unknown(view):
        return [title(f"Job {plain(view.place.ref, 60)}", cells), *note]
    share = number(row, "share")
    state = text(row, "state")
    speed = view.content.rates.by_run.get(int(number(row, "run")), 0.0)
    workers = row.get("workers", ()) or ()
    unchanged = number(row, "unchanged")
    same = f" ({count(unchanged)} unchanged)" if unchanged else ""
    facts: Picture = [
        title(
            f"Job {text(row, 'job')} {text(row, 'name')}",
            cells,
            [Span(f"  run {text(row, 'run')}", "dim")],
        ),
        *note,
        fact(
            "state",
            state + (f" ({text(row, 'reason')})" if text(row, "reason") else ""),
            STATE_STYLE.get(state, ""),
        ),
        line(
            Span(f"  {fit('progress', NAME)}", "dim"),
            *progress_bar(share, 30),
            Span(f"  {percent(share)}"),
        ),
        fact(
            "pages",
            f"{count(number(row, 'pages'))}{same}, {rate(speed)}/s now, "
            f"{size(number(row, 'bytes'))}",
        ),
        fact(
            "queued",
            f"{count(number(row, 'queued'))}, {in_flight_text(row)}",
        ),
        fact("failed", count(number(row, "failed")), "bad" if number(row, "failed") else ""),
        fact("skipped", count(number(row, "skipped"))),
        fact("items", count(number(row, "items"))),
        fact("elapsed", _elapsed_text(row)),
        *([fact("tags", by_tags(row))] if by_tags(row) else []),
        *schedule_facts(row),
        fact("workers", ", ".join(plain(worker, 40) for worker in workers) or "none"),
        *_spec(row),
        (),
        *chain_lines(row, cells),
    ]
    half = (cells - 2) // 2 if cells >= WIDE else cells
    left = [
        *_tally("Answers", row.get("statuses"), half),
        (),
        *_tally("Failed because of", row.get("failed_reasons"), half, "bad"),
        (),
        *_tally("Skipped because of", row.get("skipped_reasons"), half),
    ]
    depths = view.content.answers.get(view.place.key + ":depths")
    right = [
        *_tally(
            "Pages by depth, since this leader took over",
            (depths.data if depths else {}).get("depths"),
            half,
            "bar",
            by_name=True,
        ),
        (),
        *fill_rates(view, row, half),
    ]
    both = beside(left, right, half, half) if cells >= WIDE else [*left, (), *right]
    return [*facts, *both, (), *examples(row, cells), *recent_items(view, cells)]


def _elapsed_text(row: Row) -> str:
    """How long the run has taken, and when it began, without fractions of a second."""
    began = text(row, "started_at").replace("T", " ").partition(".")[0].removesuffix("Z")
    return duration(number(row, "seconds")) + (f", began {began} UTC" if began else "")


def _spec(row: Row) -> Picture:
    spec = row.get("spec")
    if not isinstance(spec, dict):
        return []
    lines: Picture = [
        fact("seeds", ", ".join(plain(seed, 200) for seed in list(spec.get("seeds", ()))[:3]))
    ]
    for section in ("scope", "politeness", "fetch"):
        values = spec.get(section)
        if isinstance(values, dict):
            shown = [f"{plain(k, 30)}={plain(v, 80)}" for k, v in values.items() if v]
            lines.append(fact(section, "  ".join(shown)))
    return lines


def _tally(
    name: str, values: object, cells: int, style: str = "bar", by_name: bool = False
) -> Picture:
    """Counts with bars, the largest first."""
    lines: Picture = [title(name, cells)]
    pairs = (
        [(plain(k, 40), number({"n": v}, "n")) for k, v in values.items()]
        if isinstance(values, dict)
        else []
    )
    if not by_name:
        pairs.sort(key=lambda pair: -pair[1])
    top = max((n for _, n in pairs), default=0.0) or 1.0
    bar = max(4, min(30, cells - 36))
    for key, n in pairs[:12]:
        lines.append(
            line(
                Span(f"  {fit(key, 20)}"),
                *progress_bar(n / top, bar, style),
                Span(f" {count(n):>8}"),
            )
        )
    return lines if pairs else [*lines, line(Span("  none", "dim"))]


def fill_rates(view: View, row: Row, cells: int) -> Picture:
    """How often each field was filled: as the extraction counted it, over the whole run; of a job
    that extracts nothing, in the newest items."""
    counted = row.get("fields")
    if isinstance(counted, dict) and counted:
        lines: Picture = [title("Fields of all items", cells)]
        for name, counts in list(counted.items())[:24]:
            of = counts if isinstance(counts, dict) else {}
            unread = number(of, "failed")
            more = f"  {count(unread)} unreadable" if unread else ""
            lines.append(_filled(name, number(of, "percent") / 100, cells, more))
        return lines
    answer = view.content.answers.get(view.place.key + ":items")
    rows = answer.rows if answer is not None else []
    filled: Counter[str] = Counter()
    for row in rows:
        fields = item_of(row)
        filled.update(
            {plain(k, 40): 1 if v not in (None, "", [], {}) else 0 for k, v in fields.items()}
        )
    lines = [
        title(f"Fields of the newest {plural(len(rows), 'item')}" if rows else "Fields", cells)
    ]
    lines += [_filled(name, n / len(rows), cells) for name, n in list(filled.items())[:12]]
    return lines if rows else [*lines, line(Span("  no items yet", "dim"))]


def _filled(name: object, share: float, cells: int, more: str = "") -> Line:
    style = "bar" if share > 0.95 else "warn" if share > 0.5 else "bad"
    bar = progress_bar(share, max(4, min(30, cells - 36)), style)
    shown = fit(plain(name, 40), 20)
    return line(Span(f"  {shown}"), *bar, Span(f" {percent(share):>8}"), Span(more, "bad"))


def examples(row: Row, cells: int) -> Picture:
    """The first request of each reason, with what happened to it; nothing if all went well."""
    raw_examples = row.get("examples")
    by_kind = raw_examples if isinstance(raw_examples, dict) else {}
    lines: Picture = []
    for kind, style in (("failed", "bad"), ("skipped", ""), ("rejected", "warn")):
        of_kind = by_kind.get(kind)
        pairs = list(of_kind.items())[:12] if isinstance(of_kind, dict) else []
        for name, value in pairs:
            example: Row = value if isinstance(value, dict) else {}
            what = " at ".join(filter(None, (text(example, "detail"), text(example, "url"))))
            lines.append(line(Span(f"  {fit(plain(name, 60), 24)} ", style), Span(what)))
    return [title("The first of each reason", cells), *lines, ()] if lines else []


def recent_items(view: View, cells: int) -> Picture:
    answer = view.content.answers.get(view.place.key + ":items")
    lines: Picture = [title("Newest items", cells)]
    for row in (answer.rows if answer is not None else [])[:10]:
        fields = item_of(row)
        what = text(fields, "title") or "  ".join(plain(v, 60) for v in list(fields.values())[:4])
        url_cells = cells // 2
        lines.append(line(Span(f"  {fit(text(fields, 'url'), url_cells)} ", "dim"), Span(what)))
    return lines


# ---------------------------------------------------------------- a host, an item


def host_page(view: View, cells: int) -> Picture:
    answer = view.content.answers.get(view.place.key)
    hosts = [host for host in (answer.rows if answer else []) if text(host, "id") == view.place.ref]
    row: Row = {**view.place.about, **(hosts[0] if hosts else {})}
    delay = number(row, "crawl_delay_s")
    facts: Picture = [
        title(text(row, "host") or "Host", cells),
        fact("now", text(row, "reason"), WHY_STYLE.get(text(row, "why"), "bold")),
        fact(
            "queued",
            f"{count(number(row, 'queued'))}: {count(number(row, 'ready'))} due, "
            f"{count(number(row, 'delayed'))} delayed",
        ),
        fact(
            "in flight",
            f"{in_flight_text(row)}; concurrency limit {number(row, 'concurrency'):.0f}",
        ),
        fact("rate limit", f"{host_pace(row)}, next in {duration(number(row, 'next_in_s'))}"),
        fact(
            "robots.txt", f"asks for {delay:g} s between requests" if delay else "asks for no delay"
        ),
        fact("failures", _failures_text(row), "bad" if number(row, "opens") else ""),
        fact("owner", text(row, "owner") or "nobody"),
        fact("runs", ", ".join(plain(run, 20) for run in row.get("runs", ()) or ())),
        (),
    ]
    return [*facts, *in_flight(view, cells)]


def _failures_text(row: Row) -> str:
    failures = number(row, "failures")
    if number(row, "opens"):
        return f"host down after {plural(failures, 'failure')} in a row"
    return f"{plural(failures, 'failure')} in a row" if failures else "none"


def item_page(view: View, cells: int) -> Picture:
    row = view.place.about
    lines: Picture = [title(f"Item {text(row, 'id')} of run {text(row, 'run')}", cells)]
    for name, value in item_of(row).items():
        lines += _long_fact(name, value, cells)
    return lines


def line_page(view: View, cells: int) -> Picture:
    """All of a row that a list has to cut."""
    row = view.place.about
    lines: Picture = [title(text(row, "reason") or "Event", cells)]
    if "state" in row:
        row = {**row, "state": url_state(text(row, "state"))}
    if number(row, "at"):
        row = {**row, "at": f"{clock_text(number(row, 'at'))} UTC"}
    for name, value in row.items():
        if value not in ("", 0) and name not in INTERNAL:
            lines += _long_fact(name, value, cells)
    return lines


def _long_fact(name: object, value: object, cells: int) -> Picture:
    words = plain(value, 10_000)
    room = max(10, cells - NAME - 3)
    pieces = [words[n : n + room] for n in range(0, len(words), room)] or [""]
    return [fact(plain(name, NAME) if n == 0 else "", piece) for n, piece in enumerate(pieces[:40])]
