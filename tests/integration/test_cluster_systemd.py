"""Masters and workers under a service manager: what they tell it, what its signals do, and the unit
files that come with zcrawl.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Node, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.model.spec import Politeness

STEADY = Politeness(rate=120.0, concurrency=16, robots=False)
UNITS = sorted(Path("configs").glob("*.service"))


class Manager:
    """The receiving end of systemd's notify protocol; a thread reads, as systemd would."""

    def __init__(self, ear: socket.socket) -> None:
        self._ear = ear
        self._told: dict[int, list[str]] = {}
        self.thread = threading.Thread(target=self._read)

    def lines_of(self, node: Node) -> list[str]:
        """All lines that this process has sent so far, in order."""
        time.sleep(0.05)
        return list(self._told.get(node.pid, []))

    def _read(self) -> None:
        while True:
            data, ancillary, _, _ = self._ear.recvmsg(4096, socket.CMSG_SPACE(12))
            if not data:
                return
            ((_, _, credentials),) = ancillary
            pid = int.from_bytes(credentials[:4], sys.byteorder)
            self._told.setdefault(pid, []).extend(data.decode().splitlines())


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """Set NOTIFY_SOCKET for every process that is started from here on, as systemd does."""
    with (
        tempfile.TemporaryDirectory() as folder,  # tmp_path is too long for a socket's name
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear,
    ):
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ear.bind(f"{folder}/notify")
        monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
        monkeypatch.setenv("WATCHDOG_USEC", "4000000")
        made = Manager(ear)
        made.thread.start()
        yield made
        ear.shutdown(socket.SHUT_RD)
        made.thread.join(10)


def test_daemons_tell_the_service_manager_how_they_are(
    manager: Manager, tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """READY when they serve, a STATUS for people, WATCHDOG while the loop turns, RELOADING and
    READY around SIGHUP, STOPPING at SIGTERM, which ends with 0."""
    with (
        page_site(tmp_path, 1000) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=1) as made,
    ):
        leader, worker = made.leader(), made.workers["w1"]
        for node in made.nodes():
            wait_until(lambda node=node: "READY=1" in manager.lines_of(node))
            wait_until(lambda node=node: manager.lines_of(node).count("WATCHDOG=1") >= 2)
        assert any(line.startswith("STATUS=") and "w1" in line for line in manager.lines_of(worker))
        wait_until(
            lambda: f"STATUS={leader.name} holds the lock" in "\n".join(manager.lines_of(leader))
        )

        # A reload disturbs nobody.
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 100)
        epoch, pids = made.epoch(), worker.worker_pids()
        for node in made.nodes():
            node.signal(signal.SIGHUP)
            wait_until(lambda node=node: "RELOADING=1" in manager.lines_of(node))
            since = manager.lines_of(node).index("RELOADING=1")
            assert manager.lines_of(node)[since + 1].startswith("MONOTONIC_USEC=")
            wait_until(lambda node=node, since=since: "READY=1" in manager.lines_of(node)[since:])
        made.complete(run)
        assert (made.epoch(), worker.worker_pids()) == (epoch, pids)
        assert max(site.fetched().values()) == 1

        for node in (worker, *made.masters.values()):
            assert node.stop() == 0, node.text()[-2000:]
            assert "STOPPING=1" in manager.lines_of(node)
        assert all("STOPPING=1" not in manager.lines_of(node)[:5] for node in made.nodes())


def test_a_master_whose_loop_hangs_tells_no_watchdog(
    manager: Manager, tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """So that systemd starts it again: the signs of life come from the loop, not from a thread."""
    with cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made:
        master = made.add_master("m1", program=HANGING)
        wait_until(lambda: manager.lines_of(master).count("WATCHDOG=1") >= 2)
        master.signal(signal.SIGUSR1)
        time.sleep(0.5)
        seen = manager.lines_of(master).count("WATCHDOG=1")
        time.sleep(3.0)
        assert manager.lines_of(master).count("WATCHDOG=1") == seen


# A master as the command starts it, whose loop hangs when it gets SIGUSR1.
HANGING = """
import signal, sys, time
from zcrawl.cli.main import main
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(30.0))
main(sys.argv[1:])
"""


def test_a_worker_and_a_waiting_master_end_with_0_when_asked(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """SIGTERM and SIGINT, also before there is a database or a master."""
    with cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made:
        nowhere = mysql.url(made.database_name, port=9)
        waiting = made.add_master("m1", database__urls=[nowhere])
        alone = made.add_worker("w1")
        wait_until(lambda: "database_away" in waiting.text())
        wait_until(lambda: "worker_started" in alone.text())
        for node, number in ((waiting, signal.SIGTERM), (alone, signal.SIGINT)):
            node.signal(number)
            assert node.process is not None, node.text()[-2000:]
            assert node.process.wait(30) == 0, node.text()[-2000:]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_likes_the_unit_files(unit: Path, tmp_path: Path) -> None:
    """No unknown key, no wrong value. (The program need not be installed where tests run.)"""
    program = tmp_path / "zcrawl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/usr/local/bin/zcrawl", str(program)))
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "info"}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert complaints == [], done.stderr


def test_the_unit_files_start_commands_that_exist(tmp_path: Path) -> None:
    """`zcrawl master` and `zcrawl worker` know the flags that the units give them."""
    for kind in ("master", "worker"):
        text = Path(f"configs/zcrawl-{kind}.service").read_text()
        (line,) = [entry for entry in text.splitlines() if entry.startswith("ExecStart=")]
        _, command, *flags = line.removeprefix("ExecStart=").split()
        assert (command, flags) == (kind, ["--config", f"/etc/zcrawl/{kind}.toml"])
        shown = subprocess.run(
            [sys.executable, "-m", "zcrawl", command, "--help"], capture_output=True, text=True
        )
        assert "--config" in shown.stdout
