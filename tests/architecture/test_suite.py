"""What `make test` adds to pytest: who runs which test, and the names of those that ran twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scheduling import begins_with_computing, rank

ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.conftest import pytest_configure, pytest_xdist_make_scheduler\n"


def run_pytest(folder: Path, *arguments: str) -> str:
    """Return what it prints. In this folder, with the hooks of this project's tests."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--import-mode=importlib", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def make_tests(folder: Path, path: str, text: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_each_test_runs_once_and_those_that_wait_begin_in_the_processes_for_them(
    tmp_path: Path,
) -> None:
    """Six processes: the last two begin with what computes, at a lower priority, and the other four
    with what waits; nothing is left out and nothing runs twice."""
    computing = """
import os, pytest
@pytest.mark.parametrize("n", range(300))
def test_c(n): print("ran", os.environ["PYTEST_XDIST_WORKER"], "computes", os.nice(0))
"""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    make_tests(tmp_path, "tests/unit/test_computes.py", computing)
    waiting = computing.replace("computes", "waits").replace("300", "40")
    make_tests(tmp_path, "tests/integration/test_waits.py", waiting)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    output = run_pytest(tmp_path, "-n", "6", "-rP")
    ran = re.findall(r"ran gw(\d) (\w+) (-?\d+)", output)
    assert [what for _, what, _ in ran].count("waits") == 40
    assert [what for _, what, _ in ran].count("computes") == 300
    assert "340 passed" in output
    base = os.nice(0)
    assert {(process, int(nice) - base) for process, _, nice in ran} <= {
        *((str(n), 0) for n in range(4)),
        *((str(n), min(5, 19 - base)) for n in (4, 5)),
    }


@pytest.mark.parametrize(
    ("test", "place"),
    [
        ("tests/integration/test_cluster_leader.py::test_x", 0),
        ("tests/integration/test_crawl.py::test_x", 1),
        ("tests/servers/test_servers.py::test_x", 1),
        ("tests/unit/text/test_url.py::test_x", 2),
    ],
)
def test_tests_of_clusters_come_first_and_tests_that_compute_last(test: str, place: int) -> None:
    """So the longest ones do not begin at the end."""
    assert rank(test) == place


@pytest.mark.parametrize(("processes", "computing"), [(1, 0), (2, 0), (3, 1), (6, 2), (8, 2)])
def test_a_third_of_the_processes_begins_with_what_computes(processes: int, computing: int) -> None:
    """With one or two there is nothing to divide."""
    workers = [begins_with_computing(f"gw{n}", processes) for n in range(processes)]
    assert workers == [False] * (processes - computing) + [True] * computing


def test_the_summary_names_the_tests_that_needed_a_second_try(tmp_path: Path) -> None:
    """With the counts of the first try; a test that fails twice is named as such."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_three.py").write_text(
        """
import pathlib
def test_good(): pass
def test_shaky():
    mark = pathlib.Path("mark")
    ran = mark.exists()
    mark.touch()
    assert ran
def test_bad(): assert False
"""
    )
    first = run_pytest(tmp_path, "-p", "tests.tries")
    assert "second try" not in first
    second = run_pytest(tmp_path, "-p", "tests.tries", "--last-failed")
    assert "first try of all: 1 passed, 2 failed" in second
    assert "needed a second try: test_three.py::test_shaky" in second
    assert "failed twice: test_three.py::test_bad" in second
    assert "test_good" not in second
