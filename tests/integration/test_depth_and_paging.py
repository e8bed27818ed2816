"""What a depth costs, through the real commands: a template that loses nothing, lists of pages that
add no depth, and links that are counted where a depth ends."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.crawling import command, items
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import demo_site

# One long list: page 8 of it is seven steps behind page 1, and no book names another.
SHOP = DemoCatalogue(seed=1, books=145, tags=1)
FAST = ("--rate", "0", "--json")

LISTS = """
[scope]
max_depth = {depth}
include = ['/books/']
[[extract]]
name = "list"
match = '/books/(page/\\d+/)?$'
follow = [{{ css = "h3 a", to = "book" }}, {{ css = "a[rel=next]", to = "list"{paging} }}]
[[extract]]
name = "book"
match = '/books/.+-\\d+/$'
follow = []
[extract.fields]
title = "h1"
"""


def test_a_job_of_init_gets_every_page_of_the_book_shop(tmp_path: Path) -> None:
    """As it is written, without an edit: every page of the site is an item."""
    with demo_site(SHOP) as shop:
        assert command("init", "shop", "--seed", shop.url, cwd=tmp_path).returncode == 0
        done = command("crawl", "--job", "shop.toml", *FAST, "--out", "o.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    paths = {item["url"].removeprefix(shop.url.rstrip("/")) for item in items(tmp_path / "o.jsonl")}
    assert paths == set(SHOP.paths())
    assert json.loads(done.stdout.splitlines()[-1])["dropped"] == {}


def crawl_lists(tmp_path: Path, depth: int, paging: str) -> tuple[int, dict[str, object], str]:
    with demo_site(SHOP) as shop:
        text = f'name = "lists"\nseeds = ["{shop.url}books/"]\n'
        text += LISTS.format(depth=depth, paging=paging)
        (tmp_path / "lists.toml").write_text(text)
        done = command("crawl", "--job", "lists.toml", *FAST, "--out", "o.jsonl", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    people = command("job", "lists", cwd=tmp_path).stdout
    return len(items(tmp_path / "o.jsonl")), json.loads(done.stdout.splitlines()[-1]), people


def test_pages_of_a_list_add_no_depth(tmp_path: Path) -> None:
    """All books of eight list pages, one step below them."""
    count, summary, _ = crawl_lists(tmp_path, 1, ", paging = true")
    assert (count, summary["dropped"]) == (145, {})


def test_what_a_depth_leaves_out_is_told(tmp_path: Path) -> None:
    """Without paging each page of the list is a step: books are lost, and every place tells it."""
    count, summary, people = crawl_lists(tmp_path, 3, "")
    # Pages 1 to 4 are read; of page 4, at depth 3, twenty books and the next page are too deep.
    assert (count, summary["dropped"]) == (60, {"too_deep": 21})
    assert "too_deep × 21" in people
    view = json.loads(command("job", "lists", "--json", cwd=tmp_path).stdout)
    assert view["dropped"] == {"too_deep": 21}
