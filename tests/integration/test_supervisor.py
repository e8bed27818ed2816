"""The supervisor of worker processes: what it says of the dead, also when starting one fails."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration.crawling import until
from zcrawl.runtime import supervisor as supervisor_module
from zcrawl.runtime.lives import Lives
from zcrawl.runtime.supervisor import Process, Supervisor

# It writes down what it was told, and dies.
DIES = """
import json, os, sys
told = json.loads(sys.argv[1])
with open(told["book"], "a") as book:
    book.write(json.dumps(told) + chr(10))
os._exit(9)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "dies_soon.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(supervisor_module, "BACKOFF_MOST_S", 0.2)
    return "dies_soon"


def lives_in(book: Path) -> list[dict[str, Any]]:
    """The start parameters of the processes, the first process first."""
    lines = book.read_text().splitlines() if book.exists() else []
    return [json.loads(line) for line in lines]


async def test_a_process_that_could_not_be_started_is_nobody(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two failed starts between two processes: the second one replaces the first, which the leader
    knows, and not an incarnation that never lived. So does the next life of the node."""
    started = 0
    popen = subprocess.Popen

    def sometimes(*args: Any, **options: Any) -> Any:
        nonlocal started
        started += 1
        if started in (2, 3, 5, 6, 7):
            raise OSError(11, "no process is left")
        return popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", sometimes)
    monkeypatch.setattr(supervisor_module, "BACKOFF_LEAST_S", 0.01)
    notes: list[str] = []
    book = tmp_path / "book"
    with Lives(tmp_path / "lives") as lives:
        supervisor = Supervisor(
            module,
            ["w-1"],
            {"book": str(book)},
            log=lambda name, detail: notes.append(name),
            lives=lives,
        )
        async with supervisor:
            await until(lambda: len(lives_in(book)) >= 2)
            first, second = lives_in(book)[:2]
            assert second["replaces"] == first["incarnation"]
            assert "ended with exit code 9" in second["after"]
            await until(lambda: notes.count("worker_not_started") >= 3)
            supervisor.ask_to_leave()
    with Lives(tmp_path / "lives") as after:
        assert after.before["w-1"] == second["incarnation"]


async def test_the_pid_of_a_reaped_process_is_not_waited_for() -> None:
    """It may be another process's by now: here it is our own, which does not end."""

    class Reaped:
        pid = os.getpid()

        def poll(self) -> int:
            return 3

        def wait(self) -> int:
            return 3

    async with asyncio.timeout(5):
        assert await supervisor_module._ended(cast(Process, Reaped())) == 3
