"""`zcrawl up` with limits of labels and defaults of schedules, changed while it runs."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import ZCRAWL, command, wait_until

BASE = '[worker]\nlabels = ["gpu"]\ntask_slots = 8\n[worker.shell]\nany = true\n'
JOB = """
name = "{name}"
kind = "shell"
seeds = ["a", "b", "c", "d", "e"]
[placement]
require = ["gpu"]
[shell]
command = "/bin/sh"
args = ["-c", "mkdir {place}/{name}-$0 && until [ -e {place}/go ]; do sleep 0.1; done", "${{seed}}"]
"""


class Up:
    """A cluster in a folder, with a configuration file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "zcrawl.toml"
        self.configure("[tasks]\nlabel_limits = { gpu = 2 }\n")
        self.process = subprocess.Popen(
            [*ZCRAWL, "up", "--workers", "2"], cwd=folder, stderr=subprocess.PIPE
        )

    def configure(self, more: str) -> None:
        self.file.write_text(BASE + more)

    def out(self, *args: object) -> str:
        finished = command(*args, cwd=self.folder)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    def view(self, *args: object) -> Any:
        return json.loads(self.out(*args, "--json"))

    def submit(self, name: str, text: str, *flags: str) -> None:
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        self.out("submit", path, *flags)

    def running(self) -> int:
        """How many commands have begun."""
        return len([path for path in self.folder.glob("*-?") if path.is_dir()])


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    try:
        wait_until(lambda: (tmp_path / "zcrawl-data" / "mesh.json").exists(), 30)
        yield made
    finally:
        made.process.send_signal(signal.SIGTERM)
        made.process.communicate(timeout=40)
    assert made.process.returncode == 0


def test_a_label_limits_the_tasks_of_all_jobs_and_a_new_limit_counts_at_once(up: Up) -> None:
    """Two workers have 16 slots. The jobs say what they wait for, and are done in the end."""
    for name in ("one", "two"):
        up.submit(name, JOB.format(name=name, place=up.folder))
    wait_until(lambda: up.running() == 2)
    says = "label gpu: 2 of 2 tasks are running"
    wait_until(lambda: says in up.out("job", "one") + up.out("job", "two"))
    assert up.running() == 2
    up.configure("[tasks]\nlabel_limits = { gpu = 5 }\n")
    wait_until(lambda: up.running() == 5)
    (up.folder / "go").touch()
    wait_until(lambda: all(up.view("job", name)["state"] == "completed" for name in ("one", "two")))
    assert up.running() == 10


def test_defaults_of_schedules_are_shown_and_change_at_once(up: Up) -> None:
    """The next due time moves with the zone; a job that names its zone stays."""
    text = 'name = "{0}"\nseeds = ["http://127.0.0.1:1/"]\n[schedule]\ncron = "30 3 * * *"\n{1}'
    up.submit("open", text.format("open", ""), "--no-run")
    up.submit("own", text.format("own", 'timezone = "UTC"\noverlap = "skip"\n'), "--no-run")

    def next_of(name: str) -> str:
        (view,) = [view for view in up.view("schedule", "list") if view["name"] == name]
        return str(view["next"][0])[11:16]

    assert next_of("open") == next_of("own") == "03:30"
    up.configure('[schedules]\ntimezone = "Asia/Tokyo"\noverlap = "cancel"\njitter = "5s"\n')
    wait_until(lambda: next_of("open") == "18:30")
    assert next_of("own") == "03:30"
    listed = up.out("schedule", "list")
    assert "(Asia/Tokyo, default)" in listed
    assert "cancel (default)" in listed
    assert "skip (default)" not in listed
    shown = up.out("job", "open")
    assert "(Asia/Tokyo, default)" in shown
    assert "5s (default)" in shown
    up.configure('[schedules]\ntimezone = "Asia/Tokio"\n')
    reply = command("reload", "--json", cwd=up.folder)
    assert "did you mean 'Asia/Tokyo'?" in reply.stdout + reply.stderr
    up.configure("")
    wait_until(lambda: next_of("open") == "03:30")
