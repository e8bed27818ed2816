"""Processes that are killed: nothing is lost, nobody is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import (
    FAST,
    OVER,
    alive,
    children,
    command,
    items,
    run_of,
    start,
    submission,
    until,
    wait_until,
)
from tests.servers.page_site import page_site
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import demo_site
from zcrawl.dispatch.planner import Planner
from zcrawl.model.spec import JobSpec, Politeness
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.runtime.supervisor import how_it_ended

BOOKS = DemoCatalogue(books=150, tags=10)


async def test_a_killed_worker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    """kill -9 three times under load: same set, no item twice, none failed."""
    rng = random.Random(1)
    with demo_site(BOOKS) as shop:
        out = tmp_path / "o.jsonl"
        async with EmbeddedCluster(tmp_path / "data", 2) as cluster:
            spec = JobSpec("books", politeness=FAST)
            reply = await cluster.ask("submit", submission(spec, [shop.url], out))
            run = reply["run"]
            for step in (10, 40, 80):
                await until(lambda step=step: run_of(cluster, run).get("pages", 0) >= step)
                pids = [
                    worker.pid
                    for worker in cluster.snapshot().workers
                    if worker.state in ("idle", "busy", "joining") and alive(worker.pid)
                ]
                if pids:
                    os.kill(rng.choice(pids), signal.SIGKILL)
            await until(lambda: run_of(cluster, run).get("state") in OVER)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(reply["job"])})
            assert cluster.snapshot().restarts >= 1
        urls = [item["url"] for item in items(out)]
        assert len(urls) == len(set(urls))
        assert set(urls) == {shop.url.rstrip("/") + path for path in BOOKS.paths()}
        assert view["failed"] == 0


async def test_those_who_watch_are_told_how_a_worker_process_ended(tmp_path: Path) -> None:
    """The leader sees a worker that joins again; the new process reports how the last one ended."""
    async with EmbeddedCluster(tmp_path / "data", 1) as cluster:
        await until(lambda: any(row.pid for row in cluster.snapshot().workers))
        (worker,) = cluster.snapshot().workers
        os.kill(worker.pid, signal.SIGKILL)
        rows: list[dict[str, Any]] = []
        async with asyncio.timeout(60):
            while not rows:
                await asyncio.sleep(0.1)
                rows = (await cluster.ask("events", {"filter": "restarted"}))["rows"]
    (event,) = rows
    assert (event["source"], event["level"], event["name"]) == (worker.id, "warning", "restarted")
    assert f"pid {worker.pid} was killed by SIGKILL" in event["text"]


def test_exit_codes_are_told_in_words() -> None:
    """Also that of a signal without a name."""
    assert how_it_ended(1) == "ended with exit code 1"
    assert how_it_ended(-11) == "was killed by SIGSEGV"
    assert how_it_ended(-40) == "was killed by signal 40"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_parent(tmp_path: Path, number: int) -> None:
    """However the parent ends, its children are gone two seconds later."""
    process = start("up", "--workers", 2, "--data", tmp_path / "d", cwd=tmp_path)
    try:
        wait_until(lambda: len(children(process.pid)) >= 2, 20)
        workers = children(process.pid)
        wait_until(lambda: (tmp_path / "d" / "mesh.json").exists(), 20)
        process.send_signal(number)
        process.wait(10)
        wait_until(lambda: not any(alive(pid) for pid in workers), 2)
    finally:
        process.kill()
        process.communicate()


def test_a_crawl_whose_master_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """kill -9 of the master under load, twice, then --resume: the whole set, no item twice."""
    with demo_site(BOOKS) as shop:
        out, data = tmp_path / "o.jsonl", tmp_path / "d"
        first = ("crawl", shop.url, "--rate", 150, "--workers", 2, "--out", out, "--data", data)
        for args in (first, ("crawl", "--resume", "--workers", 2, "--data", data)):
            before = len(out.read_bytes().splitlines()) if out.exists() else 0
            process = start(*args, cwd=tmp_path)
            wait_until(
                lambda before=before: (
                    out.exists() and len(out.read_bytes().splitlines()) > before + 5
                ),
                30,
            )
            process.kill()
            process.communicate()
        done = command("crawl", "--resume", "--workers", 2, "--data", data, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        urls = [item["url"] for item in items(out)]
        assert len(urls) == len(set(urls))
        assert set(urls) == {shop.url.rstrip("/") + path for path in BOOKS.paths()}


async def test_a_worker_that_slept_for_15_seconds_changes_nothing(tmp_path: Path) -> None:
    """SIGSTOP with requests in flight, until the worker is lost and others have fetched what it
    held; then SIGCONT. The answers that came in its sleep are reported, late: the leader counts
    them as duplicates, no row of those pages changes, and the worker is of the cluster again."""
    out, data = tmp_path / "o.jsonl", tmp_path / "data"
    with page_site(tmp_path, 500, delay_s=0.5) as site:
        async with EmbeddedCluster(data, 2) as cluster:
            spec = JobSpec("slow", politeness=Politeness(rate=20, concurrency=16, spread=True))
            reply = await cluster.ask("submit", submission(spec, [site.seed], out))
            run = reply["run"]
            await until(lambda: run_of(cluster, run).get("pages", 0) >= 20)
            sleeper = cluster.snapshot().workers[0]
            os.kill(sleeper.pid, signal.SIGSTOP)
            try:
                in_flight = await cluster.ask("in_flight", {"worker": sleeper.id, "limit": 500})
                held = {row["url"] for row in in_flight["rows"]}
                asleep = asyncio.create_task(asyncio.sleep(15))

                def in_sleep() -> set[str]:  # under way when it fell asleep, and done by others
                    twice = {path for path, n in site.fetched().items() if n > 1}
                    return {url for url in held if url.endswith(tuple(twice))} & stored(data).keys()

                await until(lambda: bool(in_sleep()))
                await asleep
                late, before = in_sleep(), stored(data)
                counted = Counter(cluster.snapshot().counters)
                assert run_of(cluster, run)["state"] == "running", "too short for this test"
            finally:
                os.kill(sleeper.pid, signal.SIGCONT)

            def duplicates() -> int:
                now = Counter(cluster.snapshot().counters)
                return (now - counted)["results_duplicate"]

            await until(lambda: duplicates() >= 1)
            await until(lambda: run_of(cluster, run).get("state") in OVER)
            await until(lambda: all(row.state == "idle" for row in cluster.snapshot().workers))
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(reply["job"])})
        after = stored(data)
        assert late
        assert {url: after[url] for url in late} == {url: before[url] for url in late}
        urls = [item["url"] for item in items(out)]
        assert len(urls) == len(set(urls))
        assert set(urls) == site.urls() == after.keys()
        assert (view["failed"], view["pages"], view["items"]) == (0, 500, 500)


def stored(data: Path) -> dict[str, tuple[object, ...]]:
    """All that the database has of each page that is done, by its URL."""
    select = """
        SELECT q.url, q.attempts, q.status, p.*, i.id, i.data FROM requests q
        JOIN pages p ON p.seq = q.seq JOIN items i ON i.seq = q.seq
    """
    with contextlib.closing(sqlite3.connect(data / "zcrawl.db")) as database:
        return {row[0].decode(): row[1:] for row in database.execute(select)}


async def test_a_leader_with_an_error_of_its_own_leads_again_from_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in memory costs an epoch, not a page."""
    with demo_site(BOOKS) as shop:
        out = tmp_path / "o.jsonl"
        async with EmbeddedCluster(tmp_path / "data", 2) as cluster:
            spec = JobSpec("books", politeness=FAST)
            reply = await cluster.ask("submit", submission(spec, [shop.url], out))
            run = reply["run"]
            await until(lambda: run_of(cluster, run).get("pages", 0) >= 20)
            assert cluster._master is not None
            leader = cluster._master.machine.leader
            assert leader is not None
            monkeypatch.setattr(leader.state.planner, "plan", None)
            await until(lambda: run_of(cluster, run).get("state") in OVER)
            await cluster.flush_outputs()
            assert cluster.snapshot().epoch == 2
            assert cluster.snapshot().counters["machine_error"] == 1
        urls = [item["url"] for item in items(out)]
        assert len(urls) == len(set(urls))
        assert set(urls) == {shop.url.rstrip("/") + path for path in BOOKS.paths()}


