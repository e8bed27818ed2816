"""What `?` says about a page, as Markdown for Textual's help panel, which adds the keys. Pure."""

from __future__ import annotations

from typing import Final

from console.columns.pages import TABLES
from console.state import ConsolePage

IN_FLIGHT: Final = (
    "In flight: **Fetching** (a worker has started it), **Waiting** (a worker holds it, for the"
    " rate limit or a free slot), **Uncommitted** (its result is not in the database yet)."
)
QUEUED: Final = (
    "**Queued** has no worker: due, delayed (for a retry) and stored (in the database only)."
)
COMMITS: Final = "**Commit queue**: results that wait for the next commit."
ABOUT: Final = {
    ConsolePage.OVERVIEW: (
        "Is it healthy, how fast is it, why is it not faster, and what needs you. Tab goes from"
        " panel to panel, enter opens the row. A gap in a chart: nobody measured."
    ),
    ConsolePage.NODES: (
        "Masters and workers. A worker is suspect after 3 missed heartbeats and lost after 10."
        f" Figures of a worker that is gone are blank. {IN_FLIGHT}"
        " Rows of the kind `listed` are the nodes of a standalone node's list: `silent` was not"
        " heard for 10 s, `differs` has another list. The fingerprint of its list is beside its"
        " name."
    ),
    ConsolePage.JOBS: (
        "One row a job, with the figures of its newest run; `e` shows all runs. **ETA** is the time"
        " left at the present speed, **Elapsed** the time so far. **Why** says what limits it."
    ),
    ConsolePage.QUEUES: f"By job. {QUEUED} {IN_FLIGHT} {COMMITS} Enter: host by host.",
    ConsolePage.TAG_QUEUES: (
        f"By tag. A job with two tags counts under both. {QUEUED} {IN_FLIGHT} {COMMITS}"
        " Enter: the jobs of the tag."
    ),
    ConsolePage.HOST_QUEUES: (f"By host, all jobs together. {QUEUED} {IN_FLIGHT} {COMMITS}"),
    ConsolePage.HOSTS: (
        "A host has one rate limit for all jobs. The last column says why it is not fetched"
        f" faster. **Failures**: in a row; after some of them the host counts as down. {IN_FLIGHT}"
    ),
    ConsolePage.ERRORS: (
        "Requests that failed and are not tried again, by reason and host, as the database has"
        " them. `r` queues exactly that many again. Enter: the URLs."
    ),
    ConsolePage.ITEMS: "The newest items of all runs. `/` searches in the newest 10,000.",
    ConsolePage.LOG: (
        "What all nodes log. `/` takes `level:warning node:w3 job:docs` and words of the text,"
        " also of older lines. A line that came several times in a row has `× 9`."
    ),
    ConsolePage.CHARTS: (
        "Points of 10 seconds for an hour and of a minute for a day, kept in the database."
        " A gap: nobody measured. Latencies are upper bounds of classes."
    ),
    ConsolePage.NODE: "One node: what it is fetching, and what it or others log about it.",
    ConsolePage.JOB: "One run of a job: answers, failures, depths, fields, newest items.",
    ConsolePage.LANES: f"The hosts of one run. {QUEUED} {IN_FLIGHT}",
    ConsolePage.HOST: f"One host, and its requests in flight. {IN_FLIGHT}",
    ConsolePage.FAILED: "The URLs of one group of failures, from the database.",
    ConsolePage.ITEM: "One item, field by field.",
    ConsolePage.LINE: "One event or URL, field by field.",
}


def help_text(page: ConsolePage) -> str:
    """What the page shows, how to sort it, and what is not a key."""
    name = "Hosts of a run" if page is ConsolePage.LANES else str(page).capitalize()
    parts = [f"### {name}", ABOUT[page]]
    table = TABLES.get(page)
    letters = [
        f"`{column.letter}` {column.title}"
        for column in (table.columns if table is not None else ())
        if column.letter
    ]
    if letters:
        parts.append("**Sort** with shift and a letter, or click a title: " + ", ".join(letters))
    if table is not None:
        parts.append(
            "**Mouse**: click chooses a row, a second click opens it; drag selects, `y` copies."
        )
        parts.append("**Actions** are about the marked rows, or the row at the cursor.")
    return "\n\n".join(parts) + "\n"
