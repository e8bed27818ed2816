"""The log of events: sentences, repeated ones folded, nothing that only the protocol needs."""

from __future__ import annotations

from typing import Any

from console.columns.pages import TABLES
from console.drawing.table import nothing_text
from console.state import Answered, ConsolePage, GoTo, HappeningCame, Place, SetFilter, View
from console.tables import shown
from console.view import reduce
from tests.console.samples import AT, heard, snapshot

LOG, ITEMS = Place(ConsolePage.LOG), Place(ConsolePage.ITEMS)


def event(n: int, name: str, text: str, **more: Any) -> HappeningCame:
    fields = {"at": AT + n, "text": text, "source": "m1", "level": "info", "run": 0, **more}
    return HappeningCame(name, fields, float(n))


def log(*events: HappeningCame) -> list[tuple[str, str]]:
    view: View = reduce(heard(snapshot(0)), GoTo(LOG))
    for happened in events:
        view = reduce(view, happened)
    table = TABLES[ConsolePage.LOG]
    column = next(column for column in table.columns if column.title == "What")
    return [(row["name"], column.cell(row).text) for row in shown(table, view).rows]


def test_repeated_events_fold() -> None:
    """Nine of a kind are one row; another event in between begins a new one."""
    joined = [event(n, "worker_joined", "w1 joined with 4 slots") for n in range(9)]
    other = event(9, "run_paused", "root@vm paused rust (run 3)")
    assert log(*joined, other, joined[0]) == [
        ("worker_joined", "w1 joined with 4 slots"),
        ("run_paused", "root@vm paused rust (run 3)"),
        ("worker_joined", "w1 joined with 4 slots  × 9"),
    ]


def test_events_of_two_nodes_do_not_fold() -> None:
    """The same words, of another source."""
    assert len(log(event(1, "x", "y"), event(2, "x", "y", source="m2"))) == 2


def test_bookkeeping_is_hidden() -> None:
    """The node's own log has it."""
    assert log(event(1, "settled_by_welcome", "7"), event(2, "asked", "act by root@vm")) == []


def test_a_search_that_did_not_see_all_items_says_so() -> None:
    """Only the newest 10,000 items are searched."""
    view = reduce(reduce(heard(snapshot(0)), GoTo(ITEMS)), SetFilter("rare"))
    table = TABLES[ConsolePage.ITEMS]
    partly = reduce(view, Answered(view.place.key, {"rows": [], "more": True}, 1.0))
    assert "newest 10,000 items, older ones were not searched" in nothing_text(table, partly)
    wholly = reduce(view, Answered(view.place.key, {"rows": [], "more": False}, 1.0))
    assert nothing_text(table, wholly) == "nothing matches 'rare'; escape shows all"
