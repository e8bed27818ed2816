"""Which links lead into endless spaces, and which only look a little odd."""

from __future__ import annotations

import time

import pytest

from zcrawl.frontier.traps import TrapFilter
from zcrawl.model.spec import Traps

SITE = "https://x.test"
YEAR = 2026


def verdict(path: str, **limits: int) -> str | None:
    return TrapFilter(Traps(**limits)).verdict(SITE + path, YEAR)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/" + "x" * 2_000, "trap_url_length"),
        ("/a" * 20, "trap_repetition"),
        ("/" + "/".join(f"s{n}" for n in range(33)), "trap_segments"),
        ("/shop/a/b/a/b/a/b/a/b", "trap_repetition"),
        ("/img/img/img/img/x.html", "trap_repetition"),
        ("/p?" + "&".join(f"k{n}=1" for n in range(33)), "trap_parameters"),
        ("/p?" + "&".join("f=1" for _ in range(9)), "trap_parameters"),
        ("/calendar/2031/05", "trap_calendar"),
        ("/events?month=2031-05", "trap_calendar"),
        ("/events?year=1931&m=5", "trap_calendar"),
        ("/events?date=20310501", "trap_calendar"),
    ],
)
def test_a_trap_is_named(path: str, reason: str) -> None:
    """Each kind has a reason of its own."""
    assert verdict(path) == reason


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/3/library/asyncio-task.html",
        "/docs/15/sql-createtable.html",
        "/2024/05/17/a-post",
        "/archive/1999/01",
        "/events?year=2027",
        "/a/a/a/b",
        "/en/us/en/us/en/us",
        "/rfc/rfc2031/05",
        "/p?a=1&b=2&c=3",
        "/item/20310501999",
        "/product-2031",
    ],
)
def test_ordinary_urls_are_no_traps(path: str) -> None:
    """The defaults do not hurt normal sites."""
    assert verdict(path) is None


def test_the_variants_of_a_path_are_limited() -> None:
    """A filter that combines without end stops somewhere; other paths are not concerned."""
    traps = TrapFilter(Traps(max_variants=3))
    verdicts = [traps.verdict(f"{SITE}/list?sort={n}&colour=red", YEAR) for n in range(5)]
    assert verdicts == [None, None, None, "trap_variants", "trap_variants"]
    assert traps.verdict(f"{SITE}/other?sort=1", YEAR) is None


def test_every_limit_can_be_switched_off() -> None:
    """0 or false: none."""
    off = Traps(0, 0, 0, 0, 0, False, False)
    traps = TrapFilter(off)
    for path in ("/" + "x" * 3_000, "/a" * 50, "/c/2051/01", "/p?" + "k=1&" * 50):
        assert traps.verdict(SITE + path, YEAR) is None


def test_a_catalogue_by_number_is_no_trap() -> None:
    """One parameter with many values is how shops number their goods."""
    traps = TrapFilter(Traps(max_variants=3))
    assert {traps.verdict(f"{SITE}/item?id={n}", YEAR) for n in range(50)} == {None}


@pytest.mark.parametrize("path", ["/item/2500/10", "/p/1200/5", "/questions/3999-12", "/v/1500"])
def test_numbers_that_could_be_months_are_no_dates(path: str) -> None:
    """Only a whole date, a query, or a folder that speaks of dates makes four digits a year."""
    assert TrapFilter(Traps()).verdict(SITE + path, YEAR) is None


@pytest.mark.parametrize("word", ["date", "calend", "archiv", "event"])
def test_a_word_of_calendars_many_times_takes_no_longer_than_any_other(word: str) -> None:
    """A page with links like that held a worker for seconds: each time the word was met, the rest
    of the segment was looked through again."""

    def cpu_s(text: str) -> float:
        path = "/1000" + text * (1_900 // len(text))
        traps, least = TrapFilter(Traps()), float("inf")
        for _ in range(5):
            before = time.thread_time()
            for _ in range(20):
                assert traps.verdict(SITE + path, YEAR) is None
            least = min(least, time.thread_time() - before)
        return least

    assert cpu_s(word) < 10 * cpu_s("x" * len(word))
