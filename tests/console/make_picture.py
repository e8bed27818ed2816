"""Draw the picture of the README: `python -m tests.console.make_picture FILE.svg`.

Four jobs crawl demo sites on this machine for a minute, with rate limits as on the web; one
host is down. Takes as long as it crawls.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from console.app import ConsoleApp
from zcrawl.cli.specs import prepare
from zcrawl.demo.server import DemoServer
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.watching import in_folder

SECONDS = 75
SIZE = (120, 36)
WORKERS = 4
SITES = 12
DOWN = "http://127.0.0.1:9"  # nobody listens there
JOBS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("wiki", 1, {"politeness.rate": 30.0}),
    ("news", 4, {"politeness.rate": 5.0, "scope.max_pages": 2_500}),
    ("book-shop", 7, {"politeness.rate": 7.0}),
    ("old-links", 0, {"politeness.rate": 5.0}),
)


async def draw(seconds: float) -> str:
    """Crawl, watch, and return the picture."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sites = [await stack.enter_async_context(DemoServer()) for _ in range(SITES)]
        cluster = await stack.enter_async_context(EmbeddedCluster(folder, WORKERS))
        first = 0
        for name, count, settings in JOBS:
            seeds = [site.url for site in sites[first : first + count]]
            seeds = seeds or [f"{DOWN}/{n}" for n in range(200)]
            job = prepare(seeds, None, None, {"name": name, **settings})
            await cluster.ask("submit", job.args("new", None))
            first += count
        app = ConsoleApp({"demo": in_folder(folder)})
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause(seconds)
            app.draw()
            await pilot.pause()
            return app.export_screenshot(title="zcrawl console")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(asyncio.run(draw(SECONDS)), "utf-8")
