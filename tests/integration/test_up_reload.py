"""`zcrawl up` uses a changed configuration without a restart."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import ZCRAWL, children, command, wait_until

SLOTS = "[worker]\nslots = {}\n"


class Up:
    """A cluster in a folder, with a configuration file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "zcrawl.toml"
        self.file.write_text(SLOTS.format(32))
        self.client = folder / "client.toml"  # commands refuse to work with a wrong file
        self.client.write_text("")
        self.process = subprocess.Popen(
            [*ZCRAWL, "up", "--workers", "2"], cwd=folder, stderr=subprocess.PIPE
        )

    def run(self, *args: str) -> Any:
        return json.loads(command(*args, "--json", "--config", self.client, cwd=self.folder).stdout)

    def slots(self) -> list[int]:
        nodes = self.run("nodes")
        return [row["slots"] for row in nodes.get("workers", [])]

    def log(self) -> str:
        path = self.folder / "zcrawl-data" / "zcrawl.log"
        return path.read_text() if path.exists() else ""

    def workers(self) -> list[int]:
        return children(self.process.pid)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    try:
        wait_until(lambda: made.slots() == [32, 32])
        yield made
    finally:
        made.process.send_signal(signal.SIGTERM)
        made.process.communicate(timeout=40)
    assert made.process.returncode == 0


def test_limits_and_log_level_change_while_it_runs(up: Up) -> None:
    """By the file alone, by SIGHUP, and by `zcrawl reload`; its processes stay. A wrong file and a
    value that needs a restart are told, and change nothing."""
    workers = up.workers()
    up.file.write_text(SLOTS.format(7))
    wait_until(lambda: up.slots() == [7, 7])
    up.file.write_text(SLOTS.format(8) + "processes = 9\n")
    up.process.send_signal(signal.SIGHUP)
    wait_until(lambda: up.slots() == [8, 8])
    assert "worker.processes needs a restart; still the old value" in up.log()
    up.file.write_text(SLOTS.format(0))
    reply = up.run("reload")
    (row,) = reply["nodes"]
    assert (row["node"], row["changed"]) == ("m1", [])
    assert "worker.slots is 0" in row["error"]
    assert "(line 2 of zcrawl.toml)" in row["error"]
    assert up.slots() == [8, 8]
    up.file.write_text(SLOTS.format(9) + '[log]\nlevel = "error"\n')
    wait_until(lambda: "log.level: info → error" in up.log())
    wait_until(lambda: up.slots() == [9, 9])
    up.file.write_text(SLOTS.format(10) + '[log]\nlevel = "error"\n')
    wait_until(lambda: up.slots() == [10, 10])
    assert "worker.slots: 9 → 10" not in up.log(), "a warning, which is not written any more"
    assert up.workers() == workers


def test_secrets_reach_new_processes_one_after_the_other(up: Up) -> None:
    """The cluster answers meanwhile, and no worker is missing in the end."""
    workers = up.workers()
    up.file.write_text(SLOTS.format(32) + '[secrets.A]\nhosts = ["a.test"]\n')
    wait_until(lambda: not set(up.workers()) & set(workers))
    wait_until(lambda: up.slots() == [32, 32])
    assert "secrets.A: (none) → [a.test]" in up.log()
