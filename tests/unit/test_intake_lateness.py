"""Requests that go out later than they were allowed to."""

from __future__ import annotations

import pytest

from tests.unit.machine_tools import assignment, grant
from zcrawl.mesh.messages import Manner
from zcrawl.worker.intake import Intake


def running(interval_s: float, requests: int) -> Intake:
    """So many requests to one host that has answered before, started at 10.0."""
    intake = Intake()
    intake.adopt_grant(
        1, grant(concurrency=9, interval_s=interval_s, burst=9, manner=Manner()), 0.0
    )
    for n in range(1, requests + 1):
        assert intake.take(1, assignment(n, n)) is None
    started, _ = intake.start_due(10.0, requests)
    assert len(started) == requests
    return intake


def test_lateness_holds_up_nobody_where_there_is_no_pace() -> None:
    """An unlimited crawl starts dozens at once, and its loop is late for each of them."""
    intake = running(0.0, 5)
    before = intake.hosts[1].pace.next_at
    for n in range(1, 6):
        intake.put_off(n, 10.3)
    assert intake.hosts[1].pace.next_at == before


def test_lateness_of_several_requests_does_not_add_up() -> None:
    """The next start keeps its distance from the last one that went out, and no more."""
    intake = running(0.5, 1)
    for _ in range(5):
        intake.put_off(1, 10.3)
    assert intake.hosts[1].pace.next_at == pytest.approx(10.8)
