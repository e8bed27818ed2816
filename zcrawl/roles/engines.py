"""Makes fetch engines by their names in job files, each with its imports when it is asked for.

Called by workers and by `zcrawl test`: most need one engine, and the others are slow to load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from zcrawl.errors import JobError
from zcrawl.runtime import clock_os

if TYPE_CHECKING:
    from zcrawl.fetch.ports import Engine


def make_engine(
    name: str,
    plain: Callable[[], Engine],
    note: Callable[[str, str], None] = lambda name, detail: None,
) -> Engine:
    """`plain` gives the engine for what a browser need not render, `note` writes logs. JobError
    where the engine is not installed: the run's pages fail with that code. PluginError: no plugin
    of that name."""
    if name == "httpx":
        from zcrawl.fetch.fetch_httpx import HttpxEngine

        return HttpxEngine()
    if name == "browser":
        try:
            from zcrawl.fetch.fetch_browser import BrowserEngine
        except ImportError as error:
            raise JobError(
                f"no browser engine here ({error}); install zcrawl[browser] and Chromium",
                code="no_browser",
            ) from error
        return BrowserEngine(plain(), clock_os.now, clock_os.utc, note=note)
    if name != "http":
        from zcrawl.plugins import make_fetcher

        return cast("Engine", make_fetcher(name))
    from zcrawl.fetch.fetch_aiohttp import AiohttpWire

    return AiohttpWire()
