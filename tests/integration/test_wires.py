"""Real crawls over the wires: encodings, broken HTTP/2 connections, answers that are not HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import warcio

from tests.integration.crawling import FAST, command, start, submission, until
from tests.web import MisbehavingWeb
from tests.web.encodings import CODINGS, PACKERS, SMALL, STACKS, header_of, packed
from tests.web.first_lines import NO_HTTP
from tests.web.http2_web import FAULTS, Http2Web
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.roles.embedded import EmbeddedCluster

BASE = ("--workers", 1, "--rate", 0, "--data", "d", "--no-robots", "--allow-private", "--json")
TWO = '[fetch]\nengine = "httpx"\nhttp2 = true\nverify_tls = false\n'


async def crawled(folder: Path, job: str, *args: object, code: int = 0) -> dict[str, Any]:
    """The summary of `zcrawl crawl`, in a process of its own, which ends with that code."""
    (folder / "job.toml").write_text(f'name = "w"\n{job}')
    done = await asyncio.to_thread(command, "crawl", "--job", "job.toml", *BASE, *args, cwd=folder)
    assert done.returncode == code, (done.stdout, done.stderr)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


async def reasons(folder: Path) -> dict[str, str]:
    """Why each path failed, that did."""
    args = ("export", 1, "--failed", "--data", "d")
    listed = await asyncio.to_thread(command, *args, cwd=folder)
    assert listed.returncode == 0, listed.stderr
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    return {"/" + row["url"].split("/", 3)[3]: row["reason"] for row in rows}


def seeds(urls: list[str]) -> str:
    return f"seeds = {json.dumps(urls)}\n"


# ---------------------------------------------------------------- encodings


@pytest.mark.parametrize("engine", ["http", "httpx"])
async def test_a_crawl_reads_every_encoding(tmp_path: Path, engine: str) -> None:
    """In one piece and in small ones: no page is lost."""
    async with MisbehavingWeb() as web:
        paths = [f"/encoded/small/{coding}/{n}" for coding in CODINGS for n in (100, 10**9)]
        job = seeds([web.url(path) for path in paths]) + f'[fetch]\nengine = "{engine}"\n'
        summary = await crawled(tmp_path, job, "--out", "o.jsonl")
    assert (summary["pages"], summary["failed"]) == (len(paths), 0)
    sizes = {json.loads(line)["bytes"] for line in (tmp_path / "o.jsonl").read_text().splitlines()}
    assert sizes == {len(SMALL)}


@pytest.mark.parametrize("engine", ["http", "httpx"])
async def test_an_archive_has_bodies_in_their_encodings(tmp_path: Path, engine: str) -> None:
    """Also with a Content-Encoding line for each; the page was read, the archive has what came."""
    async with MisbehavingWeb() as web:
        urls = {web.url(f"/encoded/lines/{coding}/100"): coding for coding in CODINGS}
        job = seeds([*urls]) + f'[fetch]\nengine = "{engine}"\n'
        summary = await crawled(tmp_path, job, "--out", "o.warc.gz")
    assert (summary["pages"], summary["failed"]) == (len(CODINGS), 0)
    kept = {}
    with (tmp_path / "o.warc.gz").open("rb") as file:
        for record in warcio.ArchiveIterator(file, check_digests="raise"):
            if record.rec_type == "response":
                lines = [v for k, v in record.http_headers.headers if k == "Content-Encoding"]
                kept[record.rec_headers["WARC-Target-URI"]] = lines, record.raw_stream.read()
    assert kept == {url: (header_of(coding), packed(coding, SMALL)) for url, coding in urls.items()}
    assert len(STACKS) + len(PACKERS) == len(kept)


# ---------------------------------------------------------------- HTTP/2


async def test_a_crawl_survives_broken_http2_connections(tmp_path: Path) -> None:
    """Streams that are reset, GOAWAY, hang-ups and faulty frames, each once: all pages are there in
    the end, within the job's retries."""
    breaking = [
        "reset/REFUSED_STREAM/before/1",
        "reset/CANCEL/within/1",
        "goaway/NO_ERROR/all/1",
        "goaway/ENHANCE_YOUR_CALM/none/1",
        "hangs-up/1",
        *(f"fault/{kind}/1" for kind in FAULTS),
    ]
    pages = [f"page/{n}" for n in range(40)]
    for n, path in enumerate(breaking):
        pages.insert(1 + 2 * n, path)
    async with Http2Web() as web:
        linked = web.url("/links/" + ",".join(path.replace("/", ".") for path in pages))
        job = seeds([linked]) + f"[politeness]\nconcurrency = 8\n{TWO}retries = 3\n"
        summary = await crawled(tmp_path, job)
    assert await reasons(tmp_path) == {}
    assert summary["pages"] == 1 + len(pages)


