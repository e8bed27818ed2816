"""What a node knows of its last life, and when it must not believe it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zcrawl.runtime import lives
from zcrawl.runtime.lives import Lives


def test_the_next_life_knows_the_last_incarnations(tmp_path: Path) -> None:
    """Each worker's newest one; the first life knows of none."""
    with Lives(tmp_path / "lives") as first:
        assert first.before == {}
        first.began("w-1", 5)
        first.began("w-2", 6)
        first.began("w-1", 7)
    with Lives(tmp_path / "lives") as second:
        assert second.before == {"w-1": 7, "w-2": 6}
        second.began("w-1", 8)
    with Lives(tmp_path / "lives") as third:
        assert third.before == {"w-1": 8}


def test_a_life_ends_with_an_orderly_stop(tmp_path: Path) -> None:
    """A node that crashed, and is started again by systemd, goes on with its life, also after a
    reboot; a person who stops it and starts it again begins another one."""
    path = tmp_path / "lives"
    first = Lives(path)
    first.__enter__()
    first.began("w", 5)
    os.close(first.fd)  # a crash
    with pytest.raises(RuntimeError, match="it fails"), Lives(path) as second:
        second.began("w", 6)
        assert second.life == first.life != 0
        raise RuntimeError("it fails")
    with Lives(path) as third:
        third.began("w", 7)
        assert third.life == first.life
    with Lives(path) as fourth:
        assert fourth.life not in (0, first.life)


def test_nothing_is_known_while_a_worker_of_the_last_life_lives(tmp_path: Path) -> None:
    """The lock stays until the last process with the descriptor has ended; then it is free."""
    wait = [sys.executable, "-c", "input()"]
    with Lives(tmp_path / "lives") as first:
        first.began("w", 5)
        worker = subprocess.Popen(wait, stdin=subprocess.PIPE, pass_fds=[first.fd])
    with Lives(tmp_path / "lives") as second:
        assert second.before == {}
        second.began("w", 6)  # not kept: the file is the other's
        worker.communicate(b"\n")
        second.began("w", 7)
    with Lives(tmp_path / "lives") as third:
        assert third.before == {"w": 7}


def test_a_copy_another_boot_and_half_a_file_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker elsewhere may live on under the number that is written there."""
    path = tmp_path / "lives"
    with Lives(path) as life:
        life.began("w", 5)
    shutil.copy(path, tmp_path / "copy")
    with Lives(tmp_path / "copy") as copy:
        assert copy.before == {}
    (tmp_path / "boot").write_text("another")
    with monkeypatch.context() as patched:
        patched.setattr(lives, "_BOOT_ID", tmp_path / "boot")
        with Lives(path) as rebooted:
            assert rebooted.before == {}
        patched.setattr(lives, "_BOOT_ID", tmp_path / "missing")
        with Lives(path) as unknown:
            assert unknown.before == {}
    path.write_bytes(path.read_bytes()[:-3])
    with Lives(path) as half:
        assert half.before == {}
