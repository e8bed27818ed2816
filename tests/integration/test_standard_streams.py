"""Standard streams that are closed, full, or know ASCII only: through the real command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = ["--help", "jobs", "jobs --json", "doctor", "nope", "job 7", "export 7 --out -"]


def shell(command: str, how: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", f"{sys.executable} -m zcrawl {command} {how}"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(command: str, how: str, tmp_path: Path) -> None:
    """Nobody reads what is written there, and nothing else happens: no abort, no traceback."""
    usual = shell(command, "", tmp_path)
    done = shell(command, how, tmp_path)
    assert done.returncode == usual.returncode
    assert "Traceback" not in done.stdout + done.stderr
    assert "Assertion" not in done.stderr


@pytest.mark.parametrize("how", [">&- 2>&-", "2>/dev/full", "<&- >&- 2>&-", "--out - 2>&-"])
def test_a_crawl_does_its_work_without_standard_streams(how: str, tmp_path: Path) -> None:
    """Pages are fetched and stored, even if standard streams are closed."""
    (tmp_path / "index.html").write_text("<title>one</title>")
    serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    server = subprocess.Popen(
        [serve[0], "-u", *serve[1:]],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split(b" port ")[1].split()[0].decode()
        done = shell(f"crawl http://127.0.0.1:{port}/ --no-robots", how, tmp_path)
        assert done.returncode == 0
        assert "Traceback" not in done.stdout + done.stderr
        assert '"pages":1' in shell("jobs --json", "", tmp_path).stdout
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("command", ["--help", "config show --json", "doctor"])
def test_a_full_disk_behind_stdout_is_told_in_one_line(command: str, tmp_path: Path) -> None:
    """What was asked for could not be given: exit 1, and why."""
    (tmp_path / "zcrawl-data").mkdir()
    done = shell(command, ">/dev/full", tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


def test_a_full_disk_behind_stderr_costs_no_data(tmp_path: Path) -> None:
    """Narration is for people; data and exit code are for programs."""
    usual = shell("--help", "", tmp_path)
    done = shell("--help", "2>/dev/full", tmp_path)
    assert (done.returncode, done.stdout) == (0, usual.stdout)


def test_a_terminal_that_knows_ascii_only_gets_ascii(tmp_path: Path) -> None:
    """Signs that it cannot show are replaced by some that mean the same."""
    command = (
        "import sys; from zcrawl.cli import output; output.data('404 × 3 …'); output.note('×')"
    )
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("404 x 3 ...\n", "x\n", 0)
