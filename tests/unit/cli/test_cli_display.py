"""What a crawl shows while it runs."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from zcrawl.cli import output
from zcrawl.cli.display import (
    RateMeter,
    Silent,
    Totals,
    draw,
    limit,
    line,
    progress,
    sparkline,
    tally,
    totals,
)
from zcrawl.model.snapshot import EmbeddedSnapshot


def snapshot(waits: str = "", **more: Any) -> EmbeddedSnapshot:
    return msgspec.convert(plain_snapshot(waits, **more), EmbeddedSnapshot)


def plain_snapshot(waits: str = "", **more: Any) -> dict[str, Any]:
    counts = {"pages": 10, "items": 9, "failed": 1, "skipped": 2, "queued": 3, "in_flight": 4}
    run = {"run": 7, "job": 3, "name": "[/b]evil\x1b[2J", "state": "running", **counts}
    run |= {"fetching": 2, "waiting": 1, "uncommitted": 1, "admitted": 26, "waits": waits}
    run["why"] = "https://x.test: rate limit: 5/s"
    worker = {
        "id": "[red]w1",
        "state": "busy",
        "slots": 32,
        "running": 4,
        "waiting": 1,
        "rate": 12.3,
        "rss_bytes": 47_000_000,
        "lag_ms": 1.2,
    }
    return {
        "leader": "m1",
        "epoch": 1,
        "runs": [{**run, "bytes": 1_500_000}, {**run, "run": 8, "bytes": 1}],
        "workers": [worker],
        "statuses": {"7": {"200": 9, "404": 1}, "8": {"500": 1}},
        "failed": {"7": {"http_404": 1}},
        "store": {"state": "ok", "error": None, "since_s": 0.0},
        **more,
    }


def test_totals_are_those_of_the_asked_runs() -> None:
    """Other runs in the same folder do not count."""
    assert totals(snapshot(), {7}) == Totals(10, 9, 1, 2, 3, 4, 2, 1, 1, 1_500_000)
    assert totals(snapshot(), {7, 8}).pages == 20
    assert tally(snapshot().statuses, {7}) == {"200": 9, "404": 1}
    assert tally(snapshot().failed, {7}) == {"http_404": 1}


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """A crawl that stands still shows 0, however fast it was before."""
    meter = RateMeter()
    assert meter.rate() == 0.0
    for second in range(5):
        meter.feed(float(second), second * 10)
    assert meter.rate() == 10.0
    for second in range(5, 10):
        meter.feed(float(second), 40)
    assert meter.rate() == 0.0
    assert meter.samples()[:4] == [10.0, 10.0, 10.0, 10.0]


def test_the_history_of_rates_is_bounded() -> None:
    """A crawl of a week needs no more memory than one of a minute."""
    meter = RateMeter()
    for tick in range(10_000):
        meter.feed(tick * 0.1, tick)
    assert len(meter.samples()) == 40


def test_a_sparkline_reaches_from_nothing_to_the_highest() -> None:
    """Standing still is a flat line at the bottom."""
    assert sparkline([0.0, 5.0, 10.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


def test_the_live_picture_has_every_promised_part_and_takes_foreign_text_as_text() -> None:
    """A job's name that looks like markup or drives the terminal is shown, not obeyed."""
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=False)
    meter = RateMeter()
    meter.feed(0.0, 0)
    meter.feed(1.0, 10)
    store = {"state": "retrying", "error": "disk_full", "since_s": 3.0}
    console.print(draw(snapshot(store=store), {7}, meter))
    shown = text.getvalue()
    for part in (
        "[/b]evil\\x1b[2J",
        "10.0/s",
        "3 queued",
        "2 fetching   1 waiting   1 uncommitted",
        "rate limit: 5/s",
        "50 %",
        "200 × 9",
        "http_404 × 1",
    ):
        assert part in shown, part
    for part in ("[red]w1", "4/32", "47.0 MB", "1.5 MB", "disk_full"):
        assert part in shown, part
    assert "\x1b[2J" not in shown


def test_on_a_narrow_terminal_a_worker_still_takes_one_line() -> None:
    """What does not fit is cut, and pushes nothing down."""
    text = io.StringIO()
    console = Console(file=text, width=40, force_terminal=False)
    console.print(draw(snapshot(), {7}, RateMeter()))
    *_, head, row = text.getvalue().splitlines()
    assert head.startswith("wor")
    assert row.startswith("[re")
    assert "4/32" in row


def test_a_leader_that_fails_is_told() -> None:
    """One failure alone is cured by its reload, and gone before anybody has read of it."""
    once, often = ({"total": n, "in_row": n, "last": "KeyError: 7"} for n in (1, 3))
    assert "KeyError" not in line(snapshot(mishaps=once), {7}, RateMeter())
    says = "the leader failed 3 times in a row: KeyError: 7"
    assert line(snapshot(mishaps=often), {7}, RateMeter()).endswith(f"; {says}")
    text = io.StringIO()
    Console(file=text, width=120).print(draw(snapshot(mishaps=often), {7}, RateMeter()))
    assert says in text.getvalue()


def test_a_plain_line_says_the_same_in_one_line() -> None:
    """For logs."""
    shown = line(snapshot(), {7}, RateMeter())
    assert shown == (
        "50 %, 10 pages, 0.0/s, 3 queued, 2 fetching, 1 waiting, 1 uncommitted, 1 failed, "
        "2 skipped; not faster because of https://x.test: rate limit: 5/s"
    )
    store = {"state": "retrying", "error": "disk_full", "since_s": 3.0}
    assert "[disk_full]" in line(snapshot(store=store), {7}, RateMeter())


def test_numbers_are_written_for_people() -> None:
    """Sizes, times and counts."""
    assert [output.size(n) for n in (0, 999, 1000, 1_500_000, 2e15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "2000.0 TB",
    ]
    assert [output.seconds(n) for n in (4.21, 200, 7_500)] == ["4.2 s", "3 min 20 s", "2 h 05 min"]
    assert output.counts({"a": 1, "b": 3}) == "b × 3, a × 1"
    assert output.counts({str(n): 1 for n in range(10)}, 8).endswith(" and 2 more")


def test_what_a_crawl_waits_for_in_vain_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing plugin is shown in lines and on the screen; for programs it is printed once."""
    says = "waiting: no live worker has middleware 'stamp' yet"
    waiting_view = snapshot(waits=says)
    assert line(waiting_view, {7}, RateMeter()).endswith(f"; {says}")
    screen = Console(file=io.StringIO(), width=120)
    screen.print(draw(waiting_view, {7}, RateMeter()))
    assert says in screen.file.getvalue()  # type: ignore[attr-defined]
    silent = Silent()
    for view in (snapshot(), waiting_view, waiting_view):
        silent.show(view, {7})
    assert capsys.readouterr().err == f"{says}\n"


def test_the_progress_has_an_eta_at_the_present_rate() -> None:
    """7 requests are left, 2 pages come a second; without a rate nobody can say."""
    meter = RateMeter()
    meter.feed(0.0, 6)
    meter.feed(2.0, 10)
    assert progress(snapshot(), {7}, meter) == "50 %, ETA 0:04"
    assert progress(snapshot(), {7}, RateMeter()) == "50 %"
    assert limit(snapshot(), {7}) == "https://x.test: rate limit: 5/s"
    assert limit(snapshot(), {9}) == ""
