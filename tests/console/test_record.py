"""Recordings: what was heard can be looked at again, anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.record_file import Recorder, ReplayFeed
from console.state import Answered, ConsoleEvent, ConsolePage, GoTo, HappeningCame, Place, View
from console.view import reduce
from tests.console.samples import AT, answers, came, snapshot
from zcrawl.errors import RefusedError, UsageError

STORY: list[ConsoleEvent] = [
    came(snapshot(0)),
    HappeningCame("worker_joined", {"text": "w1", "at": AT}, 0.5),
    GoTo(Place(ConsolePage.HOSTS)),
    came(snapshot(1)),
    Answered("hosts:", answers()["hosts"], 1.2),
    came(snapshot(9_000)),
]


def record(path: Path) -> None:
    with Recorder(path) as recorder:
        for event in STORY:
            recorder.write(event)


async def replay(path: Path) -> tuple[View, list[float]]:
    view, pauses = View(), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def emit(event: ConsoleEvent) -> None:
        nonlocal view
        view = reduce(view, event)

    await ReplayFeed(path, sleep).watch(emit)
    return view, pauses


async def test_a_recording_shows_what_was_heard_and_nothing_that_was_typed(tmp_path: Path) -> None:
    """At the speed of the day, but for long silences."""
    record(tmp_path / "x")
    view, pauses = await replay(tmp_path / "x")
    assert view.live.snapshot is not None and view.live.snapshot.at == AT + 9_000
    assert view.live.happenings[0].name == "worker_joined"
    assert len(view.live.rows("hosts:")) == 60
    assert view.page is ConsolePage.OVERVIEW
    assert "ends here, 5 events" in view.link.text
    assert pauses == [0.5, 0.5, pytest.approx(0.2), 5.0]


async def test_a_recording_that_was_cut_off_shows_what_it_has(tmp_path: Path) -> None:
    """The console that wrote it was killed, or somebody opened it with an editor."""
    path = tmp_path / "x"
    record(path)
    path.write_bytes(path.read_bytes()[:-50] + b"\nnonsense\n{}\n\xff\n")
    view, _ = await replay(path)
    assert view.live.snapshot is not None and view.live.snapshot.at == AT + 1


async def test_a_recording_answers_no_questions(tmp_path: Path) -> None:
    """And nothing can be done from it."""
    record(tmp_path / "x")
    with pytest.raises(RefusedError, match="recording"):
        await ReplayFeed(tmp_path / "x").ask("act", {"ref": "1", "action": "cancel"})


def test_a_file_that_cannot_be_is_told(tmp_path: Path) -> None:
    """Before the screen is taken."""
    with pytest.raises(UsageError, match="no such recording"):
        ReplayFeed(tmp_path / "missing")
    with pytest.raises(UsageError, match="cannot be written"), Recorder(tmp_path / "no" / "x"):
        pass
