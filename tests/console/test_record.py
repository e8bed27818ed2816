"""Recordings: what was heard can be looked at again, anywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import pytest

from console.app import ConsoleApp
from console.drawing.frame import top_line
from console.drawing.lines import as_text
from console.feed.recorder import Recorder
from console.feed.replay import ReplayFeed
from console.state import (
    Answered,
    ConsoleEvent,
    ConsolePage,
    GoTo,
    HappeningCame,
    Place,
    ReplayState,
    View,
)
from console.view import reduce
from console.widgets.replay_bar import ReplayBar
from tests.console.samples import AT, TARGET, answers, came, snapshot
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


class Screening:
    """A replay under a clock that the test moves, and the View of who watches it."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.feed = ReplayFeed(path, clock=lambda: self.now)
        self.view = View()

    def emit(self, event: ConsoleEvent) -> None:
        self.view = reduce(self.view, event)

    async def __aenter__(self) -> Self:
        self._watching = asyncio.ensure_future(self.feed.watch(self.emit))
        await self.settle()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])

    async def at(self, seconds: float) -> View:
        """The View after so many seconds of the replay."""
        self.now = seconds
        self.feed.change_speed(0)  # it looks at the clock again
        return await self.settle()

    async def settle(self) -> View:
        """Let the replay have its turns."""
        loop = asyncio.get_running_loop()
        for _ in range(20):
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn
        assert not self._watching.done()
        return self.view


async def test_a_recording_shows_what_was_heard_and_nothing_that_was_typed(tmp_path: Path) -> None:
    """At the speed of the day, but for long silences."""
    record(tmp_path / "x")
    async with Screening(tmp_path / "x") as screening:
        view = await screening.at(0.9)
        assert view.live.snapshot is not None and view.live.snapshot.at == AT
        assert view.live.happenings[0].name == "worker_joined"
        view = await screening.at(6.1)
        assert len(view.live.rows("hosts:")) == 60 and view.live.snapshot is not None
        assert view.live.snapshot.at == AT + 1
        view = await screening.at(6.3)
    assert view.live.snapshot is not None and view.live.snapshot.at == AT + 9_000
    assert view.page is ConsolePage.OVERVIEW
    assert view.replay is not None
    assert (view.replay.position_s, view.replay.length_s) == pytest.approx((6.2, 6.2))


async def test_seek_shows_the_state_of_that_moment(tmp_path: Path) -> None:
    """Back: what came later is gone. Forward: answers of before are there."""
    with Recorder(tmp_path / "x") as recorder:
        recorder.write(Answered("hosts:", answers()["hosts"], 0.0))
        for second in range(1_000):
            recorder.write(came(snapshot(second)))
    async with Screening(tmp_path / "x") as screening:
        screening.feed.seek_to(900.0)
        view = await screening.settle()
        for _ in range(30):
            view = await screening.settle()
        assert view.live.snapshot is not None and view.live.snapshot.at == AT + 900
        assert len(view.live.rates.samples) > 250 and len(view.live.rows("hosts:")) == 60
        screening.feed.seek_by(-890)
        for _ in range(30):
            view = await screening.settle()
        assert view.live.snapshot is not None and view.live.snapshot.at == AT + 10
        assert max(sample.at for sample in view.live.rates.samples) == AT + 10


async def test_a_recording_is_never_called_live(tmp_path: Path) -> None:
    """Nobody shall act on figures of yesterday."""
    record(tmp_path / "x")
    async with Screening(tmp_path / "x") as screening:
        view = await screening.at(0.9)
    top = as_text([top_line(view, 120)])
    assert "recorded" in top and "live" not in top


async def test_keys_and_mouse_control_a_replay(tmp_path: Path) -> None:
    """In the app, on every page."""
    with Recorder(tmp_path / "x") as recorder:
        for second in range(200):
            recorder.write(came(snapshot(second)))
    feed = ReplayFeed(tmp_path / "x", clock=lambda: 0.0)
    app = ConsoleApp({"test": TARGET}, feed=feed, readonly=True, clock=lambda: 1.0)

    def replay() -> ReplayState:
        assert app.view.replay is not None
        return app.view.replay

    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        await pilot.press("full_stop", "greater_than_sign")
        await pilot.pause(0.1)
        assert replay().position_s == 70
        await pilot.press("comma", "3", "comma", "less_than_sign")
        await pilot.pause(0.1)
        assert replay().position_s == 0
        await pilot.press("plus", "plus", "minus", "p")
        await pilot.pause(0.1)
        assert replay().speed == 2 and replay().paused
        bar = app.screen.query_one(ReplayBar)
        await pilot.click(ReplayBar, offset=(bar._first + bar._cells // 2, 0))
        await pilot.pause(0.1)
        assert 90 < replay().position_s < 110
        assert app.view.live.snapshot is not None
        assert app.view.live.snapshot.at == pytest.approx(AT + replay().position_s, abs=1)


async def test_a_recording_that_was_cut_off_shows_what_it_has(tmp_path: Path) -> None:
    """The console that wrote it was killed, or somebody opened it with an editor."""
    path = tmp_path / "x"
    record(path)
    path.write_bytes(path.read_bytes()[:-50] + b"\nnonsense\n{}\n\xff\n")
    async with Screening(path) as screening:
        view = await screening.at(99.0)
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
