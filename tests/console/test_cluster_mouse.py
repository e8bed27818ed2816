"""The console on a real embedded cluster, with the mouse only: every action."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from textual.widgets import Input, Select

from console.state import ConsolePage, View
from console.view import current_row
from tests.console.samples import is_open, text_of, until
from tests.console.test_cluster import PATIENCE_S, Scene, scene

WIDTH = 220  # the footer has room for all keys


class Mouse:
    """Clicks."""

    def __init__(self, console: Scene) -> None:
        self.console, self.app, self.pilot = console, console.app, console.pilot

    async def tab(self, page: ConsolePage) -> None:
        """Go to a page."""
        await self.pilot.click(f"#tab-{page}")
        await self.console.until(lambda view: view.page is page and self.app.screen is self._page)

    @property
    def _page(self) -> Any:
        return self.app.page_screen

    async def word(self, word: str, first: int = 0, last: int | None = None) -> None:
        """Click a word on the screen, on the lines from `first` to before `last`."""
        await until(self.pilot, lambda: self._place(word, first, last) is not None)
        place = self._place(word, first, last)
        assert place is not None
        await self.pilot.click(offset=place)

    def _place(self, word: str, first: int, last: int | None) -> tuple[int, int] | None:
        lines = text_of(self.app).splitlines()
        numbers = range(len(lines))[first:last]
        return next(((lines[n].index(word), n) for n in numbers if word in lines[n]), None)

    async def row(self, word: str, **fields: Any) -> None:
        """Put the cursor on the row that has a word."""

        def is_here(view: View) -> bool:
            return fields.items() <= (current_row(view) or {}).items()

        async with asyncio.timeout(PATIENCE_S):
            while not is_here(self.app.view):  # a row may move while it is clicked
                await self.word(word, 3)
                await self.pilot.pause()

    async def key(self, label: str) -> str:
        """Click a key in the footer. Return what the dialog says."""
        await self.word(label, -1)
        await until(self.pilot, lambda: is_open(self.app))
        return text_of(self.app)

    async def button(self, id: str) -> None:
        """Press a button of the dialog."""
        await self.pilot.click(f"#{id}")
        await self.pilot.pause()


async def test_jobs_are_changed_with_the_mouse(tmp_path: Path) -> None:
    """Tab, row, footer, buttons: pause, resume, rate limit, cancel, retry, delete, new job."""
    async with scene(tmp_path, width=WIDTH) as console:
        mouse = Mouse(console)
        await mouse.tab(ConsolePage.JOBS)
        await mouse.row("shop", name="shop")
        assert "job shop (1), run 1, running" in await mouse.key("h pause")
        await mouse.button("no")
        await console.until(lambda view: view.message.text == "nothing was changed")
        assert console.states() == {"shop": "running"}
        await mouse.key("h pause")
        await mouse.button("yes")
        assert "run 1: paused" in await console.acted("zcrawl pause 1")
        await console.until(lambda view: (current_row(view) or {}).get("state") == "paused")
        await mouse.key("g resume")
        await mouse.button("yes")
        assert "run 1: running" in await console.acted("zcrawl resume 1")

        await mouse.key("t rate limit")
        console.app.screen.query_one("#field-rate", Input).value = "7"
        await mouse.button("send")
        await console.acted("zcrawl tune 1 --run 1 --rate 7")
        await console.until(lambda view: len(console.app.screen_stack) == 1)

        await mouse.key("x cancel")
        await mouse.button("yes")
        assert "run 1: cancelled" in await console.acted("zcrawl cancel 1")
        await mouse.key("r retry")
        await mouse.button("yes")
        assert "[run_ended]" in await console.acted("zcrawl retry 1")
        assert "its only run: run 1" in await mouse.key("d delete")
        await mouse.button("yes")
        await console.acted("zcrawl delete 1")

        await mouse.key("n new job")
        form = console.app.screen
        form.query_one("#field-sources", Input).value = console.site
        form.query_one("#field-name", Input).value = "second"
        await mouse.button("cancel")
        await console.until(lambda view: len(console.app.screen_stack) == 1)
        await mouse.key("n new job")
        form = console.app.screen
        form.query_one("#field-sources", Input).value = console.site
        form.query_one("#field-name", Input).value = "third"
        await mouse.button("send")
        await console.acted("zcrawl submit")
        await console.until(lambda view: "third" in console.states())
        assert "second" not in console.states()


async def test_a_header_sorts_and_marked_rows_are_changed_with_the_mouse(tmp_path: Path) -> None:
    """A click on a title sorts, a second one reverses; space is the one key that marks."""
    async with scene(tmp_path, width=WIDTH) as console:
        mouse = Mouse(console)
        await console.fail("zebra", console.site)
        await mouse.tab(ConsolePage.JOBS)
        await mouse.word("Name", 0, 5)
        await console.until(lambda view: (view.table.sort, view.table.desc) == ("name", False))
        await mouse.word("Name", 0, 5)
        await console.until(lambda view: view.table.desc)
        for name in ("shop", "zebra"):
            await mouse.row(name, name=name)
            await mouse.word("mark", -1)
        await console.until(lambda view: len(view.table.marks) == 2)
        assert "2 requests" in await mouse.key("x cancel")
        await mouse.button("yes")
        await console.until(lambda view: set(console.states().values()) == {"cancelled"})


async def test_workers_hosts_and_the_leader_are_changed_with_the_mouse(tmp_path: Path) -> None:
    """Drain, undrain, move, force failover."""
    async with scene(tmp_path, workers=2, width=WIDTH) as console:
        mouse = Mouse(console)
        await mouse.tab(ConsolePage.HOSTS)
        view = await console.until(lambda view: bool((current_row(view) or {}).get("owner")))
        owner = (current_row(view) or {})["owner"]
        other = "w2" if owner == "w1" else "w1"
        await mouse.key("m move")
        console.app.screen.query_one("#field-worker", Select).value = other
        await mouse.button("send")
        await console.acted(f"zcrawl reassign {console.site.rstrip('/')} {other}")

        await mouse.tab(ConsolePage.NODES)
        await mouse.row(f"{owner} ", id=owner)
        await mouse.key("d drain")
        await mouse.button("yes")
        await console.acted(f"zcrawl drain {owner}")
        await console.until(lambda view: (current_row(view) or {}).get("state") == "drained")
        await mouse.key("u undrain")
        await mouse.button("yes")
        await console.acted(f"zcrawl undrain {owner}")
        await console.until(lambda view: (current_row(view) or {}).get("state") in ("idle", "busy"))

        assert "takes over" in await mouse.key("l failover")
        await mouse.button("yes")
        await console.acted("zcrawl step-down")
        await console.until(
            lambda view: view.live.snapshot is not None and view.live.snapshot.epoch == 2
        )


async def test_failures_are_retried_with_the_mouse(tmp_path: Path) -> None:
    """A group, and all that match."""
    async with scene(tmp_path, width=WIDTH) as console:
        mouse = Mouse(console)
        for n in (1, 2):
            await console.fail(f"down{n}", f"http://127.0.0.1:{n}/gone")
        await mouse.tab(ConsolePage.ERRORS)
        await console.until(lambda view: len(view.live.rows("errors:")) == 2)
        await mouse.row("127.0.0.1:1", host="http://127.0.0.1:1")
        assert "1 failed: connect at http://127.0.0.1:1" in await mouse.key("r retry")
        await mouse.button("yes")
        assert "1 to retry" in await console.acted("zcrawl retry 2 --reason connect")
        await console.until(lambda view: len(view.live.rows("errors:")) == 2)
        await mouse.key("a retry all")
        await console.until(lambda view: "2 requests" in text_of(console.app))
        await mouse.button("yes")
        assert "1 to retry" in await console.acted("zcrawl retry 3 --reason connect")
