"""Every case of tests/web is driven through the whole crawler by some test; here are those that no
other test of whole crawls asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import FAST, command, crawl
from tests.servers.certificates import make_certificates
from tests.web.behaviours import BEHAVIOURS, CHARSETS
from tests.web.proxies import HttpProxy, SocksProxy
from tests.web.server import MisbehavingWeb, WebThread
from tests.web.tls_servers import http2_only, members_only
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.roles.embedded import EmbeddedCluster

FAILED = {
    "/bad-chunk": "protocol",
    "/close-in-header": "reset",
    "/corrupt-gzip": "bad_encoding",
    "/cut-gzip": "truncated",
    "/reset-within": "truncated",
}
GOOD = [
    "/lies-short-and-closes",
    "/lies-short-at-once",
    "/until-close",
    "/large-header",
    "/odd-header",
    "/cookie",
    "/close-after",
    "/close-on-second",
    "/body-after/204",
    "/echo",
    "/bad-links",
    *(f"/charset/{name}" for name in CHARSETS),
    *(f"/charset/meta/{name}" for name in ("latin-1", "shift_jis")),
    "/charset/none/utf-8",
    "/charset/lying",
    "/charset/unheard-of",
]


def test_no_case_is_left_out() -> None:
    """A behaviour that no test of a whole crawl names proves nothing about the crawler."""
    here = Path(__file__).parent
    text = "\n".join(file.read_text() for file in here.glob("test_*.py"))
    assert [name for name in BEHAVIOURS if name != "index" and f"/{name}" not in text] == []


def test_a_server_that_speaks_again_after_its_answer_is_read_once(tmp_path: Path) -> None:
    """Alone on its server: what comes unasked, after the next request has been sent, no client of
    HTTP/1.1 can tell from the answer to that."""
    with WebThread() as web:
        out = ("--out", tmp_path / "o.jsonl", "--data", tmp_path / "d", "--workers", 1)
        done = command("crawl", web.url("/speaks-again"), "--no-robots", *out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 1


def test_odd_answers_are_read_and_broken_ones_have_their_names(tmp_path: Path) -> None:
    """Each URL ends once, by name; titles survive whatever encoding they come in."""
    with WebThread() as web:
        paths = [*FAILED, *GOOD, "/redirect-elsewhere"]
        (tmp_path / "seeds").write_text("\n".join(map(web.url, paths)))
        flags = ("--depth", 0, "--retries", 0, "--rate", 0, "--workers", 1, "--json")
        out = ("--out", tmp_path / "o.jsonl", "--data", tmp_path / "d")
        done = command("crawl", "--seeds", "seeds", *flags, *out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        items = map(json.loads, (tmp_path / "o.jsonl").read_text().splitlines())
        titles = {item["url"].removeprefix(web.origin): item["title"] for item in items}
        exported = command(
            *("export", 1, "--failed", "--out", tmp_path / "f.jsonl", "--data", tmp_path / "d"),
            cwd=tmp_path,
        )
        assert exported.returncode == 0, exported.stderr
        rows = map(json.loads, (tmp_path / "f.jsonl").read_text().splitlines())
        reasons = {row["url"].removeprefix(web.origin): row["reason"] for row in rows}
        # Another name of the same server is another host, for which nobody has vouched.
        elsewhere = {url: why for url, why in reasons.items() if url.startswith("http")}
        assert set(elsewhere.values()) == {"blocked_address: loopback (localhost)"}
        assert reasons.pop("/redirect-elsewhere") == "redirected"
        assert {url: why for url, why in reasons.items() if url not in elsewhere} == FAILED
        assert set(titles) == set(GOOD)
        for name, text in CHARSETS.items():
            assert titles[f"/charset/{name}"] == text
        assert titles["/charset/meta/shift_jis"] == CHARSETS["shift_jis"]


@pytest.mark.parametrize("engine", ["http", "httpx"])
async def test_a_crawl_shows_its_certificate_and_trusts_its_own_ca(
    tmp_path: Path, engine: str
) -> None:
    """Through the whole crawler; without the certificate the door stays closed."""
    made = make_certificates(tmp_path)
    keys: dict[str, Any] = {
        "client_cert": str(made.client_cert),
        "client_key": str(made.client_key),
    }
    async with members_only(made) as url, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        for name, more, pages in (("member", keys, 1), ("stranger", {}, 0)):
            fetch = Fetch(engine=engine, ca_file=str(made.ca), retries=0, **more)
            spec = JobSpec(name, politeness=FAST, fetch=fetch, scope=Scope(max_depth=0))
            assert (await crawl(cluster, spec, [url]))["pages"] == pages


async def test_a_crawl_speaks_http2_where_its_engine_has_it(tmp_path: Path) -> None:
    """The server says which one it was spoken to in: 3 bytes of text, over two protocols."""
    made = make_certificates(tmp_path)
    async with http2_only(made) as url, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        for http2 in (True, False):
            fetch = Fetch(engine="httpx", ca_file=str(made.ca), http2=http2, retries=0)
            out = tmp_path / f"{http2}.jsonl"
            spec = JobSpec(
                f"two-{http2}", politeness=Politeness(rate=0.0, robots=False), fetch=fetch
            )
            view = await crawl(cluster, spec, [url], out)
            assert view["pages"] == 1
            kind = json.loads(out.read_text())["content_type"]
            assert kind == ("text/plain" if http2 else "")


@pytest.mark.parametrize("rotation", ["least_failures", "sticky"])
async def test_every_rotation_goes_around_a_broken_proxy(
    tmp_path: Path, rotation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`round_robin` is tried with more of them in test_access. SOCKS5 with a password."""
    monkeypatch.setenv("ZCRAWL_SECRET_PW", "s3cret")
    async with (
        MisbehavingWeb() as web,
        SocksProxy(user="ann", password="s3cret") as socks,
        HttpProxy(fault="hang_up") as broken,
    ):
        proxies = (broken.url, socks.url.replace("s3cret", "${PW}"))
        fetch = Fetch(proxies=proxies, proxy_rotation=rotation, retries=0)
        spec = JobSpec("proxied", politeness=FAST, fetch=fetch)
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [web.url("/good/20/0")])
        assert (view["pages"], view["failed_reasons"]) == (20, {})
        assert socks.served > 0


FLOODS = {
    "too_large": [
        *("/endless-extension", "/many-extensions", "/endless-chunk-padding", "/endless-trailer"),
        "/many-trailers",
    ],
    "protocol": [
        *("/many-headers", "/endless-header-padding", "/endless-interims", "/endless-blank"),
    ],
}


async def test_a_crawl_ends_what_a_server_sends_without_end(tmp_path: Path) -> None:
    """Chunk extensions, trailers, headers and interim answers: each by its name, long before the
    time of a request is over."""
    fetch = Fetch(max_bytes=500_000, retries=0, timeout=60.0)
    spec = JobSpec("floods", politeness=FAST, fetch=fetch, scope=Scope(max_depth=0))
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path, 1) as cluster:
        seeds = [web.url(path) for paths in FLOODS.values() for path in paths]
        view = await crawl(cluster, spec, seeds)
    assert view["failed_reasons"] == {code: len(paths) for code, paths in FLOODS.items()}
