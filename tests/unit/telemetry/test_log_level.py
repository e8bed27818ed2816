"""`log.level` decides which events are written, and can change while a process runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zcrawl.telemetry.logs.files import EventLog


def written(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("", ["exit", "worker_lost", "takeover_failed"]),
        ("debug", ["exit", "worker_lost", "takeover_failed"]),
        ("info", ["exit", "worker_lost", "takeover_failed"]),
        ("warning", ["worker_lost", "takeover_failed"]),
        ("error", ["takeover_failed"]),
    ],
)
def test_events_of_a_level_and_worse_ones_are_written(
    tmp_path: Path, level: str, events: list[str]
) -> None:
    """Consoles get all of them: they have a filter of their own."""
    log = EventLog(tmp_path / "log", "w1", level=level)
    for name in ("exit", "worker_lost", "takeover_failed"):
        log(name, "x")
    log.close()
    assert written(tmp_path / "log") == events
    lines = log.take_lines()
    assert lines is not None
    assert [line.name for line in lines.lines] == ["exit", "worker_lost", "takeover_failed"]


def test_level_and_form_change_while_the_log_is_open(tmp_path: Path) -> None:
    """From the next event on."""
    log = EventLog(tmp_path / "log", "w1", level="error")
    log("exit", "unwritten")
    log.configure(as_text=False, level="info")
    log("exit", "first")
    log.configure(as_text=True, level="info")
    log("exit", "second")
    log.close()
    first, second = (tmp_path / "log").read_text().splitlines()
    assert json.loads(first)["detail"] == "first"
    assert " w1 exit " in second
