"""The doctor: each check on something that is well and on something that is not."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import time
from collections import namedtuple
from pathlib import Path

import pytest

from zcrawl.cli import connect
from zcrawl.cli.base import load_settings
from zcrawl.cli.commands import doctor
from zcrawl.cli.commands.doctor import Check
from zcrawl.cli.main import run
from zcrawl.runtime import cgroups
from zcrawl.runtime.cgroups import CgroupPlace


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "is_live", lambda data: False)


def test_a_healthy_machine_passes_with_exit_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All checks are there, in JSON too."""
    monkeypatch.setattr(doctor, "check_disk", lambda data: Check("disk space", "ok", ""))
    assert run(["doctor", "--data", str(tmp_path / "new"), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)
    names = [check["name"] for check in checks]
    assert names[:5] == ["python", "packages", "open files", "clock", "data folder"]
    assert names[5:10] == ["disk space", "socket paths", "keys", "cluster", "database"]
    assert names[10:] == ["spiders", "commands"]
    assert not (tmp_path / "new").exists()


def test_a_corrupt_database_fails_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, the file's name and the remedy."""
    (tmp_path / doctor.DATABASE).write_bytes(b"this is no database, " * 100)
    assert run(["doctor", "--data", str(tmp_path)]) == 1
    (shown,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("fail  database"))
    assert "restore it from a backup" in shown


def test_a_whole_database_passes(tmp_path: Path) -> None:
    """quick_check reads it without writing."""
    file = tmp_path / doctor.DATABASE
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    assert doctor.check_database(tmp_path).status == "ok"
    assert file.read_bytes() == before


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    """A file in the place of the folder is the case that root meets too."""
    file = tmp_path / "file"
    file.write_text("")
    assert doctor.check_folder(file).status == "fail"
    assert doctor.check_folder(tmp_path).status == "ok"
    assert "can be made" in doctor.check_folder(tmp_path / "a" / "b").detail


def test_a_full_disk_fails_and_a_nearly_full_one_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bytes that are free."""
    usage = namedtuple("usage", "total used free")
    for free, status in ((10, "fail"), (100_000_000, "warn"), (10**12, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(0, 0, free))
        assert doctor.check_disk(tmp_path).status == status


def test_few_open_files_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the hard limit matters: zcrawl raises the soft one itself."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert doctor.check_files().status == "warn"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 100_000))
    assert doctor.check_files().status == "ok"


def test_a_long_path_warns_and_a_wrong_clock_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Unix socket's path has 107 bytes; a clock of 1970 breaks TLS."""
    assert doctor.check_socket_path(Path("/" + "x" * 100)).status == "warn"
    assert doctor.check_socket_path(Path("/data")).status == "ok"
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert doctor.check_clock().status == "fail"


def test_a_missing_package_fails_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that mends it."""
    monkeypatch.setattr(doctor, "PACKAGES", ("click", "no-such-package-at-all"))
    check = doctor.check_packages()
    assert check.status == "fail"
    assert "no-such-package-at-all" in check.detail


def test_a_check_that_breaks_is_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others still run."""

    def broken() -> Check:
        raise RuntimeError("boom")

    monkeypatch.setattr(doctor, "check_clock", broken)
    checks = {
        check.name: check
        for check in doctor.examine(load_settings(None, {"data.dir": str(tmp_path)}))
    }
    assert checks["clock"].status == "fail"
    assert "boom" in checks["clock"].detail
    assert checks["database"].status == "ok"


def test_a_list_of_keys_without_roles_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, with what to do; a wrong list is a failure, one with roles is well."""
    monkeypatch.setattr(doctor, "check_disk", lambda data: Check("disk space", "ok", ""))
    allowed, config = tmp_path / "allowed", tmp_path / "zcrawl.toml"
    config.write_text(f'[mesh]\nallow_file = "{allowed}"\n')

    def keys() -> dict[str, str]:
        run(["doctor", "--data", str(tmp_path / "new"), "--config", str(config), "--json"])
        checks = json.loads(capsys.readouterr().out)
        return next(check for check in checks if check["name"] == "keys")

    assert keys()["status"] == "fail", "there is no such file"
    allowed.write_text(f"{'a' * 64} w1\n{'b' * 64} ann viewer\n")
    report = keys()
    assert report["status"] == "warn"
    assert "w1" in report["detail"]
    assert "ann" not in report["detail"]
    assert "worker, viewer or operator" in report["advice"]
    allowed.write_text(f"{'a' * 64} w1 worker\n{'b' * 64} ann viewer\n")
    assert keys()["status"] == "ok"
    allowed.write_text("nonsense\n")
    assert keys()["status"] == "fail"


def test_the_limits_of_commands_are_named_if_commands_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cgroup is best; without one the reason is there, and what to do."""
    monkeypatch.setenv("ZCRAWL_WORKER__SHELL__ANY", "true")
    for place, status, words in (
        (CgroupPlace("/x", "a cgroup for each command, in /x"), "ok", "in /x"),
        (CgroupPlace("", "no cgroup v2 is mounted"), "warn", "no cgroup v2 is mounted"),
    ):
        monkeypatch.setattr(cgroups, "cgroup_place", lambda place=place, **how: place)
        run(["doctor", "--data", str(tmp_path / "new"), "--json"])
        check = json.loads(capsys.readouterr().out)[-1]
        assert (check["name"], check["status"]) == ("commands", status)
        assert words in check["detail"]


def test_the_connections_of_a_configuration_are_lines_of_the_report(tmp_path: Path) -> None:
    """One that leaves the machine unencrypted warns, with the key to change."""
    settings = load_settings(
        None, {"data.dir": str(tmp_path), "consul.address": "http://consul.example:8500"}
    )
    mesh, consul = doctor.check_connections(settings)
    assert (mesh.name, mesh.status) == ("mesh connection", "ok")
    assert (consul.name, consul.status) == ("consul connection", "warn")
    assert "consul.address" in consul.advice
