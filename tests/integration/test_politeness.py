"""Politeness as servers see it: arrival times in their logs, through the whole crawler."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command, start, wait_until
from tests.web import manners
from tests.web.arrivals import never_more_than
from tests.web.server import Hit, MisbehavingWeb, WebThread
from tests.web.shelf import Document

JOB = """
name = "{name}"
seeds = [{seeds}]
[politeness]
{politeness}
[fetch]
retries = {retries}
"""


def job(folder: Path, name: str, seeds: list[str], politeness: str = "", retries: int = 3) -> Path:
    path = folder / f"{name}.toml"
    listed = ", ".join(json.dumps(seed) for seed in seeds)
    text = JOB.format(name=name, seeds=listed, politeness=politeness, retries=retries)
    path.write_text(text)
    return path


def crawl(folder: Path, file: Path, *more: object) -> dict[str, Any]:
    """One crawl by command; its summary."""
    done = command("crawl", "--job", file, "--workers", 1, "--json", *more, cwd=folder)
    assert done.stdout, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def up(folder: Path) -> subprocess.Popen[str]:
    process = start("up", "--workers", 3, "--data", folder / "d", cwd=folder)
    wait_until(lambda: command("nodes", "--data", folder / "d", cwd=folder).returncode == 0)
    return process


def submit(folder: Path, file: Path) -> None:
    done = command("submit", file, "--data", folder / "d", cwd=folder)
    assert done.returncode == 0, done.stderr


def states(folder: Path) -> list[str]:
    listed = command("jobs", "--data", folder / "d", "--json", cwd=folder)
    return [job["state"] for job in json.loads(listed.stdout)]


@pytest.mark.parametrize(
    ("robots", "interval_s", "pages"),
    [
        (None, 0.5, 16),
        (b"User-agent: *\nCrawl-delay: 1\n", 1.0, 8),
        (b"User-agent: *\nRequest-rate: 2/3\n", 1.5, 5),
    ],
    ids=["rate", "crawl-delay", "request-rate"],
)
def test_a_killed_leader_breaks_neither_rate_nor_crawl_delay(
    tmp_path: Path, robots: bytes | None, interval_s: float, pages: int
) -> None:
    """Two jobs, three workers, kill -9 of the leader in the middle and a new start: no
    window of time ever has more requests than the slower job, or Crawl-delay, allows."""
    with WebThread(MisbehavingWeb(robots=robots)) as web:
        slow = job(tmp_path, "slow", [web.url(f"/fan/{pages}")], "rate = 2.0")
        # It ends before the slow one, which then still holds the pace down.
        fast = job(tmp_path, "fast", [web.url("/good/5/0")], "rate = 50.0")
        process = up(tmp_path)
        try:
            submit(tmp_path, slow)
            submit(tmp_path, fast)
            wait_until(lambda: len(web.log) > pages // 2)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            process = up(tmp_path)
            wait_until(lambda: set(states(tmp_path)) == {"completed"})
        finally:
            process.kill()
            process.communicate()
        never_more_than(1 / interval_s, web.log)
        assert web.hits("/robots.txt") == 1, "it is stored: a restart does not ask again"
        assert len({hit.path for hit in web.log}) == pages + 1 + 5 + 1


def test_a_fast_pace_is_used_and_never_broken(tmp_path: Path) -> None:
    """At 60 a second: in no window more than that, and over all a good part of it."""
    with WebThread() as web:
        file = job(tmp_path, "fast", [web.url("/fan/240")], "rate = 60.0\nconcurrency = 16")
        assert crawl(tmp_path, file)["pages"] == 241
        leaves = [hit for hit in web.log if hit.path.startswith("/fan/240/")]
        never_more_than(60.0, web.log)
        assert len(leaves) / (leaves[-1].at - leaves[0].at) > 0.4 * 60


def test_a_busy_server_gets_slower_traffic_and_then_normal_traffic_again(tmp_path: Path) -> None:
    """200 → 429 → 503 → 200: Retry-After is kept by the whole host, the distances grow, every
    page is there in the end, and the pace is the old one again."""
    with WebThread() as web:
        file = job(tmp_path, "moods", [web.url("/moods/70")], "rate = 20.0\nconcurrency = 1")
        summary = crawl(tmp_path, file)
        assert (summary["pages"], summary["failed"]) == (71, 0)
        leaves = [hit for hit in web.log if hit.path.startswith("/moods/70/")]
        assert _longest_gap(leaves[:20]) < 0.5, "normal at first"
        refused = leaves[20:25]
        assert all(b.at - a.at > 0.9 for a, b in itertools.pairwise(refused))
        assert refused[-1].at - refused[-2].at > 1.9, "a second refusal doubles the distance"
        assert _longest_gap(leaves[-10:]) < 0.5, "and normal again"


@pytest.mark.parametrize("status", [429, 503])
def test_a_killed_crawl_keeps_what_a_busy_server_asked_for(tmp_path: Path, status: int) -> None:
    """kill -9 after a Retry-After, and a new start: no page of the host is asked for before that
    time, not only the one that was refused."""
    with WebThread() as web:
        web.shelf = {f"p{n}": Document(f"{n}") for n in range(6)}
        web.shelf["busy"] = Document(status=status, headers=("Retry-After: 6",))
        names = ["p0", "busy", *(f"p{n}" for n in range(1, 6))]
        seeds = [web.url(f"/shelf/{name}") for name in names]
        file = job(tmp_path, "busy", seeds, "rate = 2.0\nconcurrency = 1")
        process = up(tmp_path)
        try:
            submit(tmp_path, file)
            wait_until(lambda: _throttled(tmp_path / "d"))
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            web.shelf["busy"] = Document("not any more")
            process = up(tmp_path)
            wait_until(lambda: set(states(tmp_path)) == {"completed"})
        finally:
            process.kill()
            process.communicate()
        (refused,) = [hit.at for hit in web.log if hit.path == "/shelf/busy"][:1]
        later = [hit.at - refused for hit in web.log if hit.at > refused]
        assert len(later) >= 4, later
        assert min(later) > 5.5, later
        assert all(web.hits(f"/shelf/p{n}") == 1 for n in range(6))


def _throttled(data: Path) -> bool:
    """The store knows that a host is to be asked more slowly."""
    with contextlib.closing(sqlite3.connect(data / "zcrawl.db")) as database:
        return bool(database.execute("SELECT 1 FROM hosts WHERE slow > 0").fetchall())


def _longest_gap(hits: list[Hit]) -> float:
    return max(b.at - a.at for a, b in itertools.pairwise(hits))


def test_a_host_that_is_away_is_probed_and_comes_back(tmp_path: Path) -> None:
    """Five requests in a row without an answer, then single probes after 2 s and 4 s; when one is
    answered the host has its old pace again, and no page is lost."""
    with WebThread() as web:
        file = job(tmp_path, "faints", [web.url("/faints/40")], "rate = 20.0", retries=9)
        summary = crawl(tmp_path, file)
        assert (summary["pages"], summary["failed"]) == (41, 0)
        leaves = [hit for hit in web.log if hit.path.startswith("/faints/40/")]
        first = manners.FAINTS - 1  # of those that were hung up on
        down = leaves[first : first + manners.FAINTED + 1]
        *_, before, probed = [b.at - a.at for a, b in itertools.pairwise(down)]
        assert before > 1.8, "nothing while it is open"
        assert probed > 3.8, "one probe, and twice as long after it failed"
        assert _longest_gap(leaves[-15:]) < 2.0


def test_a_server_that_becomes_slow_is_asked_more_slowly(tmp_path: Path) -> None:
    """Answers that take far longer than usual stretch the distance, quick ones shorten it."""
    with WebThread() as web:
        file = job(tmp_path, "tires", [web.url("/tires/60")], "rate = 20.0\nconcurrency = 2")
        assert crawl(tmp_path, file)["pages"] == 61
        leaves = [hit for hit in web.log if hit.path.startswith("/tires/60/")]
        assert _longest_gap(leaves[:14]) < 0.5
        # At once after a slow answer another one could go; it waits for a part of a second.
        after = [b.at - a.at for a, b in itertools.pairwise(leaves[20:26])]
        assert max(after) > 0.3
        assert _longest_gap(leaves[-15:]) < 0.5, "and normal again"


@pytest.mark.parametrize("wide", [True, False])
def test_a_host_is_asked_in_its_hours_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    """A job whose hours are not now waits; the other one, which names the present hour, is done
    meanwhile. Hours are UTC, wherever the machine is; one of the spans is most of a day, and goes
    over midnight."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # 14 hours ahead
    now, soon, later, late = (
        f"{(time.gmtime().tm_hour + hours) % 24:02}:00" for hours in (0, 2, 3, 4)
    )
    hour, other = f"{now}-{soon}", f"{late}-{now}"
    if wide:
        hour, other = f"{later}-{soon}", f"{soon}-{later}"
    with WebThread() as open_now, WebThread() as closed:
        process = up(tmp_path)
        try:
            submit(tmp_path, job(tmp_path, "later", [closed.url("/fan/3")], f'hours = ["{other}"]'))
            submit(tmp_path, job(tmp_path, "now", [open_now.url("/fan/3")], f'hours = ["{hour}"]'))
            wait_until(lambda: "completed" in states(tmp_path))
            assert sorted(states(tmp_path)) == ["completed", "pending"]
        finally:
            process.kill()
            process.communicate()
        assert len(open_now.log) == 5
        assert closed.log == []


