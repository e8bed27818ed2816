"""Hours of the day, and what pages ask of robots."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.frontier.pace import combined_demand, opens_in_s, parse_hours
from zcrawl.model.spec import Politeness
from zcrawl.parse.directives import (
    agent_token,
    forbids_following,
    forbids_index,
    header_directives,
)

DAY = 86_400.0
MIDNIGHT = 20_000 * DAY


def hours(*texts: str) -> tuple[tuple[float, float], ...]:
    return tuple(parse_hours(text) for text in texts)


@pytest.mark.parametrize(
    ("spans", "hour", "wait"),
    [
        (("08:00-18:00",), 12.0, 0.0),
        (("08:00-18:00",), 18.0, 14.0),
        (("22:00-06:00",), 23.0, 0.0),
        (("22:00-06:00",), 5.5, 0.0),
        (("22:00-06:00",), 6.0, 16.0),
        (("01:00-02:00", "20:00-21:00"), 3.0, 17.0),
        (("00:00-24:00",), 23.99, 0.0),
        ((), 3.0, 0.0),
    ],
)
def test_a_host_opens_at_its_hours(spans: tuple[str, ...], hour: float, wait: float) -> None:
    """Over midnight too."""
    assert opens_in_s(hours(*spans), MIDNIGHT + hour * 3600) == pytest.approx(wait * 3600)


@pytest.mark.parametrize("text", ["8-18", "25:00-26:00", "10:00-10:00", "24:30-01:00", ""])
def test_what_is_no_span_is_refused(text: str) -> None:
    """With the key's name and an example."""
    with pytest.raises(JobError, match=r"politeness\.hours"):
        parse_hours(text)


def test_jobs_together_have_the_hours_that_both_allow() -> None:
    """The slowest demand wins; hours without a common one mean never."""
    night, evening = Politeness(hours=("22:00-06:00",)), Politeness(hours=("20:00-23:00",))
    both = combined_demand([night, evening, Politeness()], 0.0).hours
    assert opens_in_s(both, MIDNIGHT + 22.5 * 3600) == 0.0
    assert opens_in_s(both, MIDNIGHT + 21.5 * 3600) == 1800.0
    noon = Politeness(hours=("12:00-13:00",))
    never = combined_demand([night, noon], 0.0).hours
    assert all(opens_in_s(never, MIDNIGHT + n * 900) > 0 for n in range(96))


@pytest.mark.parametrize(
    ("values", "index", "follow"),
    [
        ((), True, True),
        (("noindex",), False, True),
        (("noarchive, NoFollow",), True, False),
        (("none",), False, False),
        (("otherbot: noindex, nofollow",), True, True),
        (("zcrawl: noindex", "nofollow"), False, False),
        (("otherbot: noindex", "zcrawl: nofollow"), True, False),
        (("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex",), False, True),
    ],
)
def test_x_robots_tag_is_for_us_or_for_all(
    values: tuple[str, ...], index: bool, follow: bool
) -> None:
    """What another crawler is asked is not our business."""
    directives = header_directives(values, agent_token("zcrawl/0.1 (+https://x.test)"))
    assert (not forbids_index(directives), not forbids_following(directives)) == (index, follow)
