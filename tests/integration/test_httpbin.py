"""Crawls of httpbin: what a server that nobody here wrote makes of our requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import crawl, items
from tests.servers.httpbin_server import httpbin
from zcrawl.model.spec import Auth, Fetch, JobSpec, OutputSpec, Politeness, Scope
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.offline import open_readonly
from zcrawl.store.queries import Failures, ReadFailed

FAST = Politeness(rate=0.0, concurrency=8, robots=False, spread=True)
ENGINES = ("http", "httpx")


@pytest.fixture(scope="module")
def bin() -> Iterator[str]:
    with httpbin() as origin:
        yield origin


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZCRAWL_SECRET_PW", "s3cret")
    monkeypatch.setenv("ZCRAWL_SECRET_TOKEN", "t0ken")


class Found:
    """How each path ended, and the bodies of those that became pages."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}
        self.bodies: dict[str, bytes] = {}

    def json(self, path: str) -> Any:
        return json.loads(self.bodies[path])


async def fetch(bin: str, folder: Path, paths: list[str], **options: Any) -> Found:
    """Crawl these paths and keep their bodies."""
    settings = Fetch(**{"retries": 0, "timeout": 10.0, **options})
    spec = JobSpec(
        "bin",
        seeds=tuple(bin + path for path in paths),  # whose hosts get the secrets
        politeness=FAST,
        scope=Scope(max_depth=0, collapse_redirects=False),
        fetch=settings,
        output=OutputSpec(keep_html=True),
    )
    out = folder / "o.jsonl"
    async with EmbeddedCluster(folder, 1) as cluster:
        view = await crawl(cluster, spec, [bin + path for path in paths], out)
    return read(bin, folder, view["run"], out)


def read(bin: str, folder: Path, run: int, out: Path) -> Found:
    results = Found()
    store = open_readonly(folder)
    try:
        rows = store.query(ReadFailed(run, 0, 1000))
        assert isinstance(rows, Failures)
        results.failed = {row.url.removeprefix(bin): row.reason for row in rows.rows}
    finally:
        store.close()
    blobs = {path.stat().st_size: path for path in (folder / "blobs").rglob("*") if path.is_file()}
    for item in items(out):
        path = item["url"].removeprefix(bin)
        results.pages[path] = item
        blob = blobs.get(item["bytes"])
        if blob is not None:
            results.bodies[path] = _plain(blob.read_bytes())
    return results


def _plain(data: bytes) -> bytes:
    """A kept body, if the store compresses it."""
    import gzip

    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


@pytest.mark.parametrize("engine", ENGINES)
async def test_statuses_mean_what_they_say(bin: str, tmp_path: Path, engine: str) -> None:
    """2xx is a page, the rest fails with its number."""
    good = [200, 201, 202, 203, 206]
    bad = [400, 401, 403, 404, 405, 406, 409, 410, 418, 429, 451, 500, 501, 502, 503, 504]
    results = await fetch(bin, tmp_path, [f"/status/{code}" for code in good + bad], engine=engine)
    assert results.pages.keys() == {f"/status/{code}" for code in good}
    assert results.failed == {f"/status/{code}": f"http_{code}" for code in bad}


@pytest.mark.parametrize("engine", ENGINES)
async def test_redirects_are_followed_to_their_end(bin: str, tmp_path: Path, engine: str) -> None:
    """Relative and absolute, by every status, and not for ever."""
    paths = ["/redirect/3", "/relative-redirect/3", "/absolute-redirect/3"]
    paths += [f"/redirect-to?status_code={code}&url=/get" for code in (301, 302, 303, 307, 308)]
    results = await fetch(bin, tmp_path, [*paths, "/redirect/12"], engine=engine)
    assert results.pages.keys() == set(paths)
    assert {page["final_url"] for page in results.pages.values()} == {bin + "/get"}
    assert results.failed == {"/redirect/12": "too_many_redirects"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_is_compressed_is_read(bin: str, tmp_path: Path, engine: str) -> None:
    """gzip, deflate and brotli, and httpbin says that it was."""
    results = await fetch(bin, tmp_path, ["/gzip", "/deflate", "/brotli"], engine=engine)
    assert results.failed == {}
    assert results.json("/gzip")["gzipped"] is True
    assert results.json("/deflate")["deflated"] is True
    assert results.json("/brotli")["brotli"] is True


@pytest.mark.parametrize("engine", ENGINES)
async def test_streams_and_slow_answers_are_read_whole(
    bin: str, tmp_path: Path, engine: str
) -> None:
    """Chunked, without a length, dripping, late; and what is too late or too long has its name."""
    paths = ["/stream/20", "/stream-bytes/5000", "/bytes/3000", "/delay/1", "/range/1024"]
    paths += [
        "/drip?numbytes=5&duration=1&delay=0",
        "/encoding/utf8",
        "/html",
        "/xml",
        "/image/png",
    ]
    late = ["/delay/4", "/drip?numbytes=4&duration=9&delay=0"]
    results = await fetch(
        bin, tmp_path, [*paths, *late, "/bytes/90000"], engine=engine, timeout=3.0, max_bytes=50_000
    )
    assert results.pages.keys() == set(paths)
    assert results.failed == {**dict.fromkeys(late, "total_timeout"), "/bytes/90000": "too_large"}
    assert results.pages["/stream-bytes/5000"]["bytes"] == 5000
    assert len(results.bodies["/stream/20"].splitlines()) == 20
    assert "∮ E⋅da = Q" in results.bodies["/encoding/utf8"].decode()
    assert results.pages["/html"]["content_type"].startswith("text/html")


@pytest.mark.parametrize("engine", ENGINES)
async def test_credentials_are_those_that_httpbin_wants(
    bin: str, tmp_path: Path, engine: str
) -> None:
    """Basic auth with the right password, and none without."""
    host = bin.removeprefix("http://")
    paths = ["/basic-auth/ann/s3cret", "/basic-auth/ann/other", "/hidden-basic-auth/ann/s3cret"]
    auth = (Auth(host, user="ann", password="${PW}"),)
    results = await fetch(bin, tmp_path, [*paths, "/bearer"], engine=engine, auth=auth)
    assert results.json(paths[0])["authenticated"] is True
    assert results.pages.keys() == {paths[0], paths[2]}
    assert results.failed == {paths[1]: "http_401", "/bearer": "http_401"}
    bearer = (Auth(host, bearer="${TOKEN}"),)
    (tmp_path / "b").mkdir()
    results = await fetch(bin, tmp_path / "b", ["/bearer"], engine=engine, auth=bearer)
    assert results.json("/bearer") == {"authenticated": True, "token": "t0ken"}


async def test_headers_and_cookies_arrive_as_asked(bin: str, tmp_path: Path) -> None:
    """The user agent, the header set, and the cookies that httpbin set before."""
    options: dict[str, Any] = {
        "user_agents": ("zcrawl-test/7",),
        "header_sets": ({"X-Set": "one"},),
        "headers": {"X-Secret": "${PW}"},
        "cookies": True,
    }
    results = await fetch(bin, tmp_path, ["/headers", "/cookies/set?flavour=oat"], **options)
    sent = results.json("/headers")["headers"]
    assert (sent["User-Agent"], sent["X-Set"], sent["X-Secret"]) == (
        "zcrawl-test/7",
        "one",
        "s3cret",
    )
    assert results.json("/cookies/set?flavour=oat") == {"cookies": {"flavour": "oat"}}