def test_a_dead_host_costs_its_own_queue_only(tmp_path: Path) -> None:
    """Twenty hosts that take connections and say nothing, and twenty that nobody listens on: a
    live host of the same job is crawled at its own pace."""
    with WebThread() as web, contextlib.ExitStack() as stack:
        dead = [f"http://127.0.0.{n}:{web.port + 1}/" for n in range(2, 22)]
        for _ in range(20):
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            dead.append(f"http://127.0.0.1:{silent.getsockname()[1]}/")
        file = job(tmp_path, "mixed", [web.url("/fan/100"), *dead], "rate = 50.0", retries=1)
        with file.open("a") as more:
            more.write("timeout = 5.0\n")
        began = time.monotonic()
        summary = crawl(tmp_path, file)
        assert (summary["pages"], summary["failed"]) == (101, 40)
        leaves = [hit for hit in web.log if hit.path.startswith("/fan/100/")]
        assert leaves[-1].at - leaves[0].at < 10.0, "2 s at 50 a second"
        assert time.monotonic() - began < 60


def test_more_silent_hosts_than_slots_keep_nobody_from_its_first_page(tmp_path: Path) -> None:
    """A hundred hosts that say nothing stand before a live one, at one worker with 32 slots: it is
    crawled whole before the first of them has timed out."""
    with WebThread() as web, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(100)]
        dead = [f"http://127.0.0.1:{listener.getsockname()[1]}/" for listener in silent]
        file = job(tmp_path, "mostly-dead", [*dead, web.url("/fan/20")], "rate = 50.0")
        with file.open("a") as more:
            more.write("timeout = 600.0\nread_timeout = 600.0\n")
        data = tmp_path / "d"
        process = start("crawl", "--job", file, "--workers", 1, "--data", data, cwd=tmp_path)
        try:
            wait_until(lambda: sum(hit.path.startswith("/fan/20/") for hit in web.log) == 20)
            view = json.loads(command("job", 1, "--json", "--data", data, cwd=tmp_path).stdout)
            assert (view["state"], view["failed"]) == ("running", 0)
        finally:
            process.kill()
            process.communicate()


