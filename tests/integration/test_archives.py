"""Archives end to end: redirects, compressed bodies, requests of spiders, and other engines."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import signal
import sqlite3
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.integration.crawling import command, items, start, wait_until
from tests.integration.test_outputs import _check
from tests.unit.extraction import items as extracted
from tests.web.static_site import serving, static_site

warcio = pytest.importorskip("warcio.archiveiterator")

FIELDS = '[extract.fields]\ntitle = "h1"\nprice = { css = ".price", type = "float" }\n'
PAGE = b"<h1>A book</h1><p class=price>12.50</p>"
ZIPPED = gzip.compress(PAGE, mtime=0)


def site(other: str = "") -> type[BaseHTTPRequestHandler]:
    class Site(BaseHTTPRequestHandler):
        """/ links to /old, which leads over /older to /book; /away leads to another host."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            moved = {"/old": "/older", "/older": "/book", "/away": f"{other}/book"}
            if self.path == "/robots.txt":
                return self.say(404, b"")
            if self.path in moved:
                return self.say(302, b"this way", Location=moved[self.path])
            if self.path == "/book":
                return self.say(200, ZIPPED, Content_Encoding="gzip", Content_Type="text/html")
            links = b"<h1>Home</h1><a href=/old>o</a><a href=/away>a</a>"
            return self.say(200, links, Content_Type="text/html")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.say(200, b"<h1>" + body + b"</h1>", Content_Type="text/html")

        def say(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A test's output is not the place for access logs."""

    return Site


@pytest.fixture
def origins() -> Iterator[tuple[str, str]]:
    with serving(site()) as other, serving(site(other)) as origin:
        yield origin, other


def archived(folder: Path, job: str) -> tuple[dict[str, Any], list[Any]]:
    """The crawl's summary, and (record, body as it is in the file) of its archive."""
    output = '[output]\nto = ["items.jsonl", "pages.warc.gz"]\n'
    (folder / "job.toml").write_text(f'name = "a"\n{job}\n{output}')
    args = ("crawl", "--job", "job.toml", "--data", "d", "--workers", 1, "--rate", 0)
    done = command(*args, "--allow-private", "--json", cwd=folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    path = folder / "d" / "pages.warc.gz"
    assert _check(path) == 0, "warcio's own checker"
    records = []
    with path.open("rb") as file:
        for record in warcio.ArchiveIterator(file, check_digests="raise"):
            records.append((record, record.raw_stream.read()))
    return json.loads(done.stdout.splitlines()[-1]), records


def responses(records: list[Any]) -> dict[str, Any]:
    pairs = [(r, body) for r, body in records if r.rec_type == "response"]
    urls = [r.rec_headers["WARC-Target-URI"] for r, _ in pairs]
    assert len(set(urls)) == len(urls), "each exchange once"
    return dict(zip(urls, pairs, strict=True))


@pytest.mark.parametrize("engine", ["http", "httpx"])
def test_an_archive_has_every_hop_and_bodies_as_they_came(
    origins: tuple[str, str], tmp_path: Path, engine: str
) -> None:
    """Replayed by warcio, the responses give the crawl's items again."""
    origin, other = origins
    hosts = f'["{origin.partition("//")[2]}", "{other.partition("//")[2]}"]'
    fetch = f'[fetch]\nengine = "{engine}"\nheaders = {{ X-Mark = "here" }}\n'
    summary, records = archived(
        tmp_path, f'seeds = ["{origin}/"]\n[scope]\nhosts = {hosts}\n{fetch}{FIELDS}'
    )
    assert summary["pages"] == 3, "home, the book, and the other host's book"
    kept = responses(records)
    assert {url: r.http_headers.get_statuscode() for url, (r, _) in kept.items()} == {
        f"{origin}/": "200",
        f"{origin}/old": "302",
        f"{origin}/older": "302",
        f"{origin}/book": "200",
        f"{origin}/away": "302",
        f"{other}/book": "200",
    }
    assert kept[f"{origin}/old"][1] == b"this way"
    book, raw = kept[f"{origin}/book"]
    assert raw == ZIPPED
    assert book.http_headers["Content-Encoding"] == "gzip"
    for kind in ("request", "metadata"):
        urls = [r.rec_headers["WARC-Target-URI"] for r, _ in records if r.rec_type == kind]
        assert sorted(urls) == sorted(kept)
    request_headers = [r.http_headers for r, _ in records if r.rec_type == "request"]
    assert all(
        headers["X-Mark"] == "here" and headers["Accept-Encoding"] for headers in request_headers
    )
    assert_replay_gives_the_items(tmp_path / "d", 3)


def assert_replay_gives_the_items(data: Path, count: int) -> None:
    """An item has the URL that was asked for: /old, where the archive has /book."""
    again = [
        item
        for url, body in replayed(data / "pages.warc.gz")
        for item in extracted(FIELDS, body, url=url)
    ]
    crawled_items = items(data / "items.jsonl")
    assert _without_url(again) == _without_url(crawled_items)
    assert len(crawled_items) == count


def replayed(path: Path) -> Iterator[tuple[str, bytes]]:
    """Pages as any reader of archives gets them: decoded."""
    for record in warcio.ArchiveIterator(io.BytesIO(path.read_bytes())):
        if record.rec_type == "response" and record.http_headers.get_statuscode() == "200":
            yield record.rec_headers["WARC-Target-URI"], record.content_stream().read()


def _without_url(crawled_items: list[dict[str, Any]]) -> list[Any]:
    return sorted((item["title"], item["price"]) for item in crawled_items if item.pop("url"))


def test_a_spiders_post_is_archived_with_its_body(origins: tuple[str, str], tmp_path: Path) -> None:
    """And its items are there as without an archive."""
    (tmp_path / "s.py").write_text(
        "from zcrawl.spider import Request, Spider\n"
        "class S(Spider):\n"
        "    def start(self):\n"
        f"        yield Request('{origins[0]}/form', method='POST', body=b'q=1')\n"
        "    def parse(self, page):\n"
        "        yield {'title': page.text_of('h1')}\n"
    )
    _, records = archived(tmp_path, 'spider = "s.py:S"')
    (request,) = [pair for pair in records if pair[0].rec_type == "request"]
    assert request[0].http_headers.protocol == "POST"
    assert request[1] == b"q=1"
    assert responses(records)[f"{origins[0]}/form"][1] == b"<h1>q=1</h1>"
    assert items(tmp_path / "d" / "items.jsonl") == [{"title": "q=1"}]


NAMES = ("gone", "moved", "down", "shaky", "lost", "x")


class Failing(BaseHTTPRequestHandler):
    """/ links to pages that fail: /gone and /down for good, /shaky until its third answer, /lost
    behind a redirect that leads to no answer at all."""

    protocol_version = "HTTP/1.1"
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path = self.path
        self.paths.append(path)
        times = self.paths.count(path)
        if path == "/robots.txt":
            return self.say(404, b"no rules")
        if path == "/":
            links = "".join(f"<a href=/{n}>{n}</a>" for n in NAMES)
            return self.say(200, f"<h1>Home</h1>{links}".encode())
        if path == "/moved":
            return self.say(301, b"", Location="/missing")
        if path == "/lost":
            return self.say(302, b"there", Location="/silent")
        if path == "/silent":
            self.close_connection = True
            return None
        if path == "/shaky" and times < 3:
            return self.say(503, f"not yet {times}".encode(), Retry_After="0")
        if path in ("/shaky", "/x"):
            return self.say(200, PAGE)
        zipped = gzip.compress(f"answer {times} of {path}".encode(), mtime=0)
        status = 503 if path == "/down" else 410 if path == "/gone" else 404
        return self.say(status, zipped, Content_Encoding="gzip", Retry_After="0")

    def say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Type": "text/html", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A test's output is not the place for access logs."""


@pytest.mark.parametrize("engine", ["http", "httpx"])
def test_an_archive_has_the_answers_that_failed_their_pages(tmp_path: Path, engine: str) -> None:
    """The last one of each request, with its body as it came; those that were tried again are not
    there. The 2xx answers alone replay to the crawl's items."""
    site = type("Site", (Failing,), {"paths": []})
    with serving(site) as origin:
        fetch = f'[fetch]\nengine = "{engine}"\nretries = 2\n'
        summary, records = archived(tmp_path, f'seeds = ["{origin}/"]\n{fetch}{FIELDS}')
        assert (summary["pages"], summary["failed"]) == (3, 4)
        kept = responses(records)
        assert {url: r.http_headers.get_statuscode() for url, (r, _) in kept.items()} == {
            f"{origin}/": "200",
            f"{origin}/gone": "410",
            f"{origin}/moved": "301",
            f"{origin}/missing": "404",
            f"{origin}/down": "503",
            f"{origin}/shaky": "200",
            f"{origin}/lost": "302",
            f"{origin}/x": "200",
        }
        assert gzip.decompress(kept[f"{origin}/down"][1]) == b"answer 3 of /down"
        assert gzip.decompress(kept[f"{origin}/gone"][1]) == b"answer 1 of /gone"
        assert kept[f"{origin}/missing"][0].http_headers.statusline == "404 Not Found"
        assert [r.rec_type for r, _ in records].count("request") == len(kept)
        assert [r.rec_type for r, _ in records].count("metadata") == len(kept)
        assert_replay_gives_the_items(tmp_path / "d", 3)
        done = command("export", "a", "--data", "d", "--out", "e.warc.gz", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert _check(tmp_path / "e.warc.gz") == 0
        exported = (tmp_path / "e.warc.gz").read_bytes()
        record_ids = {record.rec_headers["WARC-Record-ID"] for record, _ in records[1:]}
        read = list(warcio.ArchiveIterator(io.BytesIO(exported)))
        assert {record.rec_headers["WARC-Record-ID"] for record in read[1:]} == record_ids


def test_after_kill_9_an_archive_has_each_failed_answer_once(tmp_path: Path) -> None:
    """A hundred pages, every second of which is not there; killed twice on the way."""

    class Half(Failing):
        paths: ClassVar[list[str]] = []

        def do_GET(self) -> None:
            number = self.path.strip("/")
            if number.isdecimal():
                status = 200 if int(number) % 2 else 404
                return self.say(status, f"<h1>{number}</h1>".encode())
            if self.path == "/robots.txt":
                return self.say(404, b"")
            links = "".join(f"<a href=/{n}>{n}</a>" for n in range(100))
            return self.say(200, links.encode())

    folder, data = tmp_path, ("--data", tmp_path / "d", "--workers", 1)
    with serving(Half) as origin:
        (folder / "job.toml").write_text(
            f'name = "a"\nseeds = ["{origin}/"]\n[output]\nto = ["p.warc.gz"]\n'
        )
        first = ("crawl", "--job", "job.toml", "--rate", 40, "--allow-private", *data)
        for number, args in enumerate((first, ("crawl", "--resume", *data)), 1):
            crawl = start(*args, cwd=folder)
            wait_until(lambda number=number: captures(folder) >= 20 * number)
            crawl.send_signal(signal.SIGKILL)
            crawl.communicate()
        done = command("crawl", "--resume", *data, cwd=folder)
        assert done.returncode in (0, 1), done.stderr
        path = folder / "d" / "p.warc.gz"
        assert _check(path) == 0
        records = [(r, b"") for r in warcio.ArchiveIterator(io.BytesIO(path.read_bytes()))]
        kept = responses(records)
        assert len(kept) == 101
        missing = [r for r, _ in kept.values() if r.http_headers.get_statuscode() == "404"]
        assert len(missing) == 50


def captures(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder}/d/zcrawl.db?mode=ro", uri=True) as database:
            return int(database.execute("SELECT COUNT(*) FROM items WHERE kind = 3").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_an_archive_is_exported_without_the_bodies_that_are_lost(tmp_path: Path) -> None:
    """Told on stderr, exit 0: the other pages are worth having."""
    pages = {"/": ("text/html", b"<a href=/a>a</a>"), "/a": ("text/html", b"<p>second</p>")}
    with static_site(pages) as origin:
        args = ("--data", "d", "--out", "x.warc.gz", "--workers", 1, "--rate", 0)
        done = command("crawl", f"{origin}/", *args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    name = hashlib.sha256(b"<p>second</p>").hexdigest()
    (tmp_path / "d" / "blobs" / name[:2] / name[2:4] / name).unlink()
    done = command("export", "1", "--data", "d", "--out", "y.warc.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 bodies are lost" in done.stderr
    assert name in done.stderr
    assert (tmp_path / "y.warc.gz").stat().st_size > 0
