"""Extraction end to end: job files, the mesh, the database, the files."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import command, items, start, wait_until
from tests.web.static_site import static_site
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import DemoServer, demo_site

BOOKS = DemoCatalogue(books=120, tags=6)
JOB = Path(__file__).parents[2] / "configs" / "jobs" / "books.toml"


@pytest.fixture(scope="module")
def shop() -> Iterator[DemoServer]:
    with demo_site(BOOKS) as server:
        yield server


def run(tmp_path: Path, job: Path | str, *more: object) -> dict[str, object]:
    if isinstance(job, str):
        (tmp_path / "job.toml").write_text(job)
        job = tmp_path / "job.toml"
    done = command(
        *("crawl", "--job", job, "--rate", 0, "--workers", 1, "--json", "--data", tmp_path / "d"),
        *("--out", tmp_path / "out.jsonl", *more),
        cwd=tmp_path,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_a_catalogue_of_tags_lists_and_books_is_one_job_file(
    shop: DemoServer, tmp_path: Path
) -> None:
    """The shipped job finds every tagged book with every field, and nothing else is fetched."""
    summary = run(tmp_path, JOB, shop.url)
    crawled_items = items(tmp_path / "out.jsonl")
    books = {book.path: book for book in BOOKS._books}
    assert len(crawled_items) == len(books) == summary["items"]
    for item in crawled_items:
        book = books["/" + item["url"].removeprefix(shop.url)]
        assert item["title"] == book.title
        assert item["author"] == book.author
        assert item["price"] == book.price_cents / 100
        assert item["currency"] == "EUR"
        assert (item["rating"], item["stock"], item["year"]) == (book.rating, book.stock, book.year)
        assert item["number"] == book.number
        assert item["description"] == book.description
        assert [tag["name"] for tag in item["tags"]] == [tag.name for tag in book.tags]
        assert item["tags"][0]["link"] == shop.url.rstrip("/") + book.tags[0].path
    lists = [path for path in BOOKS.paths() if path.startswith("/tags/") and path != "/tags/"]
    assert summary["pages"] == 1 + len(lists) + len(books), "neither /books/ nor /tags/ is read"
    shown = command("job", "books", "--data", tmp_path / "d", "--json", cwd=tmp_path)
    fields = json.loads(shown.stdout)["fields"]
    assert fields["book.title"] == {"filled": 120, "empty": 0, "failed": 0, "percent": 100.0}
    out_of_stock = sum(book.stock == 0 for book in books.values())
    assert fields["book.stock"]["empty"] == out_of_stock
    assert "field book.title" in command("job", "books", "--data", "d", cwd=tmp_path).stdout


def test_a_crawl_that_was_killed_goes_on_with_the_blocks_its_links_were_followed_to(
    shop: DemoServer, tmp_path: Path
) -> None:
    """kill -9 in the middle, then --resume: the blocks were stored with the links."""
    data, out = tmp_path / "d", tmp_path / "out.jsonl"
    crawl = start(
        *("crawl", shop.url, "--job", JOB, "--rate", 60, "--data", data, "--out", out),
        *("--workers", 1),
        cwd=tmp_path,
    )
    wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") > 10)
    crawl.send_signal(signal.SIGKILL)
    crawl.communicate()
    done = command("crawl", "--resume", "--data", data, "--json", "--workers", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    urls = [item["url"] for item in items(out)]
    assert len(urls) == len(set(urls)) == 120
    assert all(item["title"] for item in items(out))


SITE = {
    "/": ("text/html", b"<h1>Start</h1><a href=/good>g</a><a href=/bad>b</a><a href=/ugly>u</a>"),
    "/good": ("text/html", b"<h1>Good</h1><p class=price>12,50 EUR</p>"),
    "/bad": ("text/html", b"<h1>Bad</h1><p class=price>call us</p>"),
    "/ugly": ("text/html", b"<p class=price>-3</p>"),
}
PRICES = """
name = "prices"
[extract]
[extract.fields]
title = { css = "h1", required = true }
price = { css = ".price", type = "float" }
[extract.schema.properties]
price = { type = "number", minimum = 0 }
"""


def test_items_that_break_the_rules_are_set_aside_counted_and_exported(tmp_path: Path) -> None:
    """Nothing is lost: good items in the file, the others with their reason in an export."""
    with static_site(SITE) as origin:
        summary = run(tmp_path, PRICES, f"{origin}/")
    assert (summary["pages"], summary["items"]) == (4, 3)
    assert {item["title"]: item["price"] for item in items(tmp_path / "out.jsonl")} == {
        "Start": None,
        "Good": 12.5,
        "Bad": None,
    }
    view = json.loads(command("job", "prices", "--data", "d", "--json", cwd=tmp_path).stdout)
    assert view["rejected_items"] == {"required: title": 1}
    assert view["fields"]["price"] == {"filled": 2, "empty": 1, "failed": 1, "percent": 50.0}
    output = command("export", "prices", "--data", "d", "--rejected", cwd=tmp_path).stdout
    (rejected,) = map(json.loads, output.splitlines())
    assert rejected["url"] == f"{origin}/ugly"
    assert rejected["reason"] == "required: title"
    assert rejected["item"] == {"url": f"{origin}/ugly", "title": None, "price": -3.0}
    output = command("export", "prices", "--data", "d", "--problems", cwd=tmp_path).stdout
    (problem,) = map(json.loads, output.splitlines())
    assert problem["url"] == f"{origin}/bad"
    assert problem["errors"] == {"price": "not a number: 'call us'"}
    both = command("export", "prices", "--data", "d", "--rejected", "--failed", cwd=tmp_path)
    assert both.returncode == 2


API = {
    "/api?page=1": (
        "application/json",
        b'{"results": [{"id": 1, "at": "2026-01-31"}, {"id": 2}], "next": "/api?page=2"}',
    ),
    "/api?page=2": ("application/vnd.x+json", b'{"results": [{"id": "3"}], "next": null}'),
}


def test_a_json_api_is_crawled_by_paths_through_its_pages(tmp_path: Path) -> None:
    """Items, the link to the next page, and types, without a line of HTML."""
    job = """
