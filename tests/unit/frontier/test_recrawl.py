"""What a job remembers of a page: when it is due, what its request carries, how it adapts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from zcrawl.errors import JobError
from zcrawl.frontier.recrawl import (
    KnownPage,
    decode,
    is_due,
    reading_of,
    updated_page,
    validators,
)
from zcrawl.mesh.messages import Traits
from zcrawl.model.reasons.reason import Reason, ReasonKind
from zcrawl.model.reasons.registry import REASONS, all_reasons
from zcrawl.model.reasons.skip import STAY_DUE
from zcrawl.model.spec import Fetch, JobSpec, OutputSpec, Politeness, Recrawl, Scope
from zcrawl.model.states import RequestState
from zcrawl.submit.validate import spec_from_dict

RULES = Recrawl(True, interval=100.0, min_interval=40.0, max_interval=200.0)
DONE, DEAD, SKIPPED = RequestState.DONE, RequestState.DEAD, RequestState.SKIPPED
ONE, TWO = Traits('"1"', "", b"one"), Traits('"2"', "", b"two")
READ, OTHERWISE = b"reading1", b"reading2"


def met(
    page: KnownPage | None,
    traits: Traits | None = None,
    state: RequestState = DONE,
    status: int = 200,
    reason: str = "",
    at: float = 1_000.0,
) -> KnownPage:
    return updated_page(page, state, status, reason, traits, RULES, READ, at)


def test_the_interval_follows_what_was_observed() -> None:
    """It begins as told, halves with a change, grows by half without, within its bounds."""
    page = met(None, ONE)
    assert (page.interval_s, page.checks, page.changes) == (100.0, 1, 0)
    seen = []
    for traits in (ONE, ONE, TWO, ONE, TWO):
        page = met(page, traits)
        seen.append(page.interval_s)
    assert seen == [150.0, 200.0, 100.0, 50.0, 40.0]
    assert (page.checks, page.changes) == (6, 3)


def test_a_page_is_due_when_its_interval_has_passed() -> None:
    """To the second; a page that was never looked at is due at once."""
    page = met(None, ONE, at=1_000.0)
    assert not is_due(page, READ, 1_099.9)
    assert is_due(page, READ, 1_100.0)
    assert is_due(met(None, None, DEAD, 500), READ, 0.0)


@pytest.mark.parametrize(
    "reason", [skip_reason for skip_reason in all_reasons() if skip_reason.kind is ReasonKind.SKIP]
)
def test_a_skip_counts_as_a_look_unless_its_reason_stays_due(reason: Reason) -> None:
    """The registry of reasons says which. What stays due keeps what was known of the page."""
    page = met(None, ONE, at=1_000.0)
    after = met(page, None, SKIPPED, 0, reason.code, at=2_000.0)
    assert (after == page) is reason.stays_due
    assert (after.checked_at == 1_000.0) is reason.stays_due


def test_the_reasons_that_stay_due_are_those_of_pages_that_nobody_requested() -> None:
    """A page limit and a trap end URLs before they are fetched; only skips have this meaning."""
    stay_due = {reason.code for reason in all_reasons() if reason.stays_due}
    assert stay_due == {"host_page_limit", "owned by", "trap_shape"} == STAY_DUE
    assert {REASONS[code].kind for code in stay_due} == {ReasonKind.SKIP}


def test_a_page_that_was_looked_at_in_the_future_is_due_within_its_interval() -> None:
    """Two runs go on at once, or a clock was set back: it does not wait for the old time."""
    page = met(None, ONE, at=1_000.0)
    assert not is_due(page, READ, 950.0)
    assert is_due(page, READ, 900.0)
    always = msgspec.structs.replace(page, interval_s=0.0)
    assert is_due(always, READ, 999.9)


def test_the_moment_of_change_is_kept() -> None:
    """An unchanged page keeps the moment at which it was last found changed."""
    page = met(met(None, ONE, at=10.0), ONE, at=20.0)
    assert (page.checked_at, page.changed_at) == (20.0, 10.0)
    assert met(page, TWO, at=30.0).changed_at == 30.0


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_gone_is_asked_less_and_less(status: int) -> None:
    """It keeps no validators, and comes back as a changed page."""
    page = met(met(None, ONE), None, DEAD, status)
    assert (page.gone, page.content, page.interval_s) == (True, b"", 150.0)
    assert validators(page, READ) == b""
    back = met(page, ONE)
    assert (back.gone, back.changes, back.interval_s) == (False, 2, 75.0)


def test_a_failure_says_nothing_of_the_page() -> None:
    """What was known stays good and stays due."""
    page = met(None, ONE)
    assert met(page, None, DEAD, 503, "http_503", at=9_000.0) == page
    assert met(page, None, SKIPPED, 0, "host_page_limit", at=9_000.0) == page


def test_a_page_that_was_not_kept_is_asked_without_conditions() -> None:
    """A page that says noindex now may be kept next time, so a 304 would be no answer."""
    page = met(met(None, ONE), None, SKIPPED, 200, "noindex")
    assert (validators(page, READ), page.gone, page.changes) == (b"", False, 1)


def test_a_page_that_is_read_in_another_way_is_due_and_asked_without_conditions() -> None:
    """Its items would be others, whatever its server says."""
    page = met(None, ONE, at=1_000.0)
    assert is_due(page, OTHERWISE, 1_001.0)
    assert validators(page, OTHERWISE) == b""
    assert decode(validators(page, READ)) == ONE


def test_what_cannot_be_read_asks_no_condition() -> None:
    """A worker that cannot make sense of it fetches the page like any other."""
    assert decode(b"") is None
    assert decode(b"\xc1") is None
    assert decode(msgspec.msgpack.encode({"etag": 1})) is None


def test_only_what_pages_are_read_by_counts_as_another_reading() -> None:
    """Another pace or limit does not fetch a whole site anew; another scope or rule does."""

    def reading(**changes: Any) -> bytes:
        return reading_of(msgspec.json.encode(JobSpec("j", **changes)))

    same: list[dict[str, Any]] = [
        {"politeness": Politeness(rate=1.0)},
        {"fetch": Fetch(timeout=5.0)},
        {"scope": Scope(max_pages=5)},
        {"recrawl": RULES},
        {"seeds": ("https://a.test/",)},
    ]
    other: list[dict[str, Any]] = [
        {"scope": Scope(max_depth=3)},
        {"fetch": Fetch(engine="browser")},
        {"politeness": Politeness(nofollow=False)},
        {"output": OutputSpec(keep_html=True)},
        {"spider": "a.b:C"},
        {"schema": {"required": ["name"]}},
    ]
    assert {reading(**change) for change in same} == {reading()}
    assert len({reading(), *(reading(**change) for change in other)}) == 7


def test_only_a_crawl_remembers_pages() -> None:
    """The tasks of an executor are to be done in every run."""
    with pytest.raises(JobError, match=r"recrawl\.incremental needs pages"):
        spec_from_dict({"name": "j", "kind": "stamp", "recrawl": {"incremental": True}}, "job")
    assert spec_from_dict({"name": "j", "kind": "stamp"}, "job").recrawl == Recrawl()


@pytest.mark.parametrize(
    ("recrawl", "complaint"),
    [
        ({"interval": -1}, "recrawl.interval is -1"),
        ({"interval": float("nan")}, "recrawl.interval"),
        ({"max_interval": 1e12}, "ten years"),
        ({"interval": 10.0}, "min_interval"),
        ({"min_interval": 1e6}, "min_interval"),
        ({"intervall": 5}, "did you mean 'recrawl.interval'"),
    ],
)
def test_intervals_that_make_no_sense_are_refused(recrawl: dict[str, Any], complaint: str) -> None:
    """The error names the key."""
    with pytest.raises(JobError, match=complaint):
        spec_from_dict({"name": "j", "recrawl": recrawl}, "job.toml")
