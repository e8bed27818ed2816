"""`q` ends the console, whatever it waits for."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest

from console.app import ConsoleApp
from tests.console.samples import until
from zcrawl.config import Config
from zcrawl.roles import cluster
from zcrawl.roles.watching import of_cluster

ENDS_S = 8.0
HANGS_S = 15.0


def test_a_console_that_looks_for_masters_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is looked up, or a Consul that does not answer, can take long. The thread is not
    waited for: `asyncio.run` would wait for one of its own."""
    lookup_began, over = threading.Event(), threading.Event()

    def hang(config: Config) -> list[Any]:
        lookup_began.set()
        over.wait(HANGS_S)
        return []

    async def start_and_quit() -> None:
        config = msgspec.convert({"consul": {"address": "consul.test:8500"}}, Config)
        app = ConsoleApp({"test": of_cluster(config)}, ahead=False)
        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lookup_began.is_set)
            await pilot.press("q")
            await until(pilot, lambda: not app.is_running)

    monkeypatch.setattr(cluster, "_registered_masters", hang)
    started_at = time.monotonic()
    try:
        asyncio.run(start_and_quit())
        assert time.monotonic() - started_at < ENDS_S
    finally:
        over.set()
