"""A monkey at the keyboard of a console on a live cluster: every change has its dialog and its yes.

`ZCRAWL_MONKEY_KEYS=20000` lets it type longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual import events
from textual.pilot import Pilot

from console.actions import BY_NAME
from console.app import ConsoleApp
from console.drawing.lines import Picture
from console.keyboard import QUIET_AFTER_S, QUIET_BEFORE_S
from console.screens.dialogs import ConfirmDialog
from console.screens.forms import FormDialog
from console.state import LinkState
from tests.console.samples import KEYS, is_open, is_quiet, until
from zcrawl.cli.specs import prepare
from zcrawl.demo.server import DemoServer
from zcrawl.errors import ZcrawlError
from zcrawl.master.desk.idempotency import audit_line
from zcrawl.master.desk.rights import READS
from zcrawl.mesh.messages import ClientRequest
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.watching import in_folder

TYPED = int(os.environ.get("ZCRAWL_MONKEY_KEYS", "1500"))
SEED = os.environ.get("ZCRAWL_MONKEY_SEED", "console monkey 1")
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
# a page, and an action on it
MEANT = ("3h", "3g", "3x", "3r", "3d", "4h", "4d", "2u", "2d", "2l", "6r", "6a")
AUDIT = "asked"  # the name of the event
PASTES = ("y", "xy\ny\n", ":cancel shop\ny", "https://a.test/")


class Yes(NamedTuple):
    """A dialog that was agreed to: with which key, and what it said."""

    title: str
    words: str
    requests: int  # that it stands for
    alone: bool  # whether the key stood alone in the key log


class SentChange(NamedTuple):
    """A request that changes something, as the console sent it."""

    op: str
    args: dict[str, Any]

    @property
    def title(self) -> str:
        """How the title of its dialog begins."""
        if self.op == "submit":
            return "new job"
        name = str(self.args.get("action", self.op))
        return name if name in ("retry", "delete") else BY_NAME[name].label

    @property
    def words(self) -> str:
        """What the command line of its dialog has, if there is one for it alone."""
        words = str(self.args.get("ref", self.args.get("node", "")))
        run = f"--run {self.args['run']}" if self.args.get("run") else ""
        return f"{words} {run}".strip()

    @property
    def audit(self) -> str:
        """The line in the audit of the leader."""
        return audit_line(ClientRequest("", self.op, self.args), "").partition(": ")[2]


LogEntry = Yes | SentChange


class Monkey:
    """Types, and remembers every key, what was agreed to and what was sent."""

    def __init__(self, app: ConsoleApp, chance: random.Random) -> None:
        self.app, self.chance = app, chance
        self.keys: list[events.Key | events.Paste] = []
        self.log: list[LogEntry] = []
        press, ask = app._press, app._feed.ask

        async def watched_press(event: events.Key) -> None:
            screen = app.screen
            focused = screen.focused.id if screen.focused is not None else ""
            if isinstance(screen, ConfirmDialog) and screen._ready:
                if event.key == "y" or (event.key == "enter" and focused == "yes"):
                    self.log.append(self._yes(screen._title, screen._question, event))
            elif isinstance(screen, FormDialog) and event.key in ("enter", "ctrl+s"):
                self.log.append(Yes(screen._title.lower(), "", 100, alone=True))
            await press(event)

        async def watched_ask(op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op not in READS:
                self.log.append(SentChange(op, args))
            return await ask(op, args)

        app._press = watched_press  # type: ignore[method-assign]
        app.exit = lambda *args, **options: None  # type: ignore[method-assign] # the palette quits
        app._feed.ask = watched_ask  # type: ignore[method-assign]

    def _yes(self, title: str, question: Picture, event: events.Key) -> Yes:
        """An answer, judged by the monkey's own log of keys."""
        words = "\n".join("".join(span.text for span in line) for line in question)
        counted = re.search(r"^ ([\d,]+) requests$", words, re.MULTILINE)
        requests = int(counted[1].replace(",", "")) if counted else 1
        place = next(n for n, key in enumerate(self.keys) if key is event)
        quiet = event.time - self.keys[place - 1].time >= QUIET_BEFORE_S
        behind = self.keys[place + 1 : place + 2]
        calm = all(key.time - event.time >= QUIET_AFTER_S for key in behind)
        return Yes(title.lower(), words, requests, alone=quiet and calm)

    def send(self, *keys: events.Key | events.Paste) -> None:
        """Send keys, and note them."""
        for key in keys:
            self.keys.append(key)
            self.app.post_message(key)

    async def type(self, keys: int, pilot: Pilot[None], each: Callable[[], Any]) -> None:
        """Send bursts of 1 to 40 keys, with and without time between them."""
        chance = self.chance
        while len(self.keys) < keys:
            self.send(*(self._any() for _ in range(chance.randint(1, 40))))
            await pilot.pause(chance.choice((0.0, 0.0, 0.01, 0.1)))
            if chance.random() < 0.3:
                await self._agree(pilot)
            await until(pilot, lambda: not self.app._typed, 60.0)
            await each()

    def _any(self) -> events.Key | events.Paste:
        chance = self.chance
        if chance.random() < 0.02:
            return events.Paste(chance.choice(PASTES))
        if chance.random() < 0.3:
            return events.Key(chance.choice(NAMED), None)
        char = chance.choice(LETTERS)
        return events.Key(KEYS.get(char, char), char)

    async def _agree(self, pilot: Pilot[None]) -> None:
        """As a person who reads the question and agrees, or types a word with a `y` in it."""
        await until(pilot, lambda: not self.app._typed, 60.0)
        for key in ("escape", "escape", "escape", *self.chance.choice(MEANT)):
            self.send(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause(0.2)
        if self.chance.random() < 0.3:
            self.send(*(events.Key(char, char) for char in "hydy"))
            return
        if is_open(self.app):
            await until(pilot, lambda: is_quiet(self.app))
        self.send(events.Key("y", "y"))
        await pilot.pause()
        await until(pilot, lambda: not self.app._typed and self.app._lone_key is None)

    def unasked(self) -> list[SentChange]:
        """The changes that have no yes of their own to a dialog about them."""
        open_yes: list[tuple[Yes, int]] = []  # and how many requests it still stands for
        wrong: list[SentChange] = []
        for entry in self.log:
            if isinstance(entry, Yes):
                open_yes.append((entry, entry.requests))
                continue
            for n, (yes, left) in reversed(list(enumerate(open_yes))):
                fits = yes.requests > 1 or entry.words in yes.words
                if left and yes.alone and yes.title.startswith(entry.title) and fits:
                    open_yes[n] = (yes, left - 1)
                    break
            else:
                wrong.append(entry)
        return wrong


class Audit:
    """What the leader noted of requests that change something."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.lines: dict[tuple[float, int], str] = {}

    async def read(self) -> None:
        """Take what is new; a leader keeps the newest 2,000 events."""
        args = {"sort": "n", "desc": True, "limit": 500, "filter": " by "}
        with contextlib.suppress(ZcrawlError):  # between two leaders
            for row in (await self.cluster.ask("events", args))["rows"]:
                if row["name"] == AUDIT:
                    self.lines[row["at"], row["n"]] = row["text"].partition(": ")[2]

    def of_nobody(self, sent: Iterable[SentChange]) -> set[str]:
        """Lines about requests that were not sent."""
        return set(self.lines.values()) - {change.audit for change in sent}


async def submit(cluster: EmbeddedCluster, site: str, name: str) -> SentChange:
    """Start a slow job."""
    args = prepare([site], None, None, {"name": name, "politeness.rate": 1.0}).args("new", None)
    await cluster.ask("submit", args)
    return SentChange("submit", args)


@pytest.mark.timeout(3_600)
async def test_every_change_of_a_monkey_has_its_dialog_and_its_yes(tmp_path: Path) -> None:
    """Keys in bursts, pastes, and now and then a yes to what is on the screen."""
    async with DemoServer() as server, EmbeddedCluster(tmp_path, 1) as cluster:
        own = [await submit(cluster, server.url, f"shop{n}") for n in range(6)]
        audit = Audit(cluster)
        app = ConsoleApp({"test": in_folder(tmp_path)})

        async def each() -> None:
            await audit.read()
            if sum(not run.ended for run in cluster.snapshot().runs) < 3:
                with contextlib.suppress(ZcrawlError):
                    own.append(await submit(cluster, server.url, f"more{len(own)}"))

        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lambda: app.view.link.state is LinkState.LIVE)
            monkey = Monkey(app, random.Random(SEED))
            await monkey.type(TYPED, pilot, each)
            await audit.read()
            assert app.is_running and app._exception is None
        changes = [entry for entry in monkey.log if isinstance(entry, SentChange)]
        assert changes and audit.lines, "it changed nothing: the test shows nothing"
        assert monkey.unasked() == []
        assert audit.of_nobody([*own, *changes]) == set()
        drain = SentChange("drain", {"node": "w9"})
        monkey.log.insert(0, drain)
        assert monkey.unasked() == [drain], "the check can fail"
        assert audit.of_nobody([]), "so can this"
