"""Redirects to pages of the same crawl, through the real command: each page is there once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.crawling import command, items

LINKS = {
    "/": ["/go/1", "/product/1", "/go/2", "/old/2", "/go/3"],
    "/product/1": ["/only-by-product"],
    "/product/2": ["/product/3"],
    "/product/3": ["/go/1"],
    "/only-by-product": [],
}
REDIRECTS = {
    "/go/1": "/product/1",  # that the home page names too
    "/go/2": "/product/2",  # that nobody names but redirects
    "/old/2": "/go/2",
    "/go/3": "/product/3",  # that a page names which only a redirect leads to
}


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        target, links = REDIRECTS.get(self.path), LINKS.get(self.path)
        anchors = "".join(f"<a href={link}>x</a>" for link in links or ())
        body = f"<title>{self.path}</title>{anchors}".encode()
        self.send_response(301 if target else 404 if links is None else 200)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def shop() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def crawl(tmp_path: Path, shop: str, more: str) -> tuple[list[str], dict[str, object]]:
    """The pages of the items, sorted, and the job's view."""
    (tmp_path / "shop.toml").write_text(f'name = "shop"\nseeds = ["{shop}/"]\n{more}\n')
    done = command(
        *("crawl", "--job", "shop.toml", "--rate", "0", "--json", "--out", "o.jsonl"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    view = json.loads(command("job", "shop", "--json", cwd=tmp_path).stdout)
    pages = sorted(item["final_url"].removeprefix(shop) for item in items(tmp_path / "o.jsonl"))
    return pages, view


def test_a_product_that_redirects_lead_to_is_there_once(tmp_path: Path, shop: str) -> None:
    """The order does not matter; all links are followed, and each request has its reason."""
    pages, view = crawl(tmp_path, shop, "")
    assert pages == sorted(LINKS)
    assert view["state"] == "completed"
    assert view["pages"] == len(LINKS)
    reasons = view["skipped_reasons"]
    assert isinstance(reasons, dict)
    assert set(reasons) <= {"duplicate", "redirect_target"}
    listed = command("export", "shop", "--failed", cwd=tmp_path).stdout.splitlines()
    reasons_by_path = {
        row["url"].removeprefix(shop): row["reason"] for row in map(json.loads, listed)
    }
    assert reasons_by_path["/go/1"] == f"duplicate of {shop}/product/1"
    assert reasons_by_path["/product/2"] == "redirect_target"
    assert len(reasons_by_path) == view["skipped"]


def test_a_job_that_does_not_collapse_redirects_has_them_all(tmp_path: Path, shop: str) -> None:
    """As many items as requests that were answered."""
    pages, view = crawl(tmp_path, shop, "[scope]\ncollapse_redirects = false")
    assert len(pages) == view["pages"] == 8
    assert pages.count("/product/2") == 2
    assert view["skipped"] == 0
