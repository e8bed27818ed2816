"""Requests that go out later than they were allowed to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import assignment, attempt, grant, header, result
from zcrawl.errors import RetryClass
from zcrawl.mesh.codec import decode, encode
from zcrawl.mesh.messages import Message, PageRecord
from zcrawl.model.host import Manner
from zcrawl.model.states import Outcome
from zcrawl.worker.held_requests import Intake


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


def test_a_grant_that_comes_again_brings_no_start_forward() -> None:
    """The leader did not know of the last start when it wrote the grant."""
    intake = running(2.0, 1)
    before = intake.hosts[1].pace.next_at
    intake.adopt_grant(1, grant(concurrency=9, revision=2, interval_s=2.0, burst=9), 10.1)
    assert intake.hosts[1].pace.next_at == before
    later = grant(concurrency=9, revision=3, interval_s=2.0, burst=9, next_in_s=50.0)
    intake.adopt_grant(1, later, 10.2)
    assert intake.hosts[1].pace.next_at == pytest.approx(60.2)


LATE_PAGE = PageRecord("http://h1.test/1", "title", "text/html", 10, 0.0, 15_000.0)
LATE: dict[str, dict[str, Any]] = {
    "slow answers": {"page": LATE_PAGE, "status": 200},
    "timeouts": {
        "outcome": Outcome.FAILED,
        "reason": "read_timeout",
        "retry": RetryClass.TRANSIENT,
    },
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("slept", [True, False])
def test_a_process_that_slept_blames_no_host_for_it(late: str, slept: bool) -> None:
    """What was under way says nothing about the host; without a sleep it does."""
    intake = running(0.0, 6)
    intake.learn(1, attempt(1), 10.1)
    for moment in [10.0, 25.0] if slept else range(10, 26):
        intake.turned(float(moment), 1.0)
    for n in range(2, 7):
        intake.learn(n, attempt(n, **LATE[late]), 25.0)
    manners = intake.hosts[1].manners
    is_blamed = manners.throttle.slow_s > 0.0 or manners.breaker.opens > 0
    assert is_blamed is not slept


def test_what_is_told_of_a_very_slow_pace_can_be_told() -> None:
    """A RESULT with a longer wait would be refused, and its page would end as bad_result."""
    intake = running(1_000_000.0, 1)
    waits = intake.next_in_s(1, 10.0)
    body = msgspec.structs.replace(result(), host_next_in_s=waits)
    assert isinstance(decode(encode(header(body), body)), Message)


def asked_first(hosts: int) -> Intake:
    """A request to each of so many hosts that have never answered, started at 10.0."""
    intake = Intake()
    for host in range(1, hosts + 1):
        intake.adopt_grant(1, grant(host, manner=None), 0.0)
        assert intake.take(1, assignment(host, host, host=host)) is None
    assert len(intake.start_due(10.0, hosts)[0]) == hosts
    return intake


def test_a_host_that_never_answered_gives_its_slot_to_others_after_a_while() -> None:
    """Each such request stands beside the slots, up to four times as many; one that ended does
    not, and a host that has answered takes a slot for as long as it needs."""
    intake = asked_first(9)
    assert intake.places(8, 10.5) == 8
    assert intake.places(8, 11.0) == 8 + 9
    assert intake.places(2, 11.0) == 2 + 4 * 2
    assert intake.finish(3) is not None
    assert intake.places(8, 11.0) == 8 + 8
    intake.check()
    assert running(0.0, 5).places(8, 100.0) == 8
