"""What the start of a crawl costs: the modules that it loads."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

from tests.integration.crawling import PATIENCE_S, ZCRAWL
from tests.web import MisbehavingWeb

# Loading a module of zcrawl costs 0.1 to 0.3 ms. Raise this only for what every crawl needs.
MOST_MODULES = 331
# Other forms of the same program, and libraries of which a small part would be used.
NOT_NEEDED = (
    "consul|csv|dataclasses|httpx|playwright|platformdirs|pyarrow|rich|"
    "statistics|textual|warcio|zcrawl.config_changes|zcrawl.master.driver.archive|"
    "zcrawl.outputs.files.exports|zcrawl.outputs.warc|zcrawl.roles.live_config"
)


async def test_a_crawl_loads_only_what_every_crawl_needs(tmp_path: Path) -> None:
    """A module that is used by few jobs is loaded when such a job needs it."""
    python, *rest = ZCRAWL
    arguments = ["crawl", "--max-pages", "1", "--workers", "1", "--allow-private", "--json"]
    async with MisbehavingWeb() as web:
        command = [python, "-X", "importtime", *rest, *arguments, web.url("/plain")]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await process.communicate()
    modules = re.findall(r"^import time: .*\| +(\S+)$", errors.decode(), re.MULTILINE)
    ours = {name for name in modules if name.startswith("zcrawl")}
    assert "zcrawl.master.leader" in ours, errors.decode()
    assert {name for name in modules if re.fullmatch(NOT_NEEDED, name)} == set()
    assert len(ours) <= MOST_MODULES
