"""What `?` shows: the keys that do something on this page, and what its words mean."""

from __future__ import annotations

import textwrap
from typing import Final

from console.actions import key_of, offered
from console.columns import TABLES
from console.lines import Picture, Span, line, title
from console.plain import fit
from console.state import ConsolePage, View

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
KEYS: Final = (
    ("1 – 9", "the nine pages"),
    ("enter", "open the row"),
    ("escape", "clear the filter, clear the marks, go back"),
    ("↑ ↓ pgup pgdn home end, j k", "move"),
    ("space", "mark the row; ctrl+a marks all rows, or none"),
    ("shift + letter", "sort by the column with that capital; again turns it round"),
    ("/text   /!text", "show what matches; show what does not"),
    (":", "command line, tab completes: :job docs, :pause 3, :theme nord"),
    ("p", "pause the view; what is behind it stays live"),
    ("ctrl+p", "all commands, to choose from"),
    ("b", "on Queues: by job, by tag, by host (:queues by tag)"),
    ("i", "items of this job (on Jobs, Queues, a job)"),
    ("y", "copy the row's main field to the clipboard, also over SSH"),
    ("q", "quit"),
)


KEY_CELLS: Final = 28


def help_picture(view: View, cells: int) -> Picture:
    lines: Picture = [
        title(str(view.page).capitalize(), cells),
        *(
            line(Span(f"  {piece}"))
            for piece in textwrap.wrap(ABOUT[view.page], max(20, cells - 2))
        ),
        (),
    ]
    actions = offered(view)
    if actions:
        lines.append(
            title("What can be done here, to the marked rows or the row at the cursor", cells)
        )
        lines += [
            line(
                Span(f"  {fit(key_of(view, action), 6)}", "accent"),
                Span(fit(action.label, 34)),
                Span("asks before it acts" if action.confirm else "", "warn"),
            )
            for action in actions
        ]
        lines.append(())
    table = TABLES.get(view.page)
    sortable = [column for column in table.columns if column.letter] if table is not None else []
    if sortable:
        lines.append(title("Sort", cells))
        # A letter and its column stay together: the space between them is none to break at.
        letters = "   ".join(f"{column.letter}\0{column.title}" for column in sortable)
        for piece in textwrap.wrap(letters, max(20, cells - 4)):
            lines.append(line(Span("  " + piece.replace("\0", " "))))
        lines.append(())
    lines.append(title("Keys", cells))
    for key, what in KEYS:
        pieces = textwrap.wrap(what, max(20, cells - KEY_CELLS - 2))
        lines += [
            line(Span(f"  {fit(key if n == 0 else '', KEY_CELLS)}", "accent"), Span(piece))
            for n, piece in enumerate(pieces)
        ]
    return lines
