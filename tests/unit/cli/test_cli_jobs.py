"""`zcrawl jobs` and `nodes`: rates, ETAs and aligned figures."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.cli import output
from zcrawl.cli.commands.jobs import eta, in_flight_text, retried_text
from zcrawl.cli.commands.nodes import _worker_cells


def view(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": "running", "seconds": 10.0, "pages": 40, "failed": 5}
    fields |= {"skipped": 5, "queued": 90, "in_flight": 10}
    return {**fields, "fetching": 4, "waiting": 5, "uncommitted": 1, **changes}


def test_the_eta_is_what_is_left_at_the_speed_so_far() -> None:
    """50 of 150 in 10 s: 20 s more. An ended run has none, a new one cannot have any."""
    assert eta(view()) == "0:20"
    assert eta(view(state="completed")) == ""
    assert eta(view(pages=0, failed=0, skipped=0)) == ""
    assert output.clock(7_500) == "2:05:00"


def test_requests_in_flight_are_three_numbers() -> None:
    """Nothing is said where there are none."""
    assert in_flight_text(view()) == "4 fetching, 5 waiting, 1 uncommitted"
    assert in_flight_text(view(in_flight=0)) == ""


def test_a_retry_of_nothing_says_so() -> None:
    """`0 tried again` was no answer."""
    assert retried_text(0) == "nothing to retry"
    assert [retried_text(n) for n in (1, 2)] == ["1 URL queued again", "2 URLs queued again"]


def test_figures_are_aligned_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    """So that a thousand is seen to be more than nine."""
    output.table(("name", "pages"), [("a", 9), ("bb", 1_000)], right=("pages",))
    assert capsys.readouterr().out.splitlines() == ["name  pages", "a         9", "bb     1000"]


def test_a_worker_that_is_gone_has_no_figures() -> None:
    """Those of its last heartbeat are old."""
    row: dict[str, Any] = {"id": "w1", "state": "busy", "running": 3, "slots": 8, "waiting": 2}
    row |= {"uncommitted": 1, "rate": 5.0, "cpu_percent": 40.2, "rss_bytes": 1_000, "lag_ms": 2.0}
    row |= {
        "tasks": 1,
        "task_slots": 4,
        "task_rate": 2.0,
        "heard_s_ago": 0.5,
        "pid": 7,
        "hostname": "here",
    }
    assert _worker_cells(row)[:7] == ("w1", "busy", "3/8", "1/4", 2, 1, "7/s")
    assert _worker_cells({**row, "state": "lost"})[2:10] == ("",) * 8
