"""Jobs that are not crawls, end to end: an executor that misbehaves, and a missing one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import FAST, command, items, run_of, submission, until
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.roles.embedded import EmbeddedCluster

SOURCE = """
import asyncio, os, time

class Raises:
    def execute(self, task):
        raise ValueError(f"attempt {task.attempt}")

class Hangs:
    async def execute(self, task):
        await asyncio.Event().wait()

class Blocks:
    def execute(self, task):
        time.sleep(3)
        return {"late": True}

class Dies:
    def execute(self, task):
        os._exit(1)

class Second:
    def execute(self, task):
        if task.attempt == 1:
            raise OSError("not yet")
        return {"about": task.url, "attempt": task.attempt, "name": task.job["name"]}
"""
NAMES = ("Raises", "Hangs", "Blocks", "Dies", "Second")


def installed(folder: Path, source: str, groups: dict[str, tuple[str, ...]]) -> Path:
    """A distribution with plugins by their names in lower case, as an installer leaves it."""
    about = folder / "mine-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "mine.py").write_text(source)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = []
    for group, names in groups.items():
        lines += [f"[zcrawl.{group}]", *(f"{name.lower()} = mine:{name}" for name in names)]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return installed(tmp_path / "installed", SOURCE, {"executors": NAMES})


def executed(package: Path, job: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and what failed."""
    folder = package.parent
    (folder / "job.toml").write_text(f'name = "job"\n{job}')
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    args = ("--data", "d", "--workers", 1, "--out", "out.jsonl", "--json")
    done = command("crawl", "--job", "job.toml", *args, cwd=folder, env=env)
    assert done.stdout, done.stderr
    failed = command("export", "job", "--failed", "--data", "d", cwd=folder)
    lines = [json.loads(line) for line in failed.stdout.splitlines()]
    return json.loads(done.stdout.splitlines()[-1]), lines


@pytest.mark.parametrize(
    ("kind", "reason", "attempts"),
    [
        ("raises", "executor_error", 2),
        ("hangs", "executor_timeout", 2),
        ("blocks", "executor_timeout", 2),
        ("dies", "quarantined", 0),  # a crash is counted apart
    ],
)
def test_an_executor_that_fails_costs_its_task_and_is_named(
    package: Path, kind: str, reason: str, attempts: int
) -> None:
    """It is tried again as often as the job says; one that takes its worker along, three times."""
    summary, failed = executed(package, f'kind = "{kind}"\n[fetch]\ntimeout = 0.5\nretries = 1\n')
    assert (summary["state"], summary["failed"], summary["items"]) == ("failed", 1, 0)
    assert [(row["reason"], row["attempts"]) for row in failed] == [(reason, attempts)]


def test_a_task_that_fails_once_is_done_at_its_next_attempt(package: Path) -> None:
    """Each seed is a task of its own, and each result is there once."""
    seeds = [f"http://h{n}.invalid/" for n in range(3)]
    summary, failed = executed(package, f'kind = "second"\nseeds = {json.dumps(seeds)}\n')
    assert (summary["pages"], summary["failed"], failed) == (3, 0, [])
    crawled_items = items(package.parent / "out.jsonl")
    assert sorted(item["about"] for item in crawled_items) == seeds
    assert {(item["attempt"], item["name"]) for item in crawled_items} == {(2, "job")}


ABSENT = {
    "executor": JobSpec(name="absent", kind="nobody-has-it", politeness=FAST),
    "fetcher": JobSpec(name="absent", fetch=Fetch(engine="nobody-has-it"), politeness=FAST),
    "middleware": JobSpec(name="absent", middlewares=("nobody-has-it",), politeness=FAST),
    "parser": JobSpec(name="absent", parsers=("nobody-has-it",), politeness=FAST),
}


@pytest.mark.parametrize("kind", ABSENT)
async def test_a_job_waits_for_a_worker_that_has_its_plugin_and_says_so(
    tmp_path: Path, kind: str
) -> None:
    """Nothing fails, and the job tells what it waits for."""
    seeds = [] if kind == "executor" else ["http://127.0.0.1:9/"]
    async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
        reply = await cluster.ask("submit", submission(ABSENT[kind], seeds, None))
        says = f"waiting: no live worker has {kind} 'nobody-has-it' yet"
        await until(lambda: run_of(cluster, reply["run"]).get("reason") == says)
        view = await cluster.ask("job", {"ref": "absent"})
        assert (view["reason"], view["state"], view["failed"]) == (says, "pending", 0)
