"""What needs a person: jobs that fail, hosts that are down, workers that are gone, stuck output.

Pure. Worst first; each with the place that shows more. The overview lists it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from console.latest import Latest
from console.limits import limit_rows_of
from console.plain import plain
from console.state import ConsolePage, Place, View
from console.tables import Row, number, text
from console.units import count, duration, percent
from zcrawl.model.reasons.waiting import AWAY, THROTTLED
from zcrawl.model.snapshot import LiveRunView, PublishedSnapshot

FAILING_SHARE: Final = 0.2  # of what a run has finished
FAILING_LEAST: Final = 10  # failed requests, before a share means anything
LATE_MS: Final = 500.0  # of a worker's loop


class Attention(NamedTuple):
    """One thing to look at."""

    level: str  # "bad" or "warn"
    text: str
    place: Place | None = None


def attention(view: View) -> list[Attention]:
    """Return all of it, the worst first."""
    snapshot = view.content.snapshot
    if snapshot is None:
        return []
    matters = [*_latest_of_snapshot(snapshot), *_hosts(view)]
    return sorted(matters, key=lambda matter: matter.level != "bad")


def _of_snapshot(snapshot: PublishedSnapshot) -> list[Attention]:
    return [
        *_masters(snapshot),
        *_listed_nodes(snapshot),
        *_workers(snapshot),
        *_jobs(snapshot),
    ]


_latest_of_snapshot = Latest(_of_snapshot)


def _masters(snapshot: PublishedSnapshot) -> Iterator[Attention]:
    nodes = Place(ConsolePage.NODES)
    if snapshot.store.error:
        since = duration(snapshot.store.since_s)
        sentence = f"database fails for {since}: {plain(snapshot.store.error, 200)}"
        yield Attention("bad", sentence, Place(ConsolePage.LOG))
    if snapshot.mishaps.in_row:
        sentence = f"leader: internal error: {plain(snapshot.mishaps.last, 200)}"
        yield Attention("bad", sentence, Place(ConsolePage.LOG))
    for master in snapshot.masters:
        if not master.healthy:
            yield Attention("bad", f"master {plain(master.id, 40)} is down", nodes)


def _listed_nodes(snapshot: PublishedSnapshot) -> Iterator[Attention]:
    """Standalone nodes that are silent, or have another list."""
    standalone, place = snapshot.standalone, Place(ConsolePage.NODES)
    if standalone is None:
        return
    differing = [node.id for node in standalone.nodes if node.differs]
    if differing:
        verb = "have" if len(differing) > 1 else "has"
        sentence = (
            f"{_names(differing)} {verb} another list of nodes than this node "
            f"({plain(standalone.fingerprint, 16)}): some resources have two owners or none"
        )
        yield Attention("bad", sentence, place)
    silent = [node.id for node in standalone.nodes if not node.alive]
    if silent:
        verb, whose = ("are", "their") if len(silent) > 1 else ("is", "its")
        sentence = f"{_names(silent)} {verb} silent: the living nodes have {whose} share"
        yield Attention("bad", sentence, place)
    if not standalone.has_node:
        sentence = f"{plain(standalone.node, 40)} is not in the list of nodes: it owns nothing"
        yield Attention("warn", sentence, place)


def _names(ids: list[str]) -> str:
    """The first two, and how many more."""
    more = f" and {len(ids) - 2} more" if len(ids) > 2 else ""
    return f"{', '.join(plain(id, 40) for id in ids[:2])}{more}"


def _workers(snapshot: PublishedSnapshot) -> Iterator[Attention]:
    nodes = Place(ConsolePage.NODES)
    states = Counter(worker.state for worker in snapshot.workers)
    running = any(run.state == "running" for run in snapshot.runs)
    if running and not states["busy"] + states["idle"] + states["joining"]:
        yield Attention("bad", "no worker for the running jobs: start one", nodes)
    for state, level in (("lost", "bad"), ("suspect", "warn")):
        ids = [worker.id for worker in snapshot.workers if worker.state == state]
        if ids:
            verb = "are" if len(ids) > 1 else "is"
            yield Attention(level, f"{_names(ids)} {verb} {state}", nodes)
    late = [worker for worker in snapshot.workers if worker.lag_ms > LATE_MS]
    if late:
        worst = max(late, key=lambda worker: worker.lag_ms)
        sentence = f"{plain(worst.id, 40)} is overloaded: {worst.lag_ms:.0f} ms behind"
        yield Attention("warn", sentence, nodes)


def _jobs(snapshot: PublishedSnapshot) -> Iterator[Attention]:
    for run in snapshot.runs:
        name = plain(run.name, 60)
        if run.waits:
            yield Attention("bad", f"{name}: {plain(run.waits, 200)}", _job(run))
        done = run.pages + run.failed
        if not run.ended and run.failed >= FAILING_LEAST and run.failed > FAILING_SHARE * done:
            share = percent(run.failed / done)
            reason = _most(snapshot.failed.get(str(run.run), {}))
            sentence = f"{name} fails: {share} of {count(done)} requests{reason}"
            yield Attention("bad", sentence, _job(run))


def _job(run: LiveRunView) -> Place:
    row = (("job", run.job), ("run", run.run), ("name", run.name), ("state", run.state))
    return Place(ConsolePage.JOB, str(run.run), row)


def _most(reasons: dict[str, int]) -> str:
    """`, mostly http_503`."""
    most = max(reasons, key=lambda reason: reasons[reason], default="")
    return f", mostly {plain(most, 40)}" if most else ""


def _hosts(view: View) -> Iterator[Attention]:
    """From what the leader counted: why hosts wait. A host that the line of a job names is left
    out here."""
    limit_rows = limit_rows_of(view)
    if AWAY in limit_rows:
        yield from _down_hosts(limit_rows[AWAY], _hosts_of_jobs(view, limit_rows[AWAY]))
    if THROTTLED in limit_rows:
        hosts, queued = _hosts_and_queued(limit_rows[THROTTLED])
        sentence = f"{hosts} throttled (429, 503 or slow), {queued}"
        yield Attention("warn", sentence, Place(ConsolePage.HOSTS))


def _down_hosts(row: Row, named: set[str]) -> Iterator[Attention]:
    others = number(row, "hosts") - len(named)
    if not named:
        hosts, queued = _hosts_and_queued(row)
        yield Attention("bad", f"{hosts} down, {queued}", Place(ConsolePage.HOSTS))
    elif others > 0:
        noun = "more host is" if others == 1 else "more hosts are"
        yield Attention("bad", f"{count(others)} {noun} down", Place(ConsolePage.HOSTS))


def _hosts_of_jobs(view: View, row: Row) -> set[str]:
    """The hosts for which the leader says that a job waits, for the reason of this row: `host down`
    of all hosts, `host down, retry in 40 s` of a single one."""
    words = text(row, "text").partition(",")[0]
    snapshot = view.content.snapshot
    waits = [run.waits for run in snapshot.runs] if snapshot is not None and words else []
    matches = [re.match(rf"waiting: (\S+): {re.escape(words)}", sentence) for sentence in waits]
    return {match[1] for match in matches if match}


def _hosts_and_queued(row: Row) -> tuple[str, str]:
    hosts, queued = number(row, "hosts"), number(row, "queued")
    noun, verb = "host is" if hosts == 1 else "hosts are", "waits" if queued == 1 else "wait"
    return f"{count(hosts)} {noun}", f"{count(queued)} {'URL' if queued == 1 else 'URLs'} {verb}"
