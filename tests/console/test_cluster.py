"""The console on a real embedded cluster: what it shows, and every action."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Select

from console.app import ConsoleApp
from console.state import ConsolePage, LinkState, View
from console.view import current_row
from tests.console.samples import answer, is_open, text_of
from zcrawl.cli.specs import prepare
from zcrawl.demo.server import DemoServer
from zcrawl.errors import RefusedError
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.watching import in_folder

PATIENCE_S = 30.0
GONE = "http://127.0.0.1:9/gone"  # nobody listens there


class Scene(NamedTuple):
    """A cluster that crawls a site slowly, and a console that watches it."""

    app: ConsoleApp
    pilot: Pilot[None]
    cluster: EmbeddedCluster
    site: str

    async def until(self, true: Callable[[View], bool]) -> View:
        """The first view of which something is true."""
        return await until(self.pilot, self.app, true)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def opens(self, key: str, *answers: str) -> str:
        """Press a key that opens a dialog; then answer. Returns what the dialog says."""
        await self.pilot.press(key)
        async with asyncio.timeout(PATIENCE_S):
            while not is_open(self.app):
                await self.pilot.pause(0.02)
        said = text_of(self.app)
        await answer(self.pilot, *answers)
        return said

    async def row(self, page: str, **fields: Any) -> None:
        """Go to a page, and to the row that has these fields."""
        await self.press(page)

        def is_here(view: View) -> bool:
            row = current_row(view)
            return row is not None and fields.items() <= row.items()

        async with asyncio.timeout(PATIENCE_S):
            while not is_here(self.app.view):
                await self.press("home")
                for _ in range(5):
                    if is_here(self.app.view):
                        return
                    await self.press("down")
                await self.pilot.pause(0.1)

    async def acted(self, command: str) -> str:
        """What the console says that this command line did."""

        def says(view: View) -> bool:
            return any(command in happening.text for happening in view.live.happenings)

        view = await self.until(says)
        return next(
            happening.text for happening in view.live.happenings if command in happening.text
        )

    async def fail(self, name: str, url: str) -> None:
        """Start a job whose only URL fails."""
        spec = prepare([url], None, None, {"name": name, "fetch.retries": 0})
        await self.cluster.ask("submit", spec.args("new", None))

    def states(self) -> dict[str, str]:
        return {run.name: run.state for run in self.cluster.snapshot().runs}


async def until(pilot: Pilot[None], app: ConsoleApp, true: Callable[[View], bool]) -> View:
    async with asyncio.timeout(PATIENCE_S):
        while not true(app.view):
            await pilot.pause(0.05)
    return app.view


def screen(app: ConsoleApp) -> str:
    """What is painted on the page."""
    return text_of(app, page=True)


@contextlib.asynccontextmanager
async def scene(
    data: Path, workers: int = 1, width: int = 160, **options: Any
) -> AsyncIterator[Scene]:
    async with DemoServer() as server, EmbeddedCluster(data, workers) as cluster:
        slow = {"name": "shop", "politeness.rate": 2.0}
        await cluster.ask("submit", prepare([server.url], None, None, slow).args("new", None))
        app = ConsoleApp({"test": in_folder(data)}, **options)
        async with app.run_test(size=(width, 40)) as pilot:
            console = Scene(app, pilot, cluster, server.url)
            await console.until(lambda view: view.link.state is LinkState.LIVE)
            yield console


async def test_the_overview_shows_a_live_crawl_and_survives_the_masters_restart(
    tmp_path: Path,
) -> None:
    """Nodes, queue, throughput; then the cluster goes away and comes back, and so does the line."""
    app = ConsoleApp({"test": in_folder(tmp_path)})
    async with DemoServer() as server, app.run_test(size=(100, 30)) as pilot:
        await until(pilot, app, lambda view: "no cluster runs" in view.link.text)
        submission = prepare([server.url], None, None, {"name": "shop", "politeness.rate": 20.0})
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            await cluster.ask("submit", submission.args("new", None))
            view = await until(pilot, app, lambda view: view.live.rates.now.pages_s > 0)
            assert view.link.state is LinkState.LIVE
            await until(pilot, app, lambda view: "shop" in screen(app) and "w1" in screen(app))
        # What is heard is painted a moment later than it is known.
        view = await until(pilot, app, lambda view: "no cluster runs" in screen(app))
        assert view.link.state is LinkState.LOST
        async with EmbeddedCluster(tmp_path, 0):
            view = await until(pilot, app, lambda view: view.link.state is LinkState.LIVE)
            assert view.live.snapshot is not None and view.live.snapshot.epoch == 2
            assert "new_leader" in [happening.name for happening in view.live.happenings]


async def test_jobs_are_paused_resumed_tuned_cancelled_retried_and_deleted(tmp_path: Path) -> None:
    """Each by its key, with the command line that does the same and its result."""
    async with scene(tmp_path) as console:
        await console.row("3", name="shop")
        assert "job shop (1), run 1, running" in await console.opens("h", "y")
        assert "run 1: paused" in await console.acted("zcrawl pause 1")
        assert console.states() == {"shop": "paused"}
        await console.until(lambda view: (current_row(view) or {}).get("state") == "paused")
        assert "job shop (1), run 1, paused" in await console.opens("g", "enter")
        assert "run 1: running" in await console.acted("zcrawl resume 1")

        await console.opens("t")
        console.app.screen.query_one("#field-rate", Input).value = "50"
        console.app.screen.query_one("#field-concurrency", Input).value = "8"
        await console.press("enter")
        await console.acted("zcrawl tune 1 --run 1 --rate 50 --concurrency 8")
        (row,) = console.cluster.snapshot().runs
        assert (row.rate, row.concurrency) == (50.0, 8)
        await console.until(lambda view: view.live.rates.now.pages_s > 10)

        said = await console.opens("x")
        assert console.states() == {"shop": "running"}, "it asks first"
        assert "queued URLs are dropped" in said and "zcrawl cancel 1 --run 1" in said
        await console.press("enter")
        await console.until(lambda view: view.message.text == "nothing was changed")
        await console.opens("x", "y")
        assert "run 1: cancelled" in await console.acted("zcrawl cancel 1")

        await console.opens("r", "y")
        assert "[run_ended]" in await console.acted("zcrawl retry 1")
        assert "its data is deleted" in await console.opens("d", "y")
        await console.acted("zcrawl delete 1")
        await console.until(
            lambda view: "deleted" in screen(console.app) or "no jobs" in screen(console.app)
        )


async def test_marked_jobs_are_acted_on_together(tmp_path: Path) -> None:
    """k9s#2533: marks, one question, all of them."""
    async with scene(tmp_path) as console:
        for name in ("one", "two"):
            spec = prepare([console.site], None, None, {"name": name, "politeness.rate": 1.0})
            await console.cluster.ask("submit", spec.args("new", None))
        await console.press("3")
        await console.until(
            lambda view: len(view.live.snapshot.runs if view.live.snapshot else ()) == 3
        )
        await console.press("slash", "o", "enter", "space", "space")
        await console.opens("x", "y")
        await console.until(
            lambda view: sorted(console.states().values()) == ["cancelled", "cancelled", "running"]
        )


