"""Where a line of the log leads: to its job, its host, its node. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from console.columns.work import job_rows, node_rows
from console.state import ConsolePage, Place, View
from console.tables import Row, number, text

URL: Final = re.compile(r"https?://[^/\s\"'<>]+")
MOST_HOSTS: Final = 3


class Jump(NamedTuple):
    """A place, and what to call it."""

    label: str
    place: Place


def jumps(view: View, row: Row) -> list[Jump]:
    """What an event is about, as far as the console knows it."""
    targets: list[Jump] = []
    run = int(number(row, "run"))
    job = next((job for job in job_rows(view) if run and int(number(job, "run")) == run), None)
    if job is not None:
        targets.append(
            Jump(f"job {text(job, 'name')}", Place(ConsolePage.JOB, str(run), _flat(job)))
        )
    words = text(row, "text")
    for host in list(dict.fromkeys(URL.findall(words)))[:MOST_HOSTS]:
        targets.append(Jump(f"host {host}", Place(ConsolePage.HOSTS, "", (("filter", host),))))
    for node in node_rows(view):
        name = text(node, "id")
        named = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", words) if name else None
        if name and (text(row, "source") == name or named is not None):
            targets.append(Jump(f"node {name}", Place(ConsolePage.NODE, name, _flat(node))))
    return targets


def _flat(row: Row) -> tuple[tuple[str, str | int | float], ...]:
    return tuple((k, v) for k, v in row.items() if isinstance(v, str | int | float))
