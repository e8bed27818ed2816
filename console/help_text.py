"""What `?` says about a page, as Markdown for Textual's help panel, which adds the keys. Pure."""

from __future__ import annotations

from typing import Final

from console.columns.pages import TABLES
from console.state import ConsolePage

WORDS: Final = (
    "Waiting: due, delayed (for a retry) and stored (only in the database). Leased: at a worker."
    " Unacked: its result is here and not committed. Backlog: results that wait for a commit."
)
ABOUT: Final = {
    ConsolePage.OVERVIEW: "How fast, what is left, who works, and why it is not faster.",
    ConsolePage.NODES: "Masters and workers. Silent for 3 heartbeats: suspect; for 10: lost.",
    ConsolePage.JOBS: (
        "The newest runs. Left is what is queued, over the rate of the last 5 seconds."
    ),
    ConsolePage.QUEUES: f"By job. {WORDS} Enter: host by host.",
    ConsolePage.TAG_QUEUES: (
        f"By tag. {WORDS} A job with two tags counts under both. Enter: its jobs."
    ),
    ConsolePage.HOST_QUEUES: f"By host, all jobs together. {WORDS}",
    ConsolePage.HOSTS: (
        "A host has one pace for all jobs. The last column says why it is not fetched now."
    ),
    ConsolePage.ERRORS: "Failures for good, by reason and host, since this leader took over.",
    ConsolePage.ITEMS: "The newest items of all runs; / searches in them at the database.",
    ConsolePage.LOG: (
        "What all nodes log; / takes level:warning node:w3 job:docs and words of the text."
    ),
    ConsolePage.CHARTS: "The history of this leader: a point a second, ten seconds or a minute.",
    ConsolePage.NODE: "One node: what it is fetching, what it logs, and what others say about it.",
    ConsolePage.JOB: "One job: answers, failures, depths, fields, newest items.",
    ConsolePage.LANES: "The queues of one run, host by host.",
    ConsolePage.HOST: "One host, and what is in flight to it.",
    ConsolePage.FAILED: "The URLs of one group of failures, from the database.",
    ConsolePage.ITEM: "One item, field by field.",
    ConsolePage.LINE: "One line, field by field.",
}


def help_text(page: ConsolePage) -> str:
    """What the page shows, how to sort it, and what is not a key."""
    parts = [f"### {str(page).capitalize()}", ABOUT[page]]
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