async def test_an_action_is_about_the_row_that_was_chosen(tmp_path: Path) -> None:
    """The view is paused, the cluster goes on: the row on the screen is the one that is meant."""
    async with scene(tmp_path) as console:
        await console.row("3", name="shop")
        await console.press("p")
        for n in range(3):
            spec = prepare([console.site], None, None, {"name": f"new{n}", "politeness.rate": 1.0})
            await console.cluster.ask("submit", spec.args("new", None))
        await console.until(
            lambda view: len(view.live.snapshot.runs if view.live.snapshot else ()) == 4
        )
        assert "new0" not in screen(console.app)
        await console.opens("h", "y")
        await console.acted("zcrawl pause 1")
        assert console.states() == {"shop": "paused", **{f"new{n}": "running" for n in range(3)}}


async def test_a_job_is_submitted_with_the_form(tmp_path: Path) -> None:
    """It is checked while one types; what is wrong is not sent."""
    async with scene(tmp_path) as console:
        await console.opens("n")
        form = console.app.screen
        form.query_one("#field-sources", Input).value = "nonsense://"
        await console.press("ctrl+s")
        assert console.app.screen is form, "a mistake keeps the form open"
        form.query_one("#field-sources", Input).value = console.site
        form.query_one("#field-name", Input).value = "second"
        form.query_one("#field-pages", Input).value = "3"
        await console.press("ctrl+s")
        said = await console.acted("zcrawl submit")
        assert "--name second --max-pages 3" in said and "job 2" in said
        assert "second" in console.states()


