"""What the page of a job says about its schedule, its parameters and its chain."""

from __future__ import annotations

from typing import Any

import pytest

from console.drawing.lines import Picture
from console.drawing.schedule import MOST_RUNS, chain_lines, schedule_facts

NIGHTLY = {
    "times": "cron 0 3 * * *",
    "state": "active",
    "after": ["lists"],
    "next": ["2026-12-01T03:00:00.000Z", "2026-12-02T03:00:00.000Z"],
    "note": "skipped: run 7 is still running",
}


def plain_text(picture: Picture) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in picture]


def test_a_job_says_when_it_runs_next_and_why_it_did_not() -> None:
    """And what started this run, with what."""
    row = {"schedule": NIGHTLY, "cause": "cron", "due_at": "2026-11-30T03:00:00.000Z"}
    assert plain_text(schedule_facts({**row, "params": {"day": "monday"}})) == [
        "  runs by itself  cron 0 3 * * *, after lists",
        "  next            2026-12-01 03:00:00, 2026-12-02 03:00:00",
        "  not started     skipped: run 7 is still running",
        "  started by      cron, due 2026-11-30 03:00:00",
        "  params          day=monday",
    ]
    paused = {**NIGHTLY, "state": "paused", "next": [], "note": ""}
    (line,) = plain_text(schedule_facts({"schedule": paused, "cause": "submitted"}))
    assert line.endswith("after lists (paused)")


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"schedule": None, "params": {}, "chain": [], "cause": ""},
        {"schedule": 7, "params": "x", "chain": {"run": 1}},
        {"chain": [None, 7]},
    ],
)
def test_a_master_of_another_version_changes_nothing(row: dict[str, Any]) -> None:
    """What is not there, or is something else, is not shown."""
    assert schedule_facts(row) == []
    assert chain_lines(row, 80) == []


def test_a_chain_is_a_tree_with_states() -> None:
    """Each run below the one that started it; a long chain is cut."""
    first = {"run": 1, "name": "lists", "state": "completed", "reason": "", "depth": 0}
    child = {"run": 2, "name": "pages\x1b[2J", "state": "failed", "reason": "no", "depth": 1}
    lines = plain_text(chain_lines({"run": 2, "chain": [first, child]}, 60))
    assert lines[1] == "  lists run 1 completed"
    assert lines[2].startswith("    pages")
    assert "\x1b" not in lines[2]
    assert lines[2].endswith("run 2 failed (no)  this run")
    many = plain_text(chain_lines({"chain": [first] * (MOST_RUNS + 3)}, 60))
    assert many[-2] == "  and 3 more"
