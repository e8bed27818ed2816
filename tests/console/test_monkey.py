"""A monkey at the keyboard of a console on a live cluster: every change has its dialog and its yes.

`ZCRAWL_MONKEY_KEYS=20000` lets it type longer.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual import events
from textual.pilot import Pilot

from console.actions import BY_NAME
from console.app import ConsoleApp
from console.screens.dialogs import ConfirmDialog
from console.screens.forms import FormDialog
from console.state import LinkState
from tests.console.samples import KEYS, until
from zcrawl.cli.specs import prepare
from zcrawl.demo.server import DemoServer
from zcrawl.master.desk.rights import READS
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.watching import in_folder

TYPED = int(os.environ.get("ZCRAWL_MONKEY_KEYS", "1500"))
SEED = "console monkey 1"
LETTERS = "abcdefghijklmnoprstuvwxyz123456789 :/?!JNSRQ=.,"  # not q: it would leave
NAMED: tuple[str, ...] = (
    "enter",
    "escape",
    "tab",
    "up",
    "down",
    "left",
    "right",
    "home",
    "end",
    "pagedown",
)
NAMED += ("backspace", "ctrl+a", "ctrl+y", "ctrl+s", "ctrl+p", "space")
MEANT = ("3h", "3g", "3x", "3r", "2u", "2d", "6r")  # a page, and an action on it
PASTES = ("y", "xy\ny\n", ":cancel shop\ny", "https://a.test/")


class Yes(NamedTuple):
    """A dialog that was agreed to."""

    title: str


class Monkey:
    """Types, and remembers what was agreed to and what was sent."""

    def __init__(self, app: ConsoleApp) -> None:
        self.app = app
        self.log: list[Yes | tuple[str, dict[str, Any]]] = []
        press, ask = app._press, app._feed.ask

        async def watched_press(event: events.Key) -> None:
            screen = app.screen
            focused = screen.focused.id if screen.focused is not None else ""
            if isinstance(screen, ConfirmDialog):
                if event.key == "y" or (event.key == "enter" and focused == "yes"):
                    self.log.append(Yes(screen._title))
            elif isinstance(screen, FormDialog) and event.key in ("enter", "ctrl+s"):
                self.log.append(Yes(screen._title))
            await press(event)

        async def watched_ask(op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op not in READS:
                self.log.append((op, args))
            return await ask(op, args)

        app._press = watched_press  # type: ignore[method-assign]
        app.exit = lambda *args, **options: None  # type: ignore[method-assign] # the palette quits
        app._feed.ask = watched_ask  # type: ignore[method-assign]

    async def type(self, keys: int, chance: random.Random, pilot: Pilot[None]) -> None:
        """Send bursts of 1 to 40 keys, with and without time between them."""
        sent = 0
        while sent < keys:
            for _ in range(chance.randint(1, 40)):
                sent += 1
                if chance.random() < 0.02:
                    self.app.post_message(events.Paste(chance.choice(PASTES)))
                elif chance.random() < 0.3:
                    self.app.post_message(events.Key(chance.choice(NAMED), None))
                else:
                    char = chance.choice(LETTERS)
                    self.app.post_message(events.Key(KEYS.get(char, char), char))
            await pilot.pause(chance.choice((0.0, 0.0, 0.01, 0.1)))
            if chance.random() < 0.3:  # as a person who reads the question and agrees
                for key in ("escape", "escape", *chance.choice(MEANT)):
                    self.app.post_message(events.Key(key, key if len(key) == 1 else None))
                await pilot.pause(0.2)
                self.app.post_message(events.Key("y", "y"))
            await until(pilot, lambda: not self.app._typed, 60.0)

    def unasked(self) -> list[tuple[str, dict[str, Any]]]:
        """The changes that no dialog of theirs was agreed to before."""
        titles: list[str] = []
        wrong: list[tuple[str, dict[str, Any]]] = []
        for entry in self.log:
            if isinstance(entry, Yes):
                titles.append(entry.title.lower())
            elif not any(title.startswith(self._title(entry)) for title in titles):
                wrong.append(entry)
        return wrong

    @staticmethod
    def _title(change: tuple[str, dict[str, Any]]) -> str:
        op, args = change
        if op == "submit":
            return "new job"
        name = str(args.get("action", op))
        return "retry" if name == "retry" else BY_NAME[name].label


@pytest.mark.timeout(3_600)
async def test_every_change_of_a_monkey_has_its_dialog_and_its_yes(tmp_path: Path) -> None:
    """Keys in bursts, pastes, and now and then a yes to what is on the screen."""
    async with DemoServer() as server, EmbeddedCluster(tmp_path, 1) as cluster:
        for n in range(6):
            slow = {"name": f"shop{n}", "politeness.rate": 1.0}
            await cluster.ask("submit", prepare([server.url], None, None, slow).args("new", None))
        app = ConsoleApp({"test": in_folder(tmp_path)})
        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lambda: app.view.link.state is LinkState.LIVE)
            monkey = Monkey(app)
            await monkey.type(TYPED, random.Random(SEED), pilot)
            assert app.is_running and app._exception is None
        changes = [entry for entry in monkey.log if not isinstance(entry, Yes)]
        assert changes, "it changed nothing: the test shows nothing"
        assert monkey.unasked() == []
        monkey.log.insert(0, ("drain", {"node": "w9"}))
        assert monkey.unasked() == [("drain", {"node": "w9"})], "the check can fail"
