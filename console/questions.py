"""What the place on the screen needs to know beyond the snapshot. Pure; asked by `app`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from console.columns.outcomes import log_slot
from console.columns.pages import TABLES
from console.columns.work import LISTED
from console.state import ConsolePage, View
from console.tables import question, text
from zcrawl.master.desk.rights import ROLE

SPANS_S: Final = (900, 3_600, 21_600, 86_400)
HISTORY_S: Final = 10.0  # the leader stores a point so often


class Question(NamedTuple):
    """Something that the place on the screen needs from a master."""

    slot: str
    op: str
    args: dict[str, Any]
    every_s: float


def questions(view: View) -> list[Question]:
    """What the place on the screen needs to know beyond the snapshot, and what one may do."""
    return [*_of_place(view), Question(ROLE, ROLE, {}, 60.0)]


def _of_place(view: View) -> list[Question]:
    place = view.place
    table = TABLES.get(place.page)
    if table is not None and table.op:
        op, args = question(table, view)
        return [Question(place.key, op, args, 1.0 if not table.newest_first else 2.0)]
    newest = {"sort": "n", "desc": True}
    match place.page:
        case ConsolePage.OVERVIEW:
            return [
                Question("overview:", "overview", {}, 2.0),
                Question("overview:history", "history", {"span_s": SPANS_S[0]}, HISTORY_S),
                Question("log:", "events", {**newest, "limit": 200}, 30.0),
            ]
        case ConsolePage.JOBS:
            return [Question(place.key, "jobs", {}, 60.0)]
        case ConsolePage.LOG:
            state = view.table
            filter_args = {"filter": state.filter, "inverse": state.inverse} if state.filter else {}
            return [
                Question(log_slot(view), "events", {**newest, "limit": 500, **filter_args}, 10.0)
            ]
        case ConsolePage.CHARTS:
            args = {"span_s": view.span_s, **_series(place.ref)}
            return [Question(place.key, "history", args, HISTORY_S)]
        case ConsolePage.NODE:
            lines = {**newest, "limit": 100, "filter": f"node:{place.ref}"}
            log = Question(place.key + ":log", "events", lines, 5.0)
            if place.about.get("kind") in ("master", LISTED):
                return [log]
            flight = {"worker": place.ref, "sort": "since", "limit": 100}
            return [
                Question(place.key, "node", {"node": place.ref}, 1.0),
                Question(place.key + ":flight", "in_flight", flight, 1.0),
                log,
            ]
        case ConsolePage.JOB:
            run = int(place.ref) if place.ref.isdigit() else 0
            return [
                # The run is named: a newer run of the job has other figures.
                Question(place.key, "job", {"ref": text(place.about, "job"), "run": run}, 2.0),
                Question(place.key + ":depths", "depths", {"run": run}, 2.0),
                Question(place.key + ":items", "items", {"run": run, "limit": 100}, 3.0),
            ]
        case ConsolePage.HOST:
            host_args = {"filter": text(place.about, "host"), "limit": 20}
            flight = {"host": int(place.ref or 0), "sort": "since", "limit": 50}
            return [
                Question(place.key, "hosts", host_args, 1.0),
                Question(place.key + ":flight", "in_flight", flight, 1.0),
            ]
        case _:
            return []


def _series(ref: str) -> dict[str, Any]:
    """What a chart is about: `run:12`, `host:34`, or the whole cluster."""
    kind, _, number = ref.partition(":")
    return {kind: int(number)} if kind in ("run", "host") and number.isdigit() else {}
