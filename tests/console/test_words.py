"""The console's words: what issue reports called wrong does not come back."""

from __future__ import annotations

import re

import pytest

from console.actions import ACTIONS
from console.columns.pages import TABLES
from console.drawing.lines import as_text
from console.drawing.table import fitted, header_line
from console.help_text import ABOUT, help_text
from console.keymap import all_bindings
from console.plain_page import page_text
from console.state import ConsolePage, Drill, GoTo, MoveTo, Place
from console.view import reduce
from tests.console.samples import at, heard, snapshot

# Words that were replaced, and why a reader did not understand them.
OLD_WORDS = re.compile(
    r"\b(Unacked|Backlog|Leased|pace|lanes?|breakers?|dead|go on|goes on|hold|"
    r"step the leader|patience|told_stale|not_told|left_out|settled_by_welcome)\b",
    re.IGNORECASE,
)
LEAST_CELLS = 12  # of a column that takes what is left: a name that can be recognized


def words_of(page: ConsolePage) -> str:
    place = Place(page, "1", (("run", 1), ("job", 1), ("name", "docs"), ("id", "w1")))
    return page_text(at(place if page not in TABLES else Place(page)), 220)


@pytest.mark.parametrize("page", list(ConsolePage))
def test_pages_and_help_have_the_new_words(page: ConsolePage) -> None:
    """Titles, labels and what `?` says."""
    shown = words_of(page).replace("pace: 5/s", "") + help_text(page)
    assert OLD_WORDS.findall(shown) == []


def test_actions_and_keys_have_the_new_words() -> None:
    """Labels, tooltips, and the footer."""
    labels = [f"{action.label} {action.about} {action.short}" for action in ACTIONS]
    labels += [f"{binding.description} {binding.tooltip}" for binding in all_bindings()]
    assert [label for label in labels if OLD_WORDS.search(label)] == []


def test_help_explains_the_columns_that_are_there() -> None:
    """A column in bold is a column of the page."""
    for page, about in ABOUT.items():
        table = TABLES.get(page)
        titles = {column.title for column in table.columns} if table is not None else set()
        if page is ConsolePage.HOST:
            titles = {"Fetching", "Waiting", "Uncommitted"}
        assert set(re.findall(r"\*\*(.+?)\*\*", about)) <= titles, page


@pytest.mark.parametrize("page", list(TABLES))
def test_every_width_has_room_for_names_and_reasons(page: ConsolePage) -> None:
    """The columns of fixed width leave something for the others, and no line is cut."""
    view = at(Place(page))
    for cells in range(80, 221):
        layout = fitted(TABLES[page], cells)
        elastic = [
            width
            for column, width in zip(layout.columns, layout.widths, strict=True)
            if not column.cells
        ]
        assert min(elastic) >= LEAST_CELLS, (page, cells)
        header = as_text([header_line(TABLES[page], view, layout)])
        assert len(header) <= cells, (page, cells)


@pytest.mark.parametrize("page", [ConsolePage.NODES, ConsolePage.QUEUES, ConsolePage.HOST_QUEUES])
def test_three_numbers_are_in_flight_at_every_width(page: ConsolePage) -> None:
    """Where one of them is, all are."""
    for cells in (80, 120, 200):
        titles = {column.title for column in fitted(TABLES[page], cells).columns}
        assert {"Fetching", "Waiting", "Uncommitted"} <= titles, cells


def test_a_url_that_is_not_tried_again_has_failed() -> None:
    """In the list and on its own page."""
    row = {"seq": 9, "url": "https://h1.test/a", "state": "dead", "reason": "dns", "status": 0}
    column = TABLES[ConsolePage.FAILED].columns[0]
    assert column.cell(row).text == "failed"
    opened = reduce(at(Place(ConsolePage.FAILED)), Drill())
    assert opened.page is ConsolePage.LINE
    assert "failed" in page_text(opened, 100)
    assert "dead" not in page_text(opened, 100)


def test_one_thing_is_named_in_the_singular() -> None:
    """`1 pages` is not English; also in what is drawn beside it."""
    view = reduce(heard(snapshot(0)), GoTo(Place(ConsolePage.OVERVIEW)))
    assert not re.search(r"(?<![\d,.])1 (pages|URLs|hosts|items)\b", page_text(view, 120))
    assert reduce(view, MoveTo(0)).page is ConsolePage.OVERVIEW
