"""What a crawl tells at its end, through the real command: why pages and items are missing, with
the first example of each reason, and what to do next. The same is in `--json`, `job` and `export`.
"""

from __future__ import annotations

import json
import os
import shlex
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command
from tests.servers.certificates import make_certificates
from tests.web.static_site import static_site

HTML = "text/html"
SPIDER = """\
from zcrawl.spider import Request, Spider

class Books(Spider):
    def parse(self, page):
        prices = page.css(".price")
        yield {"price": prices[0].text()}
"""
QUICK = ("--rate", 0, "--workers", 1, "--allow-private", "--data", "d")


def crawl(folder: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return command("crawl", *arguments, *QUICK, "--out", "o.jsonl", cwd=folder, **options)


def lines_of(done: subprocess.CompletedProcess[str], start: str) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith(start)]


def json_of(folder: Path, *arguments: object) -> dict[str, Any]:
    done = command(*arguments, "--data", "d", "--json", cwd=folder)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.fixture
def shop() -> Iterator[str]:
    pages = {
        "/": (HTML, b"<title>Shop</title><a href=/b1>1</a><a href=/b2>2</a><p class=price>1</p>"),
        "/b1": (HTML, b"<h1>One</h1><p class=price>12"),
        "/b2": (HTML, b"<h1>Two</h1><p class=price>n/a"),
        "/empty": (HTML, b"<title>None</title>"),
    }
    with static_site(pages) as origin:
        yield origin


def test_what_a_spider_raises_is_told_with_type_message_file_and_line(
    shop: str, tmp_path: Path
) -> None:
    """In the summary, `job` and `export --failed`; the command that is named shows the same."""
    (tmp_path / "sp.py").write_text(SPIDER)
    url = f"{shop}/empty"
    done = crawl(tmp_path, url, "--spider", "sp.py:Books")
    assert done.returncode == 1, "no page was done"
    raised = "IndexError: list index out of range (sp.py, line 6, in parse)"
    assert f"failed: spider_error × 1: {raised} at {url}" in done.stderr.splitlines()
    (then,) = lines_of(done, "then: ")
    assert then == f"then: zcrawl test --spider sp.py:Books {url}"
    test = command(*shlex.split(then)[2:], cwd=tmp_path)
    assert test.returncode == 1
    assert raised in test.stdout

    view = json_of(tmp_path, "job", 1)
    assert view["examples"]["failed"] == {"spider_error": {"url": url, "detail": raised}}
    shown = command("job", 1, "--data", "d", cwd=tmp_path).stdout
    assert f"{raised} at {url}" in shown
    assert f"zcrawl test --spider sp.py:Books {url}" in shown
    failed = command("export", 1, "--failed", "--data", "d", cwd=tmp_path).stdout
    rows = {row["state"]: row for row in map(json.loads, failed.splitlines())}
    assert (rows["dead"]["url"], rows["dead"]["detail"]) == (url, raised)


def test_the_json_summary_has_the_reasons_with_their_examples(shop: str, tmp_path: Path) -> None:
    """As the last line of stdout; nothing is narrated."""
    (tmp_path / "sp.py").write_text(SPIDER)
    done = crawl(tmp_path, f"{shop}/empty", f"{shop}/none", "--spider", "sp.py:Books", "--json")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.stderr == ""
    assert done.returncode == 1
    assert summary["failed_reasons"] == {"http_404": 1, "spider_error": 1}
    assert summary["examples"]["failed"].keys() == {"http_404", "spider_error"}
    assert summary["examples"]["failed"]["http_404"] == {"url": f"{shop}/none", "detail": ""}


def test_a_reason_without_a_detail_is_told_with_its_first_page(shop: str, tmp_path: Path) -> None:
    """The reason says it all; the URL helps to find the page. Exit 0: there were pages."""
    done = crawl(tmp_path, f"{shop}/", f"{shop}/x?a=1&b=2", f"{shop}/y")
    assert done.returncode == 0
    assert f"failed: http_404 × 2, the first at {shop}/x?a=1&b=2" in done.stderr.splitlines()
    assert f"then: zcrawl test '{shop}/x?a=1&b=2'" in done.stderr.splitlines(), "for a shell"


JOB = """
name = "books"
seeds = ["{shop}/b1", "{shop}/b2", "{shop}/empty"]
[extract.fields]
title = {{ css = "h1", required = true }}
price = ".price"
stock = ".stock"
[extract.schema.properties.price]
type = "string"
maxLength = 2
"""