def test_a_broken_robots_txt_is_waited_for_and_then_forbids_everything(tmp_path: Path) -> None:
    """RFC 9309: 5xx means disallow. It is asked for a few times, not once for every URL."""
    with WebThread(MisbehavingWeb(robots=b"oops", robots_status=500)) as web:
        seeds = [web.url(f"/good/50/{n}") for n in range(50)]
        file = job(tmp_path, "broken", seeds, "rate = 50.0\nrobots_patience = 5.0")
        summary = crawl(tmp_path, file)
        assert (summary["pages"], summary["skipped"]) == (0, 50)
        assert {hit.path for hit in web.log} == {"/robots.txt"}
        assert 2 <= len(web.log) <= 6


@pytest.mark.parametrize("status", [429, 503])
def test_a_robots_txt_that_comes_back_is_obeyed(tmp_path: Path, status: int) -> None:
    """Busy at first, then rules: what waited is crawled, and no attempt was used up."""
    web = MisbehavingWeb(robots=b"User-agent: *\nDisallow: /fan/5/3\n", robots_status=status)
    with WebThread(web):
        file = job(tmp_path, "late", [web.url("/fan/5")], "rate = 50.0", retries=0)
        process = start("crawl", "--job", file, "--workers", 1, "--json", cwd=tmp_path)
        try:
            wait_until(lambda: web.hits("/robots.txt") == 1)
            web.robots_status = 200
            stdout, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        summary = json.loads(stdout.splitlines()[-1])
        assert (summary["pages"], summary["skipped"], summary["failed"]) == (5, 1, 0)