async def test_failures_are_seen_and_retried(tmp_path: Path) -> None:
    """By group; the URLs behind a group can be looked at."""
    async with scene(tmp_path) as console:
        await console.fail("down", GONE)
        await console.row("6", reason="connect")
        await console.press("enter")
        await console.until(
            lambda view: view.page is ConsolePage.FAILED and GONE in screen(console.app)
        )
        await console.press("escape")
        assert "1 failed: connect at" in await console.opens("r", "y")
        said = await console.acted("zcrawl retry 2 --reason connect")
        assert "1 to retry" in said


async def test_all_failures_that_match_the_filter_are_retried(tmp_path: Path) -> None:
    """With one question; those that do not match stay failed."""
    async with scene(tmp_path) as console:
        for n in (1, 2, 3):
            await console.fail(f"down{n}", f"http://127.0.0.1:{n}/gone")
        await console.press("6")
        await console.until(lambda view: len(view.live.rows("errors:")) == 3)
        await console.press("slash", *"127.0.0.1:1", "enter")
        await console.until(lambda view: len(view.live.rows("errors:")) == 1)
        await console.press("escape", "slash", "exclamation_mark", *"127.0.0.1:1", "enter")
        await console.until(lambda view: len(view.live.rows("errors:")) == 2)
        await console.opens("a")
        await console.until(lambda view: "2 requests" in text_of(console.app))
        await answer(console.pilot, "y")
        for job in ("3", "4"):
            assert "1 to retry" in await console.acted(f"zcrawl retry {job} --reason connect")
        texts = [happening.text for happening in console.app.view.live.happenings]
        assert not any("zcrawl retry 2" in text for text in texts)


async def test_a_worker_is_drained_and_taken_back_and_a_host_is_moved(tmp_path: Path) -> None:
    """The host goes to the worker that was named; then its old owner leaves in peace."""
    async with scene(tmp_path, workers=2) as console:
        await console.press("5")
        view = await console.until(lambda view: bool((current_row(view) or {}).get("owner")))
        owner = (current_row(view) or {})["owner"]
        other = "w2" if owner == "w1" else "w1"
        await console.opens("m")
        console.app.screen.query_one("#field-worker", Select).value = other
        await console.press("ctrl+s")
        await console.acted(f"zcrawl reassign {console.site.rstrip('/')} {other}")
        await console.until(lambda view: (current_row(view) or {}).get("owner") == other)
        await console.row("2", id=owner)
        await console.opens("d", "y")
        await console.acted(f"zcrawl drain {owner}")
        workers = {worker.id: worker.state for worker in console.cluster.snapshot().workers}
        assert workers[owner] in ("draining", "drained", "offline", "joining")

        def state(view: View) -> str:
            snapshot = view.live.snapshot
            return next(w.state for w in snapshot.workers if w.id == owner) if snapshot else ""

        await console.until(lambda view: state(view) == "drained")
        await console.row("2", id=owner)
        assert f"worker {owner} (drained)" in await console.opens("u", "y")
        await console.acted(f"zcrawl undrain {owner}")
        await console.until(lambda view: state(view) in ("idle", "busy"))


async def test_the_leader_steps_down_and_the_console_goes_on(tmp_path: Path) -> None:
    """In an embedded cluster it leads again, in the next epoch."""
    async with scene(tmp_path) as console:
        await console.press("2")
        assert "nothing is fetched until another master leads" in await console.opens("l", "y")
        await console.acted("zcrawl step-down")
        await console.until(
            lambda view: view.live.snapshot is not None and view.live.snapshot.epoch == 2
        )
        await console.until(lambda view: view.link.state is LinkState.LIVE)
        assert "new_leader" in "".join(
            happening.name for happening in console.app.view.live.happenings
        )


async def test_the_log_has_what_workers_and_the_master_say(tmp_path: Path) -> None:
    """A worker's line is on the log page and on its own; the master's are beside it."""
    async with scene(tmp_path, workers=2) as console:
        await console.press("8")
        await console.until(
            lambda view: (
                {"w1", "w2"} <= {line.source for line in view.live.happenings}
                or all(f"{node} " in screen(console.app) for node in ("w1 ", "w2 "))
            )
        )
        await console.press("slash", *"node:w2", "enter")
        await console.until(lambda view: "follows" in screen(console.app))
        rows = [line for line in screen(console.app).splitlines() if " follows " in line]
        assert rows and all(" w2 " in line and "in epoch 1" in line for line in rows)
        await console.press("slash", *"node:w1", "enter")
        await console.until(lambda view: " w2 " not in screen(console.app))
        await console.press("escape")
        await console.until(lambda view: "worker_joined" in screen(console.app))
        await console.row("2", id="w1")
        await console.press("enter")
        await console.until(lambda view: "follows" in screen(console.app))
        await console.press("escape", "home")
        await console.row("2", kind="master")
        await console.press("enter")
        await console.until(
            lambda view: view.page is ConsolePage.NODE and "joined with" in screen(console.app)
        )


