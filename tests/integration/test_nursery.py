"""Workers that are forked before they are needed: what they hold, whom they obey, how they end.

Each test runs a small program of its own, because a process with threads, such as a test runner,
is never forked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.integration.crawling import alive, children, start, wait_until

HEAD = """
    import os, sys, threading, time
    from zcrawl.runtime.nursery import Nursery

    def work(told):
        sys.stderr.write("told " + told.decode())
        sys.stderr.flush()
        time.sleep(60)

    def say(*words):
        print(*words, flush=True)
"""


def program(text: str, *args: object) -> subprocess.Popen[str]:
    source = textwrap.dedent(HEAD) + textwrap.dedent(text)
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_waiting_processes_end_with_a_parent_that_is_killed() -> None:
    """After kill -9 before any order was sent, no child is left two seconds later."""
    process = program("with Nursery(work, 3): say('here'); time.sleep(60)")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        waiting = children(process.pid)
        assert len(waiting) == 3
        process.kill()
        wait_until(lambda: not any(alive(pid) for pid in waiting), 2)
    finally:
        end(process)


def test_processes_that_nobody_needed_end_with_the_block() -> None:
    """They see the end of their socket; the parent leaves no zombie either."""
    process = program("with Nursery(work, 2): pass\nsay('left'); time.sleep(60)")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "left\n"
        assert children(process.pid) == []
    finally:
        end(process)


def test_a_told_process_holds_what_it_was_given_and_nothing_else(tmp_path: Path) -> None:
    """The lock that came with its orders, its error file, its socket; no pipe or terminal of its
    parent's, no brother's socket. Its orders name the socket as the parent's pipe."""
    text = """
        secret = open(sys.argv[1] + '/secret', 'w')
        with Nursery(work, 2) as nursery:
            one = nursery.take()
            errors = os.open(sys.argv[1] + '/errors', os.O_CREAT | os.O_WRONLY)
            lock = os.open(sys.argv[1] + '/lock', os.O_CREAT | os.O_WRONLY)
            one.tell({'id': 'w1'}, errors, [lock])
            say(one.pid)
            time.sleep(60)
    """
    process = program(text, tmp_path)
    try:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        errors = tmp_path / "errors"
        wait_until(lambda: errors.exists() and errors.read_text().startswith("told"), 20)
        held = [(fd.name, str(fd.readlink())) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        places = sorted(place for _, place in held)
        (pipe,) = [fd for fd, place in held if place.startswith("socket:")]
        assert [place for place in places if not place.startswith("socket:")] == [
            "/dev/null",
            "/dev/null",
            str(errors),
            str(tmp_path / "lock"),
        ]
        assert errors.read_text() == f'told {{"id":"w1","parent_pipe":{pipe}}}'
    finally:
        end(process)


def test_a_parent_without_stdin_and_stdout_is_forked_as_well(tmp_path: Path) -> None:
    """Then the socket itself may be descriptor 0: it must survive that the standard files are
    pointed elsewhere."""
    text = """
        os.close(0), os.close(1)
        with Nursery(work, 1) as nursery:
            errors = os.open(sys.argv[1] + '/errors', os.O_CREAT | os.O_WRONLY)
            nursery.take().tell({'id': 'w1'}, errors, [])
            time.sleep(60)
    """
    process = program(text, tmp_path)
    try:
        errors = tmp_path / "errors"
        wait_until(lambda: errors.exists() and errors.read_text().startswith("told"), 20)
    finally:
        end(process)


def test_a_process_with_threads_is_not_forked() -> None:
    """A lock that another thread holds would stay locked in the fork for ever."""
    text = """
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        with Nursery(work, 2) as nursery:
            say(nursery.take())
    """
    process = program(text)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
    finally:
        end(process)


def test_the_heir_of_a_forked_worker_is_a_new_interpreter(tmp_path: Path) -> None:
    """A crawl's first worker is a fork of the command, a direct child of it; when it is killed,
    another process takes its place, whatever became of the nursery."""
    command = ("crawl", "http://127.0.0.1:9/", "--workers", 1, "--data", tmp_path / "d")
    process = start(*command, cwd=tmp_path)
    try:
        wait_until(lambda: bool(children(process.pid)), 20)
        wait_until(lambda: (tmp_path / "d" / "mesh.json").exists(), 20)
        (first,) = children(process.pid)
        assert b"worker_main" not in Path(f"/proc/{first}/cmdline").read_bytes()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: any(pid != first for pid in children(process.pid)), 20)
        (second,) = [pid for pid in children(process.pid) if pid != first]
        wait_until(lambda: b"worker_main" in Path(f"/proc/{second}/cmdline").read_bytes(), 20)
    finally:
        end(process)
