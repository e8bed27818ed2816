"""Whole crawls on real sockets, processes and databases: in this process and as commands."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import FAST, command, crawl, items, run_of, start, submission, until
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL, reference_set
from tests.web.server import MisbehavingWeb
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import DemoServer, demo_site
from zcrawl.errors import RefusedError, UsageError
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.roles.client import MeshClient, controls_in, is_live
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.offline import open_readonly
from zcrawl.store.queries import FailedRow, Failures, ReadFailed

BOOKS = DemoCatalogue(books=60, tags=6)
SUMMARY = {
    *("job", "run", "state", "pages", "items", "failed", "skipped", "queued", "bytes", "seconds"),
    *("pages_per_second", "unchanged", "dropped", "outputs", "failed_reasons", "skipped_reasons"),
    *("rejected_items", "fields", "examples"),
}


@pytest.fixture(scope="module")
def shop() -> Iterator[DemoServer]:
    with demo_site(BOOKS) as server:
        yield server


def urls_of(shop: DemoServer) -> set[str]:
    return {shop.url.rstrip("/") + path for path in BOOKS.paths()}


async def test_a_crawl_in_process_finds_every_page_once(shop: DemoServer, tmp_path: Path) -> None:
    """Two workers share one host; the file holds what the database holds, each item once."""
    out = tmp_path / "books.jsonl"
    async with EmbeddedCluster(tmp_path / "data", 2) as cluster:
        view = await crawl(cluster, JobSpec("books", politeness=FAST), [shop.url], out)
    urls = [item["url"] for item in items(out)]
    assert len(urls) == len(set(urls))
    assert set(urls) == urls_of(shop)
    assert view["state"] == "completed"
    assert (view["pages"], view["failed"], view["queued"]) == (len(urls), 0, 0)
    assert items(out)[0].keys() == {
        *("url", "final_url", "status", "depth", "title", "content_type", "bytes", "fetched_at"),
        "parent",
    }


async def test_a_second_run_of_the_same_job_on_the_same_workers_finds_it_all_again(
    shop: DemoServer, tmp_path: Path
) -> None:
    """What workers remember as committed belongs to one run."""
    async with EmbeddedCluster(tmp_path, 1) as cluster:
        for number in (1, 2):
            out = tmp_path / f"{number}.jsonl"
            await crawl(cluster, JobSpec("books", politeness=FAST), [shop.url], out)
            assert {item["url"] for item in items(out)} == urls_of(shop)


def test_a_job_tells_who_has_crawled_it(shop: DemoServer, tmp_path: Path) -> None:
    """`crawl` has its own master, and is asked by somebody like any other."""
    crawled = command("crawl", shop.url, "--max-pages", 1, "--data", tmp_path / "d", cwd=tmp_path)
    assert crawled.returncode == 0, crawled.stderr
    shown = command("job", 1, "--data", tmp_path / "d", "--json", cwd=tmp_path)
    (action,) = json.loads(shown.stdout)["last_actions"]
    user, _, host = action["by"].partition("@")
    assert user
    assert host == os.uname().nodename


def test_the_command_crawls_writes_and_sums_up(shop: DemoServer, tmp_path: Path) -> None:
    """Exit 0, items in the file, the summary as the last line."""
    done = command(
        *("crawl", shop.url, "--rate", 0, "--workers", 1, "--json"),
        *("--out", tmp_path / "o.jsonl", "--data", tmp_path / "d"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary.keys() == SUMMARY
    assert summary["state"] == "completed"
    assert summary["pages"] == summary["items"] == len(urls_of(shop))
    assert {item["url"] for item in items(tmp_path / "o.jsonl")} == urls_of(shop)


def test_a_csv_file_has_one_header_and_a_line_per_item(shop: DemoServer, tmp_path: Path) -> None:
    """By the name of --out."""
    out = tmp_path / "o.csv"
    done = command(
        *("crawl", shop.url, "--rate", 0, "--workers", 1, "--depth", 1, "--out", out),
        *("--data", tmp_path / "d"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert shop.url in {row["url"] for row in rows}
    assert {row["depth"] for row in rows} == {"0", "1"}
    assert f"{len(rows)} items in {out}" in done.stderr


def test_an_interrupted_crawl_goes_on_where_it_was(shop: DemoServer, tmp_path: Path) -> None:
    """Ctrl-C drains and saves, exit 130; --resume completes the set, with no item twice."""
    out, data = tmp_path / "o.jsonl", tmp_path / "d"
    process = start(
        *("crawl", shop.url, "--rate", 40, "--workers", 1, "--out", out, "--data", data),
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 30
    while not out.exists() or len(out.read_bytes().splitlines()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=40)
    assert process.returncode == 130, stderr
    assert f"zcrawl crawl --resume --data {data}" in stderr
    before = [item["url"] for item in items(out)]
    assert 3 <= len(before) < len(urls_of(shop))
    done = command("crawl", "--resume", "--workers", 1, "--data", data, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    urls = [item["url"] for item in items(out)]
    assert urls[: len(before)] == before
    assert len(urls) == len(set(urls))
    assert set(urls) == urls_of(shop)
    assert json.loads(done.stdout.splitlines()[-1])["failed"] == 0


async def test_the_postgres_manual_is_found_whole(tmp_path: Path) -> None:
    """The same pages that a reading of the files finds, each requested once."""
    expected = reference_set(POSTGRES_MANUAL).pages
    with nginx_site(POSTGRES_MANUAL) as site:
        async with EmbeddedCluster(tmp_path / "data", 2) as cluster:
            out = tmp_path / "o.jsonl"
            spec = JobSpec("pg", politeness=Politeness(rate=0, concurrency=32, spread=True))
            view = await crawl(cluster, spec, [site.url + "index.html"], out)
        paths = [path for path in site.requests() if path != "/robots.txt"]
    html = [item["url"] for item in items(out) if "html" in item["content_type"]]
    assert {url.removeprefix(site.url.rstrip("/")) for url in html} == expected
    assert len(html) == len(set(html))
    assert len(paths) == len(set(paths))
    assert view["failed_reasons"].keys() <= {"http_404"}


async def failures(
    web: MisbehavingWeb, tmp_path: Path, paths: list[str], spec: JobSpec
) -> dict[str, FailedRow]:
    """Crawl these paths; how those ended that did not become pages."""
    async with EmbeddedCluster(tmp_path, 1) as cluster:
        view = await crawl(cluster, spec, [web.url(path) for path in paths])
    store = open_readonly(tmp_path)
    try:
        reply = store.query(ReadFailed(view["run"], 0, 100))
    finally:
        store.close()
    assert isinstance(reply, Failures)
    return {row.url.removeprefix(web.origin): row for row in reply.rows}


async def test_whatever_a_server_does_ends_with_a_reason(tmp_path: Path) -> None:
    """Each URL ends once, named (G2, G7)."""
    expected = {
        "/status/404": "http_404",
        "/status/500": "http_500",
        "/gzip-bomb": "too_large",
        "/loop/a": "redirect_loop",
        "/redirect-self": "redirect_loop",
        "/hops/100": "too_many_redirects",
        "/redirect-without-location": "bad_redirect",
        "/reset": "reset",
        "/lies-long": "truncated",
        "/broken-gzip": "bad_encoding",
        "/garbage": "protocol",
        "/hang": "total_timeout",
        "/drip": "total_timeout",
    }
    spec = JobSpec(
        "bad", politeness=FAST, fetch=Fetch(timeout=3.0, retries=0), scope=Scope(max_depth=0)
    )
    async with MisbehavingWeb() as web:
        rows = await failures(web, tmp_path, list(expected), spec)
    assert {path: row.reason for path, row in rows.items()} == expected


async def test_a_host_that_does_not_resolve_is_called_dns(tmp_path: Path) -> None:
    """And not robots_unavailable: the page would meet the same."""
    spec = JobSpec("dns", fetch=Fetch(retries=0))
    async with EmbeddedCluster(tmp_path, 1) as cluster:
        view = await crawl(cluster, spec, ["http://no-such-host.invalid/"])
    assert view["failed_reasons"] == {"dns": 1}


async def test_a_running_cluster_answers_clients_and_refuses_a_second_master(
    shop: DemoServer, tmp_path: Path
) -> None:
    """By the lock; the error names the process."""
    assert not is_live(tmp_path)
    async with EmbeddedCluster(tmp_path, 1) as cluster:
        assert is_live(tmp_path)
        async with MeshClient(controls_in(tmp_path)) as client:
            nodes = await client.ask("nodes", {})
            assert nodes["leader"]["id"] == "m1"
            with pytest.raises(RefusedError) as refused:
                await client.ask("job", {"ref": "99"})
            assert refused.value.code == "no_such_job"
        with pytest.raises(RefusedError) as caught:
            async with EmbeddedCluster(tmp_path, 0, takeover_timeout_s=0.1):
                pass
        assert caught.value.code == "in_use"
        await until(lambda: bool(cluster.snapshot().workers))
    assert not is_live(tmp_path)


async def test_unfinished_runs_are_paused_before_anything_of_them_is_fetched(
    shop: DemoServer, tmp_path: Path
) -> None:
    """`crawl` in a folder with an unfinished job leaves that alone."""
    slow = JobSpec("slow", politeness=Politeness(rate=2.0, robots=False))
    async with EmbeddedCluster(tmp_path, 1) as cluster:
        run = (await cluster.ask("submit", submission(slow, [shop.url], None)))["run"]
        await until(lambda: run_of(cluster, run).get("pages", 0) >= 1)
    async with EmbeddedCluster(tmp_path, 1, pause_unfinished=True) as cluster:
        before = run_of(cluster, run)
        assert before["state"] == "paused"
        await crawl(cluster, JobSpec("fast", politeness=FAST, scope=Scope(max_depth=0)), [shop.url])
        assert run_of(cluster, run)["pages"] == before["pages"]


async def test_an_output_that_cannot_be_written_is_named(shop: DemoServer, tmp_path: Path) -> None:
    """The crawl goes on, the snapshot says so, and the end does too."""
    spec = JobSpec("x", politeness=FAST, scope=Scope(max_depth=0))
    async with EmbeddedCluster(tmp_path / "data", 1) as cluster:
        folder = tmp_path / "folder.jsonl"
        folder.mkdir()
        with pytest.raises(UsageError, match="is not a regular file"):
            await crawl(cluster, spec, [shop.url], folder)
        (trouble,) = cluster.snapshot().outputs.troubles
        assert trouble.error == "output_unwritable"
