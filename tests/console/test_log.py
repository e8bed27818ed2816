"""The log page: lines of all nodes, by level, node, job and text; and a node's own page."""

from __future__ import annotations

from typing import Any

import pytest

from console import commands
from console.plain_page import page_text
from console.questions import questions
from console.state import (
    Answered,
    ConsolePage,
    Drill,
    GoTo,
    HappeningCame,
    NextLevel,
    Place,
    SetFilter,
    Ticked,
    TogglePause,
    View,
)
from console.view import reduce
from tests.console.samples import AT, heard, run, snapshot, worker
from tests.console.test_plain import HOSTILE


def logged(view: View, source: str, level: str, text: str, run: int = 0, at: float = 1.0) -> View:
    fields = {"at": AT + at, "text": text, "source": source, "level": level, "run": run}
    return reduce(view, HappeningCame("said", fields, at))


def scene() -> View:
    masters: list[dict[str, Any]] = [
        {"id": name, "healthy": name == "m1", "detail": "as told", "control": "tcp://x", "pid": 4}
        for name in ("m1", "m2")
    ]
    runs = [run(7, "docs"), run(8, "shop", job=3)]
    workers = [worker("w1"), worker("w10")]
    view = heard(snapshot(0, workers=workers, runs=runs, masters=masters))
    view = logged(view, "m1", "info", "w1: 32 slots", at=1)
    view = logged(view, "w1", "warning", "run 7: slow", 7, at=2)
    view = logged(view, "w10", "error", "run 8: broken", 8, at=3)
    view = logged(view, "m2", "warning", "peer refused", at=4)
    return reduce(view, GoTo(Place(ConsolePage.LOG)))


def texts(view: View, size: tuple[int, int] = (160, 48)) -> str:
    return page_text(view, size[0])


def shown(view: View) -> set[str]:
    said = ("32 slots", "slow", "broken", "peer refused")
    return {phrase for phrase in said if phrase in texts(view)}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", {"32 slots", "slow", "broken", "peer refused"}),
        ("level:warning", {"slow", "broken", "peer refused"}),
        ("level:error", {"broken"}),
        ("node:w1", {"slow"}),
        ("node:w*", {"slow", "broken"}),
        ("job:docs", {"slow"}),
        ("job:3", {"broken"}),
        ("level:warning node:m2 refused", {"peer refused"}),
        ("!level:warning", {"32 slots"}),
        ("!node:w*", {"32 slots", "peer refused"}),
    ],
)
def test_the_log_is_filtered_by_level_node_job_and_text(typed: str, expected: set[str]) -> None:
    """Lines of masters and workers stand side by side; each part of a filter has to fit."""
    assert shown(reduce(scene(), SetFilter(typed))) == expected


def test_older_lines_are_asked_for_with_the_same_filter() -> None:
    """The leader has more than was heard, and chooses before it cuts."""
    view = reduce(scene(), SetFilter("!node:w1 slow"))
    question, _ = questions(view)
    assert (question.op, question.args["filter"], question.args["inverse"]) == (
        "events",
        "node:w1 slow",
        True,
    )
    all_, _ = questions(reduce(view, SetFilter("")))
    assert all_.slot != question.slot and "filter" not in all_.args
    old = {"at": AT - 50, "name": "said", "source": "w4", "level": "info", "run": 0}
    rows = [{**old, "text": "long ago"}, {**old, "text": "slow before", "source": "w1"}]
    text = texts(reduce(view, Answered(question.slot, {"rows": rows}, 5.0)))
    assert "long ago" in text and "slow before" not in text, "what the leader chose fits here too"


def test_a_key_goes_from_all_to_warnings_to_errors() -> None:
    """What else is in the filter stays."""
    view = reduce(scene(), SetFilter("node:w*"))
    view = reduce(view, NextLevel())
    assert (view.table.filter, shown(view)) == ("level:warning node:w*", {"slow", "broken"})
    view = reduce(view, NextLevel())
    assert (view.table.filter, shown(view)) == ("level:error node:w*", {"broken"})
    assert reduce(view, NextLevel()).table.filter == "node:w*"


def test_the_log_stands_still_when_the_view_is_paused() -> None:
    """And has all of it when it goes on."""
    view = reduce(scene(), TogglePause())
    view = logged(view, "w1", "error", "later", at=9)
    assert "later" not in texts(view) and "later" in texts(reduce(view, TogglePause()))


def test_the_command_line_goes_to_a_filtered_log() -> None:
    """`:log level:error node:w1`."""
    view = scene()
    parsed = commands.parse("log level:error node:w10", view)
    assert isinstance(parsed, GoTo)
    after = reduce(view, parsed)
    assert after.page is ConsolePage.LOG and shown(after) == {"broken"}


def test_a_nodes_page_has_its_lines_and_what_is_said_about_it() -> None:
    """w1 is not w10."""
    view = reduce(scene(), GoTo(Place(ConsolePage.NODE, "w1", (("id", "w1"), ("kind", "worker")))))
    assert shown(view) == {"32 slots", "slow"}
    log = next(question for question in questions(view) if question.op == "events")
    assert log.args["filter"] == "node:w1"
    old = {"at": AT - 9, "name": "exit", "text": "drained", "source": "w1", "level": "info"}
    assert "drained" in texts(reduce(view, Answered(log.slot, {"rows": [old]}, 5.0)))


def test_a_master_has_a_page_too() -> None:
    """With its health as the catalogue has it, and what it logs."""
    view = reduce(scene(), GoTo(Place(ConsolePage.NODES)))
    view = reduce(reduce(view, SetFilter("m2")), Drill())
    assert (view.page, view.place.ref) == (ConsolePage.NODE, "m2")
    assert [question.op for question in questions(view)] == ["events", "role"]
    text = texts(view)
    assert "Master m2" in text and "critical as told" in text and "peer refused" in text


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_a_filter_can_be_any_text(words: str) -> None:
    """Brackets, stars, escapes: it finds or it does not, and never fails."""
    for typed in (words, f"node:{words}", f"job:{words}", f"level:{words}", "node:[", "job:[!"):
        assert texts(reduce(scene(), SetFilter(typed)))


def test_the_log_is_not_called_old() -> None:
    """What is heard is live; only what was asked for has an age."""
    view = scene()
    question, _ = questions(view)
    view = reduce(view, Answered(question.slot, {"rows": []}, 5.0))
    assert " old" not in texts(reduce(view, Ticked(500.0)))


def test_lines_of_the_time_before_a_new_leader_stay() -> None:
    """Its ring begins empty: what the old one told is what an operator wants to read now."""
    rows = [{"at": AT - n, "name": "old", "text": f"before {n}", "source": "m1"} for n in (9, 10)]
    view = reduce(heard(snapshot(0)), GoTo(Place(ConsolePage.LOG)))
    view = reduce(view, Answered("log:", {"rows": rows}, 1.0))
    new = [{"at": AT - 1, "name": "leader", "text": "m2 leads", "source": "m2"}]
    view = reduce(view, Answered("log:", {"rows": new}, 2.0))
    view = reduce(view, Answered("log:", {"rows": new}, 3.0))
    text = texts(view)
    assert [text.count(phrase) for phrase in ("m2 leads", "before 9", "before 10")] == [1, 1, 1]