async def test_a_leader_that_fails_at_every_try_waits_longer_each_time_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` and `job` tell the error while it lasts; when it is gone, nothing was lost."""
    out, data = tmp_path / "o.jsonl", tmp_path / "data"

    def fails(self: object, now: float) -> object:
        raise LookupError("planted")

    async def output_of(*args: object) -> str:
        done = await asyncio.to_thread(command, *args, "--data", data, cwd=tmp_path)
        return done.stdout + done.stderr

    with demo_site(BOOKS) as shop:
        async with EmbeddedCluster(data, 2) as cluster:
            spec = JobSpec("books", politeness=FAST)
            reply = await cluster.ask("submit", submission(spec, [shop.url], out))
            run = reply["run"]
            await until(lambda: run_of(cluster, run).get("pages", 0) >= 20)
            with monkeypatch.context() as planted:
                planted.setattr(Planner, "plan", fails)
                await until(lambda: cluster.snapshot().mishaps.in_row >= 5)
                doctor = await output_of("doctor")
                assert "fail  cluster: its leader failed" in doctor
                assert "LookupError: planted" in doctor
                assert "by an error of its own: LookupError: planted" in await output_of("job", 1)
                assert cluster.snapshot().epoch < 20, "not without a pause"
            await until(lambda: run_of(cluster, run).get("state") in OVER)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(reply["job"])})
        urls = [item["url"] for item in items(out)]
        assert len(urls) == len(set(urls))
        assert view["failed"] == 0
        assert set(urls) == {shop.url.rstrip("/") + path for path in BOOKS.paths()}