name = "api"
[extract]
item = { json = "results" }
follow = [{ json = "next" }]
fields = { id = { json = "id", type = "int" }, at = { json = "at", type = "date" } }
"""
    with static_site(API) as origin:
        run(tmp_path, job, f"{origin}/api?page=1")
    assert [(item["id"], item["at"]) for item in items(tmp_path / "out.jsonl")] == [
        (1, "2026-01-31"),
        (2, None),
        (3, None),
    ]


STORY = b"<p>" + b"The river rose in the night and took the old bridge with it. " * 12 + b"</p>"
ARTICLE = (
    b"<html><head><title>News</title></head><body><nav><a href=/>Home</a> <a href=/x>Sport</a>"
    b"</nav><article><h1>Flood</h1>" + STORY * 3 + b"</article><footer>imprint</footer></body>"
)


def test_main_content_comes_from_a_process_of_its_own(tmp_path: Path) -> None:
    """Text and Markdown of the story, without navigation and footer."""
    pytest.importorskip("trafilatura")
    job = """
name = "news"
[extract]
follow = []
[extract.fields]
text = { main = true, type = "text" }
story = { main = true, type = "markdown" }
"""
    with static_site({"/": ("text/html", ARTICLE)}) as origin:
        run(tmp_path, job, f"{origin}/")
    (item,) = items(tmp_path / "out.jsonl")
    assert "took the old bridge" in item["text"]
    assert "took the old bridge" in item["story"]
    assert "imprint" not in item["text"]
    assert "Sport" not in item["text"]


def test_a_broken_selector_is_told_before_anything_is_fetched(tmp_path: Path) -> None:
    """Exit 2, with the file and the key."""
    (tmp_path / "bad.toml").write_text('name = "x"\n[extract.fields]\na = "p[["\n')
    done = command("crawl", "http://a.test/", "--job", "bad.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.toml: extract.fields.a.css: not a CSS selector" in done.stderr


def test_the_test_command_shows_a_table_and_again_when_the_file_is_saved(
    shop: DemoServer, tmp_path: Path
) -> None:
    """An error in the file is printed and watching continues; Ctrl-C ends it."""
    job = tmp_path / "job.toml"
    job.write_text(JOB.read_text())
    book = shop.url + next(path for path in BOOKS.paths() if path.count("-") > 1).lstrip("/")
    done = command("test", "job.toml", book, "--block", "book", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rating" in done.stdout
    assert "item" in done.stdout
    linked = command("test", "job.toml", shop.url, cwd=tmp_path).stdout
    assert "→ list" in linked
    assert "not followed" in linked
    assert command("test", "job.toml", book, "--block", "nope", cwd=tmp_path).returncode == 2
    watching = start("test", "job.toml", book, "--block", "book", "--watch", cwd=tmp_path)
    assert watching.stderr is not None
    assert watching.stdout is not None
    lines: list[str] = []
    next_line = watching.stderr.readline
    thread = threading.Thread(target=lambda: lines.extend(iter(next_line, "")))
    thread.start()
    wait_until(lambda: len(lines) >= 1)
    job.write_text(job.read_text().replace('title = { css = "h1"', 'title = { css = "h1[["'))
    wait_until(lambda: any("not a CSS selector" in line for line in lines))
    job.write_text(JOB.read_text().replace("rating = {", "stars = {"))
    wait_until(lambda: sum("watching" in line for line in lines) >= 3)
    watching.send_signal(signal.SIGINT)
    try:
        watching.wait(30)
    finally:
        watching.kill()  # nobody waits for ever for what it would still say
    out = watching.stdout.read()
    thread.join(30)
    watching.stdout.close()
    watching.stderr.close()
    assert watching.returncode == 130
    assert "rating" in out
    assert "stars" in out