def test_items_set_aside_are_told_with_field_value_and_page(shop: str, tmp_path: Path) -> None:
    """By the job's rules: a schema and a required field, with the first page of each."""
    (tmp_path / "job.toml").write_text(JOB.format(shop=shop))
    done = crawl(tmp_path, "--job", "job.toml")
    assert done.returncode == 0
    required, schema = lines_of(done, "items set aside: ")
    assert schema.startswith('items set aside: schema: price × 1: price is "n/a": ')
    assert schema.endswith(f" at {shop}/b2")
    assert required == (
        f"items set aside: required: title × 1: title: it has no value at {shop}/empty"
    )
    assert lines_of(done, "never filled: stock;")
    assert lines_of(done, "then: ") == [f"then: zcrawl test job.toml {shop}/empty"]
    view = json_of(tmp_path, "job", 1)
    assert view["examples"]["rejected"].keys() == {"schema: price", "required: title"}
    shown = command("job", 1, "--data", "d", cwd=tmp_path).stdout
    assert 'price is "n/a"' in shown
    assert f"zcrawl test JOB.toml {shop}/empty" in shown
    again = json_of(tmp_path, "crawl", "--job", "job.toml", *QUICK[:5], "--out", "p.jsonl")
    assert again["rejected_items"] == {"schema: price": 1, "required: title": 1}
    assert again["examples"]["rejected"]["schema: price"]["url"] == f"{shop}/b2"
    assert again["fields"]["stock"]["filled"] == 0


PLUGIN = """\
from zcrawl.plugins import Drop

class Picky:
    def before_request(self, request):
        if request.url.endswith("/b2"):
            request.headers["X-Token"] = {}["token"]

    def before_item(self, item, page):
        if page.url.endswith("/b1"):
            raise Drop("too cheap")
        return item
"""


def test_what_a_middleware_raises_or_drops_is_told(shop: str, tmp_path: Path) -> None:
    """A raise with its line; a drop with the page, and without the item: that may be private."""
    installed = tmp_path / "installed"
    (installed / "picky-1.dist-info").mkdir(parents=True)
    (installed / "picky-1.dist-info" / "METADATA").write_text("Name: picky\nVersion: 1\n")
    (installed / "picky-1.dist-info" / "entry_points.txt").write_text(
        "[zcrawl.middlewares]\npicky = picky:Picky\n"
    )
    (installed / "picky.py").write_text(PLUGIN)
    (tmp_path / "job.toml").write_text(
        f'name = "m"\nseeds = ["{shop}/"]\nmiddlewares = ["picky"]\n'
    )
    paths = filter(None, (str(installed), os.environ.get("PYTHONPATH", "")))
    done = crawl(
        *(tmp_path, "--job", "job.toml"),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    raised = "picky: KeyError: 'token' (picky.py, line 6, in before_request)"
    lines = done.stderr.splitlines()
    assert f"failed: middleware_error × 1: {raised} at {shop}/b2" in lines
    dropped = f"items set aside: dropped by middleware picky: too cheap × 1 at {shop}/b1"
    assert dropped in lines


def test_an_expired_certificate_is_told_in_words(tmp_path: Path) -> None:
    """What OpenSSL says is the detail; nothing was fetched, so the exit code is 1."""
    made = make_certificates(tmp_path / "tls", days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server_cert, made.server_key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients that refuse it
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"https://127.0.0.1:{server.server_address[1]}/"
    (tmp_path / "job.toml").write_text(
        f'name = "tls"\nseeds = ["{url}"]\n[fetch]\nca_file = "{made.ca}"\n'
    )
    try:
        done = crawl(tmp_path, "--job", "job.toml", "--retries", 0, "--no-robots")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert done.returncode == 1
    (line,) = lines_of(done, "failed: tls × 1: ")
    assert "certificate has expired" in line
    assert url in line
    assert lines_of(done, "then: ") == [f"then: zcrawl test job.toml {url}"]


def test_robots_depth_and_scope_are_told_with_what_to_do(tmp_path: Path) -> None:
    """The summary names the forbidden page and the remedy; omitted links are counted by reason."""
    pages = {
        "/robots.txt": ("text/plain", b"User-agent: zcrawl\nDisallow: /private\n"),
        "/": (HTML, b"<a href=/private/1>p</a><a href=/a>a</a><a href=http://other.test/>o</a>"),
        "/a": (HTML, b"<a href=/deep>d</a>"),
    }
    with static_site(pages) as origin:
        done = crawl(tmp_path, f"{origin}/", "--depth", 1)
        only = crawl(tmp_path, f"{origin}/private/2", "--data", "e")
    lines = done.stderr.splitlines()
    assert done.returncode == 0
    forbidden = "robots.txt forbids it for 'zcrawl'"
    assert f"skipped: robots × 1: {forbidden} at {origin}/private/1" in lines
    assert any("--no-robots" in line for line in lines)
    (left_out,) = lines_of(done, "links not followed: ")
    assert "out_of_scope_host × 1" in left_out
    assert "too_deep × 1 (scope.max_depth" in left_out
    assert only.returncode == 1, "nothing was answered with 2xx or 304"


def test_what_a_page_puts_into_an_error_cannot_command_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in a message that a spider raises are shown, not obeyed."""
    source = "def crawl(page):\n    raise ValueError(page.text)\n"
    (tmp_path / "sp.py").write_text(source)
    with static_site({"/": (HTML, b"\x1b[31mred\nline two [bold]x[/bold]")}) as origin:
        done = crawl(tmp_path, f"{origin}/", "--spider", "sp.py:crawl")
        shown = command("job", 1, "--data", "d", cwd=tmp_path)
    assert "\x1b" not in done.stderr + shown.stdout
    (line,) = lines_of(done, "failed: spider_error")
    assert "[31mred" in line
    assert "[bold]x[/bold]" in line
    assert line.endswith(f" at {origin}/")
