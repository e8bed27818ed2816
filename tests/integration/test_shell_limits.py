"""Commands that start too many processes or take too much memory: ended as a whole, by name.

Each test runs with every means that this machine has: with a cgroup for each command where one can
be made, and always with the watching process that counts. No test starts more than 300 processes
or takes more than 300 MB, also if nothing stops it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import children, until
from tests.integration.test_shell_tasks import SH, TASK, Place, failure, run, words_of
from zcrawl.errors import FetchError
from zcrawl.fetch.keyring import JobRights
from zcrawl.model.spec import ShellTask
from zcrawl.runtime.cgroups import CgroupPlace, cgroup_place
from zcrawl.submit.shell_rights import ShellRights
from zcrawl.worker.extensions import shell
from zcrawl.worker.results.attempt import Attempt

COUNTED = CgroupPlace("", "the test wants it so")
MEANS = [COUNTED, *([cgroup_place()] if cgroup_place(prepare=False).folder else [])]
# Doubles seven times: 255 processes in all, each with the marker.
BOMB = """
b() { test $1 -gt 0 || { read -r line < "$2"; exit; }; b $(($1 - 1)) $2 & b $(($1 - 1)) $2 & wait; }
b 7 "$1"
"""
EATER = """
import os, sys, time
for _ in range(5):
    if os.fork() == 0:
        break
eaten = bytearray(os.urandom(1000)) * 50_000
time.sleep(60)
"""


@pytest.fixture(params=MEANS, ids=["counted", "cgroup"][: len(MEANS)])
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Place]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(shell, "command_cgroups", lambda: request.param)
    place = Place(tmp_path)
    yield place
    for pid in place.processes():
        os.kill(pid, signal.SIGKILL)
    if request.param.folder:
        assert not list(Path(request.param.folder).glob("zcrawl-task-*"))


def bomb(place: Place, most: int = 0) -> ShellTask:
    """A command whose last processes wait for a pipe that nobody writes to."""
    pipe = place.folder / "pipe"
    os.mkfifo(pipe)
    args = ("-c", BOMB, place.marker, str(pipe))
    return ShellTask(SH, args, timeout=60.0, max_processes=most)


async def test_a_fork_bomb_is_ended_as_a_whole(place: Place) -> None:
    """By its name, long before its timeout, although each process starts two more. Nothing of it
    is left when the failure is there."""
    began = time.monotonic()
    error = await failure(place.tasks(bomb(place, 40)))
    assert error.code == "shell_too_many_processes"
    assert not place.processes()
    assert time.monotonic() - began < 30.0


async def test_the_worker_limits_jobs_that_do_not_say_how_many_they_need(place: Place) -> None:
    """`worker.shell.processes` is their limit."""
    rights = JobRights(owner=True, shell=ShellRights(any=True, processes=10))
    error = await failure(place.tasks(bomb(place), rights))
    assert error.code == "shell_too_many_processes"
    assert not place.processes()


async def test_a_command_within_its_limits_is_done(place: Place) -> None:
    """Twenty processes at a time, of twenty-five, for longer than a look at them takes."""
    text = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.5 & done; wait"
    task = ShellTask(SH, ("-c", text), max_processes=25)
    assert (await run(place.tasks(task)))["exit_code"] == 0


async def test_many_processes_may_not_take_too_much_memory_together(place: Place) -> None:
    """Six of 50 MB each: every one is within the limit, all of them are not."""
    args = ("-c", EATER, place.marker)
    task = ShellTask(sys.executable, args, timeout=60.0, memory=150_000_000)
    error = await failure(place.tasks(task))
    assert error.code == "shell_memory"
    assert not place.processes()


async def test_memory_that_processes_share_is_counted_once(place: Place) -> None:
    """Forked processes that only read what their parent has: the sum of their sizes is beyond the
    limit, and what they use together is not."""
    text = (
        "import os, time; big = os.urandom(60_000_000)\n"
        "for _ in range(4):\n    if os.fork() == 0: break\n"
        "time.sleep(1)"
    )
    task = ShellTask(sys.executable, ("-c", text, place.marker), memory=200_000_000)
    assert (await run(place.tasks(task)))["exit_code"] == 0


@pytest.mark.parametrize("who", ["guard", "watcher"])
async def test_nothing_of_many_processes_survives_a_killed_watching_process(
    place: Place, who: str
) -> None:
    """All 255 processes of a bomb within its limit."""
    tasks = place.tasks(bomb(place, 300))
    running = asyncio.ensure_future(tasks.do(Attempt(TASK), 60.0, time.time))
    await until(lambda: len(place.processes()) >= 100, 30.0)
    (guard,) = [pid for pid in children(os.getpid()) if "shell_child" in words_of(pid)]
    (watcher,) = children(guard)
    os.kill(guard if who == "guard" else watcher, signal.SIGKILL)
    with pytest.raises(FetchError) as died:
        await running
    assert died.value.code == "shell_died"
    await until(lambda: not place.processes(), 5.0)
    await tasks.close()
