"""The console on a real embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import ConsoleApp
from console.lines import as_text
from console.pictures.screen import whole
from console.state import LinkState, View
from zcrawl.cli.specs import prepare
from zcrawl.demo.demo_server_loop import DemoServer
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.watching import in_folder

PATIENCE_S = 30.0


@pytest.fixture
async def data(tmp_path: Path) -> AsyncIterator[Path]:
    yield tmp_path


async def until(pilot: Pilot[None], app: ConsoleApp, true: Callable[[View], bool]) -> View:
    """The first view of which something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not true(app.view):
            await pilot.pause(0.05)
    return app.view


def screen(app: ConsoleApp) -> str:
    return as_text(whole(app.view, app.size.width, app.size.height))


async def test_the_overview_shows_a_live_crawl_and_survives_the_masters_restart(
    data: Path,
) -> None:
    """Nodes, queue, throughput; then the cluster goes away and comes back, and so does the line."""
    app = ConsoleApp({"test": in_folder(data)})
    async with DemoServer() as server, app.run_test(size=(100, 30)) as pilot:
        await until(pilot, app, lambda view: "no cluster runs" in view.link.text)
        submission = prepare([server.url], None, None, {"name": "shop", "politeness.rate": 20.0})
        async with EmbeddedCluster(data, 1) as cluster:
            await cluster.ask("submit", submission.args("new", None))
            view = await until(pilot, app, lambda view: view.live.rates.now.pages_s > 0)
            assert view.link.state is LinkState.LIVE
            assert "shop" in screen(app) and "w1" in screen(app)
        await until(pilot, app, lambda view: view.link.state is LinkState.LOST)
        assert "no cluster runs" in screen(app)
        async with EmbeddedCluster(data, 0):
            view = await until(pilot, app, lambda view: view.link.state is LinkState.LIVE)
            assert view.live.snapshot is not None and view.live.snapshot.epoch == 2
            assert "new_leader" in screen(app)
