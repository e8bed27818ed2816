"""Mistakes that people make with a cluster that runs, each through the real command.

One `zcrawl up` for all of them; nothing listens at the address of the seeds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import wait_until
from tests.integration.test_mistakes import closed_hours, zcrawl
from tests.web.proxies import HttpProxy

JOB = """name = "{name}"
seeds = ["{url}"]
{more}
[politeness]
robots = false
{hours}
[fetch]
retries = 0
{fetch}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which `zcrawl up` runs, with its data in `data`."""
    place = tmp_path_factory.mktemp("up")
    with (place / "up.err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "zcrawl", "up", "--workers", "1", "--data", "data"],
            cwd=place,
            stderr=err,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: "submit with" in (place / "up.err").read_text())
        yield place
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


HOSTS = itertools.count(1)  # each job has its own: one that failed is asked more slowly


def write_job(folder: Path, name: str, *, more: str = "", hours: str = "", fetch: str = "") -> str:
    file = folder / f"{name}.toml"
    url = f"http://127.0.9.{next(HOSTS)}:9/"
    file.write_text(JOB.format(name=name, url=url, more=more, hours=hours, fetch=fetch))
    return file.name


def submit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return zcrawl("submit", *arguments, "--data", "data", folder=folder)


class Waiting:
    """`with Waiting(folder, "submit", ...) as said:` a command that waits, and what it says."""

    def __init__(self, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self._file = folder / f"{arguments[0]}-{arguments[1]}.err"
        with self._file.open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zcrawl", *arguments],
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdout=subprocess.DEVNULL,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)

    def says(self, words: str) -> None:
        wait_until(lambda: words in self._file.read_text(), 30)


def test_a_stored_job_runs_again_by_its_name(folder: Path) -> None:
    """`submit NAME --again` needs no job file; its seeds are those of the stored job."""
    first = submit(folder, write_job(folder, "repeated"), "--json")
    again = submit(folder, "repeated", "--again", "--json", "--wait")
    assert again.returncode == 1, "nobody answers at its seed"
    job, summary = json.loads(first.stdout), json.loads(again.stdout)
    assert (summary["job"], summary["failed"]) == (job["job"], 1)
    assert summary["run"] > job["run"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit", "repeatet", "--again"], "no job 'repeatet'; did you mean 'repeated'?"),
        (["submit", "xyz", "--again"], "no job 'xyz'; there are: "),
        (["job", "repeatet"], "no job 'repeatet'; did you mean 'repeated'?"),
        (["cancel", "repeatet"], "no job 'repeatet'; did you mean 'repeated'?"),
        (["export", "repeatet"], "no job 'repeatet'; did you mean 'repeated'?"),
    ],
)
def test_a_wrong_name_of_a_job_says_which_names_there_are(
    arguments: list[str], words: str, folder: Path
) -> None:
    """And the nearest one."""
    submit(folder, write_job(folder, "repeated"), "--update")
    done = zcrawl(*arguments, "--data", "data", folder=folder)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode == 1


def test_a_name_without_again_is_told_what_to_write(folder: Path) -> None:
    """A bare word is neither a URL nor a file; it may be a stored job."""
    done = submit(folder, "repeated")
    assert "zcrawl submit repeated --again" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("more", "fetch", "words"),
    [
        ("", "engine = 'splash'", "no live worker has fetcher 'splash' yet"),
        ("middlewares = ['stamp']", "", "no live worker has middleware 'stamp' yet"),
        ("parsers = ['pdf']", "", "no live worker has parser 'pdf' yet"),
        ("kind = 'report'", "", "no live worker has executor 'report' yet"),
        ("spider = 'not_there.books:Books'", "", "no live worker has spider 'not_there.books"),
    ],
)
def test_a_job_that_no_live_worker_can_do_is_accepted_and_said(
    more: str, fetch: str, words: str, folder: Path
) -> None:
    """A worker that has it may come; until then the answer says what is missing and what to do."""
    file = write_job(folder, "lacking", more=more, fetch=fetch)
    done = submit(folder, file, "--update")
    assert done.returncode == 0
    assert done.stdout.strip().isdigit()
    assert words in done.stderr
    assert "install" in done.stderr
    assert "zcrawl cancel" in done.stderr
    view = zcrawl("job", "lacking", "--data", "data", folder=folder)
    assert words in view.stdout
    zcrawl("cancel", "lacking", "--data", "data", folder=folder)


def test_submit_that_waits_says_what_no_live_worker_has(folder: Path) -> None:
    """With what to do; Ctrl-C says that the job goes on."""
    file = write_job(folder, "waits", fetch="engine = 'splash'")
    with Waiting(folder, "submit", file, "--wait", "--data", "data") as waiting:
        waiting.says("no live worker has fetcher 'splash' yet; install it where a worker runs")
    waiting.says("continues; zcrawl job")
    zcrawl("cancel", "waits", "--data", "data", folder=folder)


def test_a_stored_job_cannot_be_changed_by_flags_when_it_runs_again(folder: Path) -> None:
    """`--again` runs what is stored; the message names the key and the way to change it."""
    submit(folder, write_job(folder, "repeated"), "--update")
    done = submit(folder, "repeated", "--again", "--depth", "1")
    assert "a flag cannot change scope.max_depth" in done.stderr
    assert "zcrawl submit JOB.toml --update" in done.stderr
    assert done.returncode == 2


def test_a_job_whose_seeds_came_from_a_list_needs_the_list_again(folder: Path) -> None:
    """Lists are not stored with a job: without it there is nothing to begin with."""
    (folder / "urls.txt").write_text(f"http://127.0.9.{next(HOSTS)}:9/\n")
    flags = ("--name", "listed", "--no-robots", "--retries", "0")
    assert submit(folder, "--seeds", "urls.txt", *flags).returncode == 0
    done = submit(folder, "listed", "--again")
    assert "job 'listed' has no seeds of its own; give them again: --seeds FILE" in done.stderr
    assert done.returncode == 1
    assert submit(folder, "listed", "--again", "--seeds", "urls.txt").returncode == 0


async def test_a_crawl_whose_proxies_refuse_it_says_so(tmp_path: Path) -> None:
    """No page is asked for, none fails: `crawl` and `job` say why nothing happens."""
    async with HttpProxy(user="me", password="right") as proxy:
        (tmp_path / "job.toml").write_text(
            f'name = "a"\nseeds = ["http://127.0.0.1:9/"]\n[politeness]\nrobots = false\n'
            f'[fetch]\nproxies = ["http://me:${{PW}}@127.0.0.1:{proxy.port}"]\n'
        )
        secret = {"ZCRAWL_SECRET_PW": "wrong"}
        arguments = ("crawl", "job.toml", "--data", "data")
        with Waiting(tmp_path, *arguments, env=secret) as waiting:
            words = "all proxies are down; the last error was: "
            await asyncio.to_thread(waiting.says, words)
            await asyncio.to_thread(waiting.says, "the proxy wants other credentials")
            job = await asyncio.to_thread(
                zcrawl, "job", "a", "--data", "data", folder=tmp_path, env=secret
            )
            assert "the proxy wants other credentials" in job.stdout


def test_submit_that_waits_says_what_the_job_waits_for(folder: Path) -> None:
    """Outside the hours of the job: `submit --wait` and `job` say so, as the console does."""
    file = write_job(folder, "closed", hours=f'hours = ["{closed_hours()}"]')
    with Waiting(folder, "submit", file, "--wait", "--data", "data") as waiting:
        waiting.says("outside the hours of its job")
        view = zcrawl("job", "closed", "--data", "data", folder=folder)
        assert "outside the hours of its job" in view.stdout
    waiting.says("continues; zcrawl job")
    zcrawl("cancel", "closed", "--data", "data", folder=folder)
