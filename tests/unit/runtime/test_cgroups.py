"""Where cgroups of commands can be made, and how one is made, ended and removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from zcrawl.runtime import cgroups


def machine(tmp_path: Path, own: str = "/", controllers: str = "cpu memory pids") -> Path:
    """Make a /proc/self and a mounted cgroup v2 as the kernel shows them; return the former."""
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    folder = mount / own.lstrip("/")
    folder.mkdir(parents=True)
    proc.mkdir()
    line = f"30 20 0:26 / {mount} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    (proc / "mountinfo").write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n{line}")
    (proc / "cgroup").write_text(f"1:name=systemd:/\n0::{own}\n")
    for each in {mount, folder}:
        (each / "cgroup.controllers").write_text(controllers)
        (each / "cgroup.subtree_control").write_text("")
        (each / "cgroup.procs").write_text("")
    return proc


def test_outside_of_a_unit_commands_get_cgroups_at_the_top(tmp_path: Path) -> None:
    """The controllers are switched on for them."""
    place = cgroups.cgroup_place(machine(tmp_path))
    assert place.folder == str(tmp_path / "cgroup")
    assert (tmp_path / "cgroup/cgroup.subtree_control").read_text() == "+memory +pids"


def test_a_unit_without_delegate_is_left_alone(tmp_path: Path) -> None:
    """systemd would not find the command any more when it stops the unit. The reason names it."""
    place = cgroups.cgroup_place(machine(tmp_path, "/system.slice/zcrawl.service"))
    assert not place.folder
    assert "/system.slice/zcrawl.service has no Delegate=yes" in place.why


def test_the_processes_of_a_delegated_unit_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They move below it, because a cgroup that limits others has no processes itself. A process
    that starts later finds itself there, and uses the same place."""
    unit = tmp_path / "cgroup/system.slice/zcrawl.service"
    monkeypatch.setattr(cgroups, "_is_delegated", lambda folder: folder == unit)
    proc = machine(tmp_path, "/system.slice/zcrawl.service")
    assert cgroups.cgroup_place(proc).folder == str(unit)
    assert (unit / "zcrawl-workers").is_dir()
    (proc / "cgroup").write_text("0::/system.slice/zcrawl.service/zcrawl-workers\n")
    assert cgroups.cgroup_place(proc).folder == str(unit)


@pytest.mark.parametrize(("controllers", "words"), [("cpu", "memory and pids"), ("memory", "pids")])
def test_a_missing_controller_is_named(tmp_path: Path, controllers: str, words: str) -> None:
    """Version 1 may have taken it; then nothing is changed."""
    place = cgroups.cgroup_place(machine(tmp_path, controllers=controllers))
    assert not place.folder
    assert place.why.endswith(f"has no controller {words}")
    assert (tmp_path / "cgroup/cgroup.subtree_control").read_text() == ""


def test_a_system_without_cgroup_v2_is_named(tmp_path: Path) -> None:
    """As is one without /proc."""
    proc = machine(tmp_path)
    (proc / "mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n")
    assert cgroups.cgroup_place(proc).why == "no cgroup v2 is mounted"
    assert "cannot be read" in cgroups.cgroup_place(tmp_path / "none").why


def test_to_look_changes_nothing(tmp_path: Path) -> None:
    """`doctor` only says what a worker would do."""
    assert cgroups.cgroup_place(machine(tmp_path), prepare=False).folder
    assert (tmp_path / "cgroup/cgroup.subtree_control").read_text() == ""


def test_a_command_gets_its_limits(tmp_path: Path) -> None:
    """And if memory runs out, its processes end together."""
    folder = cgroups.new_folder(str(tmp_path))
    cgroups.create(folder, cgroups.limits_of(40, 150_000_000))
    read = {path.name: path.read_text() for path in Path(folder).iterdir()}
    assert read["pids.max"] == "40"
    assert read["memory.max"] == "150000000"
    assert read["memory.oom.group"] == "1"


@pytest.mark.parametrize(
    ("pids", "memory", "limit"),
    [
        ("max 0\n", "low 0\noom_kill 0\n", ""),
        ("max 3\n", "low 0\noom_kill 0\n", "pids"),
        ("max 3\n", "oom 9\noom_kill 2\n", "memory"),
    ],
)
def test_the_kernel_says_which_limit_it_enforced(
    tmp_path: Path, pids: str, memory: str, limit: str
) -> None:
    """By counters that begin with zero."""
    (tmp_path / "pids.events").write_text(pids)
    (tmp_path / "memory.events").write_text(memory)
    assert cgroups.exceeded(str(tmp_path)) == limit


def test_only_cgroups_of_dead_processes_are_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that another process has by now does not help; other PID namespaces are not
    judged, and neither is what is not of zcrawl."""
    removed: list[str] = []
    monkeypatch.setattr(cgroups, "remove", removed.append)
    own = cgroups.new_folder(str(tmp_path))
    with subprocess.Popen(["/bin/true"]) as process:
        gone = own.replace(f"-{os.getpid()}-", f"-{process.pid}-")
    namespace, pid, start, end = Path(own).name.removeprefix(cgroups.PREFIX).split("-")
    reused = f"{tmp_path}/{cgroups.PREFIX}{namespace}-{pid}-{int(start) - 1}-{end}"
    foreign = f"{tmp_path}/{cgroups.PREFIX}{int(namespace) + 1}-{process.pid}-{start}-{end}"
    for folder in (own, gone, reused, foreign, f"{tmp_path}/user.slice"):
        Path(folder).mkdir()
    assert sorted(cgroups.remove_leftovers(str(tmp_path))) == sorted([gone, reused])
    assert sorted(removed) == sorted([gone, reused])