@pytest.mark.parametrize("crawled", [True, False], ids=["crawled-too", "crawled-by-nobody"])
def test_a_robots_txt_at_another_host_is_asked_for_at_that_hosts_pace(
    tmp_path: Path, crawled: bool
) -> None:
    """Six hosts whose robots.txt is at a seventh, on three workers: what arrives there, from all
    of them and from its own crawl, never breaks the rate; the rules are obeyed, and each host is
    asked once where they are."""
    rules = b"User-agent: *\nDisallow: /fan/3/1\n"
    with (
        WebThread(MisbehavingWeb(robots=rules)) as there,
        WebThread(MisbehavingWeb(hosts=6)) as web,
    ):
        web.robots, web.robots_status = b"", 301
        web.robots_headers = (f"Location: {there.url('/robots.txt')}",)
        seeds = [f"http://127.0.0.1:{port}/fan/3" for port in web.ports]
        own = [there.url("/fan/9")] if crawled else []
        file = job(tmp_path, "elsewhere", [*own, *seeds], "rate = 2.0")
        with file.open("a") as more:
            more.write(f'private_hosts = ["127.0.0.1:{there.port}"]\n')
        done = command("crawl", "--job", file, "--workers", 3, "--json", cwd=tmp_path)
        assert done.stdout, done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert (summary["pages"], summary["skipped"], summary["failed"]) == (
            6 * 3 + 10 * len(own),
            6,
            0,
        )
        never_more_than(2.0, there.log)
        assert web.hits("/robots.txt") == 6
        for port in web.ports:
            never_more_than(2.0, [hit for hit in web.log if hit.port == port])


def test_a_limit_per_address_holds_for_the_httpx_engine_too(tmp_path: Path) -> None:
    """Four hosts at one address, half of them by a name that has to be looked up: together they
    get what one address may have. The default engine is tried in test_shared_limits."""
    with WebThread(MisbehavingWeb(hosts=4)) as web:
        names = ("127.0.0.1", "localhost")
        seeds = [f"http://{names[n % 2]}:{port}/fan/3" for n, port in enumerate(web.ports)]
        politeness = "rate = 50.0\naddress_rate = 4.0"
        file = job(tmp_path, "shared", seeds, politeness)
        with file.open("a") as more:
            more.write('engine = "httpx"\n')
        summary = crawl(tmp_path, file)
        assert (summary["pages"], summary["failed"]) == (16, 0)
        never_more_than(4.0, web.log)