async def test_pages_beside_one_that_breaks_its_connection_are_done(tmp_path: Path) -> None:
    """It fails by its name after its retries, and alone."""
    always = ["fault/garbage/1000", "goaway/INTERNAL_ERROR/none/1000", "reset/CANCEL/before/1000"]
    pages = [f"page/{n}" for n in range(30)]
    pages[5:5] = always
    async with Http2Web() as web:
        linked = web.url("/links/" + ",".join(path.replace("/", ".") for path in pages))
        job = seeds([linked]) + f"[politeness]\nconcurrency = 8\n{TWO}retries = 2\n"
        summary = await crawled(tmp_path, job)
        request_counts = web.request_counts
    assert await reasons(tmp_path) == {f"/{path}": "http2" for path in always}
    assert summary["pages"] == 31
    # Once and two retries, each time perhaps also on a connection of its own.
    assert all(3 <= request_counts[f"/{path}"] <= 6 for path in always)


# ---------------------------------------------------------------- HTTP/2 without h2


@pytest.fixture
def without_h2(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine where h2 is not installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['h2'] = None\n")
    return {"PYTHONPATH": str(folder)}


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, (done.stdout, done.stderr)
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert error["code"] == "missing_extra"
    return str(error["message"])


async def test_http2_is_refused_before_the_crawl_where_h2_is_missing(
    tmp_path: Path, without_h2: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `crawl`, by `test` and by `--resume`, with what to install; nothing is asked for."""
    async with Http2Web() as web:
        (tmp_path / "job.toml").write_text(f'name = "w"\n{seeds([web.url("/hangs/1")])}{TWO}')
        begun = start("crawl", "--job", "job.toml", *BASE, cwd=tmp_path)
        try:
            await web.arrived(1)
        finally:
            begun.kill()
            begun.communicate()
        monkeypatch.setenv("PYTHONPATH", without_h2["PYTHONPATH"])
        request_count = len(web.log)
        for args in (
            ("crawl", "--job", "job.toml", *BASE[:-1], "--json"),
            ("test", "job.toml", "--json"),
            ("crawl", "--resume", "--data", "d", "--json"),
        ):
            message = refusal(await asyncio.to_thread(command, *args, cwd=tmp_path))
            assert "h2" in message
            assert "pip install 'zcrawl[http2]'" in message
        assert len(web.log) == request_count


async def test_a_cluster_lets_a_job_wait_for_a_worker_with_h2(
    tmp_path: Path, without_h2: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masters do not know what workers have installed: no URL fails for it, and the job says what
    it waits for."""
    monkeypatch.setenv("PYTHONPATH", without_h2["PYTHONPATH"])
    async with Http2Web() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        fetch = Fetch(engine="httpx", http2=True, verify_tls=False)
        spec = JobSpec("two", politeness=FAST, fetch=fetch)
        await cluster.ask("submit", submission(spec, [web.url("/page/1")], None))
        waiting = "no live worker has the package h2"
        await until(lambda: waiting in str(cluster.snapshot().runs))
        view = await cluster.ask("job", {"ref": "two"})
        assert (view["pages"], view["failed"], view["queued"]) == (0, 0, 1)
        assert not web.log


# ---------------------------------------------------------------- no HTTP


@pytest.mark.parametrize("engine", ["http", "httpx"])
async def test_a_server_that_speaks_no_http_is_asked_once(tmp_path: Path, engine: str) -> None:
    """Each page ends as `protocol`, without a retry, and the host does not count as away."""
    async with MisbehavingWeb() as web:
        paths = [f"/says/{name}/{then}" for name in NO_HTTP for then in ("closes", "waits")]
        job = seeds([web.url(path) for path in paths]) + f'[fetch]\nengine = "{engine}"\n'
        summary = await crawled(tmp_path, job, code=1)
        request_counts = Counter(hit.path for hit in web.log)
    assert summary["failed"] == len(paths)
    assert await reasons(tmp_path) == dict.fromkeys(paths, "protocol")
    assert request_counts == dict.fromkeys(paths, 1)
    assert summary["seconds"] < 15
