"""What nodes log reaches those who watch: bounded at each step, and what is left out is counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.machine_tools import UTC, LeaderStory
from zcrawl.master import events as m
from zcrawl.master.driver.loop import MasterLoop, MasterProcess
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.master.master import Master
from zcrawl.master.watch import LINES_S
from zcrawl.mesh.memory import MemoryHub
from zcrawl.mesh.messages import LINE_TEXT_MOST, Event, LogRecord, LogRecords
from zcrawl.model.log_event import WORKER_LOST, commit_event, level_of, store_event
from zcrawl.telemetry.log_lines import MOST, LogTail, read_filter
from zcrawl.telemetry.logs.files import EventLog
from zcrawl.testing.store.store import FakeStore


def names(lines: LogRecords | None) -> list[str]:
    return [record.name for record in lines.lines] if lines is not None else []


def events_named(story: LeaderStory, name: str = "") -> list[dict[str, Any]]:
    events = [body for body in story.published if isinstance(body, Event)]
    return [event.fields for event in events if name in ("", event.name)]


# ---------------------------------------------------------------- a process's tail


def test_a_quiet_process_has_nothing_to_send() -> None:
    """Neither at first nor after its lines were taken."""
    tail = LogTail()
    assert tail.take(5.0) is None
    tail.add("exit", "drained", 5.0)
    assert tail.take(5.5) == LogRecords(
        [LogRecord(0.5, "info", "exit", "this process ends: drained")]
    )
    assert tail.take(6.0) is None


def test_a_storm_is_cut_and_counted_and_a_warning_takes_an_informations_place() -> None:
    """The first lines of a second are kept; what matters more comes in all the same."""
    tail = LogTail()
    for _ in range(MOST + 5):
        tail.add("follows", "m1", 1.0)
    tail.add("internal_error", "run 3: boom", 1.5)
    lines = tail.take(2.0)
    assert lines is not None
    assert len(lines.lines) == MOST
    assert lines.left_out == 6
    assert names(lines).count("internal_error") == 1
    for _ in range(MOST):
        tail.add("internal_error", "boom", 3.0)
    tail.add("worker_lost", "w1", 3.0)
    assert set(names(tail.take(3.0))) == {"internal_error"}


def test_what_no_message_can_carry_is_made_fit() -> None:
    """Ten thousand characters, half a character, a clock that went back."""
    tail = LogTail()
    tail.add("x" * 500, "\ud800" * 10_000, 9.0)
    lines = tail.take(1.0)
    assert lines is not None
    (line,) = lines.lines
    assert len(line.name) == 100
    assert len(line.text) == LINE_TEXT_MOST
    assert line.ago_s == 0.0
    line.text.encode()


def test_a_log_keeps_what_it_wrote_for_the_tail_but_not_what_it_wrote_quietly(
    tmp_path: Path,
) -> None:
    """The file has both; too many of one name are in neither."""
    log = EventLog(tmp_path / "log", "w1")
    log("bad_body", "x")
    log.quietly("worker_joined", "w2")
    assert names(log.take_lines()) == ["bad_body"]
    assert b"worker_joined" in (tmp_path / "log").read_bytes()
    for _ in range(200):
        log("storm", "")
    lines = log.take_lines()
    log.close()
    assert lines is not None
    assert len(lines.lines) == MOST
    assert lines.left_out <= 40


def test_a_level_is_declared_with_its_event() -> None:
    """A store's trouble is a warning, a machine's an error, the rest is information."""
    assert level_of(store_event("unavailable")) == level_of(commit_event("unknown")) == "warning"
    assert (level_of(WORKER_LOST), level_of("machine_error")) == ("warning", "error")
    assert level_of("worker_joined") == "info"


# ---------------------------------------------------------------- the filter


LINE = {"level": "warning", "source": "w3", "name": "slow", "text": "timed out", "run": 7}


@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("", True),
        ("TIMED", True),
        ("out timed", True),
        ("timed nowhere", False),
        ("level:info", True),
        ("level:warn", True),
        ("level:error", False),
        ("node:w3", True),
        ("node:w", False),
        ("node:w*", True),
        ("node:w30", False),
        ("job:docs", True),
        ("job:DOCS", True),
        ("job:doc", False),
        ("job:7", True),
        ("job:8", False),
        ("job:*", True),
        ("level:warning node:w3 job:docs timed", True),
        ("level:warning node:w4 job:docs timed", False),
        ("level:nonsense", False),
        ("node:", False),
    ],
)
def test_a_filter_takes_level_node_job_and_words(typed: str, fits: bool) -> None:
    """All that is typed has to fit; what is no level, node or job is a word of the text."""
    assert read_filter(typed).fits(LINE, ("docs", "7")) is fits


def test_a_line_about_no_job_fits_no_job() -> None:
    """Also not `job:*`."""
    assert not read_filter("job:*").fits({**LINE, "run": 0}, ())


def test_the_run_of_a_line_is_a_field_from_the_log_to_the_tail(tmp_path: Path) -> None:
    """A program that reads the file has it too; a line about no run has none."""
    log = EventLog(tmp_path / "log", "w1")
    log("internal_error", "run 9: boom", run=3)
    log("exit", "run 9")
    lines = log.take_lines()
    log.close()
    assert lines is not None
    assert [record.run for record in lines.lines] == [3, 0]
    written = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [record.get("run") for record in written] == [3, None]


# ---------------------------------------------------------------- the leader


def test_what_a_worker_logs_is_told_and_kept_with_its_name_and_level() -> None:
    """With the leader's clock, as the worker's may be wrong; its run is what the field says, not
    the text."""
    story = LeaderStory().elect()
    story.submit("http://a.test/")
    story.published.clear()
    story.hear(LogRecords([LogRecord(0.5, "error", "internal_error", "run 7: boom", 1)]), "w9")
    (line,) = events_named(story, "internal_error")
    assert (line["source"], line["level"], line["run"]) == ("w9", "error", 1)
    assert line["at"] == pytest.approx(UTC + story.now - 0.5)
    for filter_text in ("node:w9", "job:job", "job:1", "level:error boom"):
        kept = story.ask("events", filter=filter_text)
        assert kept is not None
        assert [row["text"] for row in kept.data["rows"]] == ["run 7: boom"]
    others = story.ask("events", filter="node:w9", inverse=True)
    assert others is not None
    assert "boom" not in str(others.data)
    assert others.data["rows"]


def test_a_storm_of_many_nodes_is_cut_at_the_leader() -> None:
    """So much a second from all of them together; the rest is counted and told."""
    story = LeaderStory().elect()
    story.published.clear()
    for n in range(50):
        lines = [LogRecord(0.0, "info", "chatter", str(k)) for k in range(10)]
        story.hear(LogRecords(lines, left_out=3), f"w{n}")
    assert len(events_named(story, "chatter")) == LINES_S
    story.wait(2.0)
    kept = story.ask("events", filter="events_dropped")
    assert kept is not None
    assert "300 log lines of other nodes dropped" in str(kept.data)
    story.published.clear()
    story.hear(LogRecords([LogRecord(0.0, "nonsense", "chatter", "again")], left_out=7), "w1")
    assert events_named(story, "chatter")[0]["level"] == "info"
    assert events_named(story, "log_lines_dropped")[0]["text"] == "7 log lines dropped"


def test_workers_push_none_of_the_leaders_own_events_out() -> None:
    """They have a ring of their own."""
    story = LeaderStory().elect()
    for _ in range(40):
        story.tick(1.0)
        lines = [LogRecord(0.0, "info", "chatter", "x") for _ in range(100)]
        story.hear(LogRecords(lines), "w1")
        story.hear(LogRecords(lines), "w2")
    kept = story.ask("events", filter="leads in epoch")
    assert kept is not None
    assert kept.data["total"] == 1


# ---------------------------------------------------------------- masters


def test_a_follower_tells_the_leader_what_it_logs() -> None:
    """It has no watchers of its own: it publishes, and the leader hears it."""
    lines = LogRecords([LogRecord(0.0, "warning", "peer_refused", "10.0.0.9")])
    master = Master("m2", seen_slots=64)
    assert master.handle(m.LinesLogged(lines), 5.0, UTC) == [m.Publish(lines)]


async def test_a_leaders_process_tells_each_line_once(tmp_path: Path) -> None:
    """Its machine's notes are events already; what else it logs comes from its tail."""
    log = EventLog(tmp_path / "log", "m1")
    hub = MemoryHub()
    threads = StoreThreads(FakeStore(), log)
    now = 100.0
    loop = MasterLoop(
        Master("m1", seen_slots=64),
        hub.master("m1", 1),
        threads,
        MasterProcess(
            clock=lambda: now,
            utc=lambda: UTC,
            log=log,
            log_told=log.quietly,
            lines=log.take_lines,
        ),
    )
    async with asyncio.timeout(60):
        await loop.lead(m.Elected(0, alone=True))
    watch = loop.machine.leader.state.watch if loop.machine.leader is not None else None
    assert watch is not None
    log("peer_refused", "10.0.0.9")
    now += 2.0
    loop._tick()
    heard = [entry["name"] for entry in (*watch.events, *watch.lines)]
    loop.close()
    await threads.close()
    log.close()
    assert heard.count("leader") == 1
    assert heard.count("peer_refused") == 1