async def test_a_read_only_console_changes_nothing(tmp_path: Path) -> None:
    """Neither by key nor by command nor by form."""
    async with scene(tmp_path, readonly=True) as console:
        await console.row("3", name="shop")
        await console.press("h", "x", "y", "d", "y", "n", "colon")
        for key in "pause 1":
            await console.press("space" if key == " " else key)
        await console.press("enter")
        await console.until(lambda view: "read-only" in view.message.text)
        assert console.states() == {"shop": "running"}
        with pytest.raises(RefusedError, match="read-only"):
            await console.app._feed.ask("act", {"ref": "1", "action": "cancel"})
        assert console.states() == {"shop": "running"}


async def test_commands_filters_and_help_can_be_typed(tmp_path: Path) -> None:
    """The command line completes; the filter works while one types."""
    async with scene(tmp_path) as console:
        await console.press("colon", *"jo", "tab", "enter")
        await console.until(
            lambda view: view.page is ConsolePage.JOBS or "needs" in view.message.text
        )
        await console.press("colon", *"nodes", "enter")
        await console.until(lambda view: view.page is ConsolePage.NODES)
        await console.press("slash", *"nothing", "enter")
        assert "nothing matches" in screen(console.app)
        await console.press("escape", "question_mark")
        assert console.app.screen.query("HelpPanel")
        await console.press("escape", "ctrl+p")
        assert len(console.app.screen_stack) == 2
        await console.press("escape")
        for page in ("items", "log", "charts", "queues", "job shop"):
            await console.press("colon", *("space" if c == " " else c for c in page), "enter")
            await console.pilot.pause(1.2)
            assert "asking the leader" not in screen(console.app), screen(console.app)
        assert "robots=True" in screen(console.app)


async def test_queues_are_seen_by_tag_and_by_host_and_a_tags_jobs_are_held(tmp_path: Path) -> None:
    """From a tag to its jobs, from there to the action; the form can give tags too."""
    async with scene(tmp_path) as console:
        for name, tags in (("a", ["eu", "daily"]), ("b", ["eu"])):
            changes = {"name": name, "politeness.rate": 1.0, "tags": tags}
            made = prepare([console.site], None, None, changes)
            await console.cluster.ask("submit", made.args("new", None))
        await console.press("4", "b")

        def waits(view: View) -> bool:
            rows = view.live.rows("queues by tag:")
            return {row["tag"]: row["jobs"] for row in rows} == {"eu": 2, "daily": 1, "(no tag)": 1}

        await console.until(waits)
        assert "(no tag)" in screen(console.app) and "› by tag" in screen(console.app)
        await console.press("b")
        await console.until(lambda view: console.site.rstrip("/") in screen(console.app))
        (host,) = console.app.view.live.rows("queues by host:")
        assert (
            host["jobs"] == 3
            and host["queued"] + host["fetching"] + host["waiting"] + host["uncommitted"] > 0
        )

        await console.press("colon", *"queues", "space", *"eu", "enter")
        await console.until(lambda view: len(view.live.rows("queues:eu")) == 2)
        await console.press("ctrl+a")
        await console.opens("h", "y")
        await console.acted("zcrawl pause 2")
        await console.acted("zcrawl pause 3")
        assert console.states() == {"shop": "running", "a": "paused", "b": "paused"}

        await console.press("3", "slash", *"daily", "enter")
        await console.until(lambda view: (current_row(view) or {}).get("name") == "a")

        await console.opens("n")
        form = console.app.screen
        form.query_one("#field-sources", Input).value = console.site
        form.query_one("#field-name", Input).value = "c"
        form.query_one("#field-tags", Input).value = "Bad"
        await console.press("ctrl+s")
        assert console.app.screen is form, "a bad tag is told, not sent"
        form.query_one("#field-tags", Input).value = "eu late"
        await console.press("ctrl+s")
        assert "--tag eu --tag late" in await console.acted("zcrawl submit")
        jobs = (await console.cluster.ask("jobs", {"tag": "late"}))["jobs"]
        assert [(job["name"], job["tags"]) for job in jobs] == [("c", ["eu", "late"])]
