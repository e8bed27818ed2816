"""Every kind of extraction rule in one job file, from the file to the output through the mesh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.crawling import command, items
from tests.integration.test_extraction import run
from tests.unit.parse.test_extract_data import STRUCTURED
from tests.web.static_site import static_site

HOME = b"""<title>Shop</title><h1>Shop</h1><ul class=menu><li><a href=/list/1>books</a></ul>
<a href=/about>about</a><a href=/product>p</a><a href=/secret>not followed</a>"""
LIST = b"""<p class=book data-id=1><b>One</b><a href=/one>read</a></p>
<p class=book data-id=2><b>Two</b><a href=/two>read</a></p><a class=next href=/list/2>next</a>"""
LAST = b"<p class=book data-id=3><b>Three</b><a href=/one>read</a></p>"
ONE = b"""<h1>  The   One </h1><p class=price>1.234,50 EUR</p><p class=pages>320 pages</p>
<p class=stock>yes</p><time>31.01.2026</time><a class=img href=../cover.png>c</a>
<div class=text>First <i>line</i><br>second</div><ul><li>a</li><li>b</li></ul>
<div class=who><b>Ann</b><a href=/ann>x</a></div>
<p class=review data-stars=5>good</p><p class=review data-stars=3>so so</p>"""
TWO = b"<h1>Two</h1><p class=price>call us</p>"
SITE = {
    "/": ("text/html", HOME),
    "/list/1": ("text/html", LIST),
    "/list/2": ("text/html", LAST),
    "/one": ("text/html", ONE),
    "/two": ("text/html", TWO),
    "/about": ("text/html", b"<title>About</title><h1>About</h1>"),
    "/product": ("text/html", b"<title>P</title>" + STRUCTURED.encode()),
    "/secret": ("text/html", b"<h1>Secret</h1>"),
}
JOB = """
name = "rules"
[[extract]]
name = "book"
match = "^nothing has this URL$"
follow = []
[extract.fields]
title = { css = "h1", required = true }
price = { css = ".price", type = "float", decimal = "," }
pages = { css = ".pages", re = '(\\d+)', type = "int", default = 0 }
stock = { css = ".stock", type = "bool", default = false }
day = { css = "time", type = "date", format = "%d.%m.%Y" }
cover = { css = ".img", attr = "href", type = "url" }
html = { css = ".text", type = "html" }
text = { css = ".text", type = "text" }
markdown = { css = ".text", type = "markdown" }
tags = { css = "li", list = true }
who = { css = ".who", fields = { name = "b", link = { css = "a", attr = "href", type = "url" } } }
[extract.fields.reviews]
css = ".review"
list = true
fields = { stars = { attr = "data-stars", type = "int" }, said = {} }

[[extract]]
name = "list"
match = '/list/\\d+$'
item = ".book"
follow = [".next", { css = ".book a", to = "book" }]
[extract.fields]
id = { attr = "data-id", type = "int" }
name = "b"

[[extract]]
name = "product"
match = { css = "[itemscope]" }
structured = ["jsonld", "opengraph", "microdata"]
follow = []
[extract.fields]
price = { jsonld = "Product.offers[0].price", type = "float" }
image = { opengraph = "og:image", list = true }
author = { microdata = "Book.author.name" }
at = { page = "final_url" }

[[extract]]
name = "home"
match = '/$'
follow = [".menu", { css = "a", re = '/(about|product)$' }]
"""


def test_blocks_by_url_by_selector_and_by_link_read_every_type_of_field(tmp_path: Path) -> None:
    """Tags, lists and books in one file; one item per match, nested objects and lists, every
    type, defaults, and what the page says to machines. A page that no block matches gives nothing,
    and a link that no rule names is not followed."""
    with static_site(SITE) as origin:
        summary = run(tmp_path, JOB, f"{origin}/")
    assert summary["pages"] == 7, "all but /secret"
    crawled_items = items(tmp_path / "out.jsonl")
    lists = [(record["id"], record["name"]) for record in crawled_items if "id" in record]
    assert sorted(lists) == [(1, "One"), (2, "Two"), (3, "Three")]
    (record,) = [item for item in crawled_items if item["url"] == f"{origin}/one"]
    assert record == {
        "url": f"{origin}/one",
        "title": "The One",
        "price": 1234.5,
        "pages": 320,
        "stock": True,
        "day": "2026-01-31",
        "cover": f"{origin}/cover.png",
        "html": record["html"],
        "text": "First line\nsecond",
        "markdown": record["markdown"],
        "tags": ["a", "b"],
        "who": {"name": "Ann", "link": f"{origin}/ann"},
        "reviews": [{"stars": 5, "said": "good"}, {"stars": 3, "said": "so so"}],
    }
    assert "<i>line</i>" in record["html"]
    assert "*line*" in record["markdown"].replace("_", "*")
    (two,) = [item for item in crawled_items if item["url"] == f"{origin}/two"]
    assert (two["price"], two["pages"], two["stock"], two["tags"]) == (None, 0, False, [])
    (product,) = [item for item in crawled_items if item["url"] == f"{origin}/product"]
    assert (product["price"], product["image"], product["author"]) == (9.99, ["1", "2"], "A")
    assert product["at"] == f"{origin}/product"
    assert product["opengraph"] == {"og:title": "T", "og:image": ["1", "2"]}
    assert product["jsonld"]["Person"]["name"] == "P"
    assert product["microdata"]["Book"]["url"] == f"{origin}/b"
    assert len(crawled_items) == 6, "nothing of the home page and of /about"
    view = json.loads(command("job", "rules", "--data", "d", "--json", cwd=tmp_path).stdout)
    assert view["fields"]["book.price"] == {"filled": 1, "empty": 0, "failed": 1, "percent": 50.0}
    assert view["fields"]["list.id"]["filled"] == 3
    assert view["fields"]["product.author"]["percent"] == 100.0


def test_what_init_writes_is_tested_and_crawls_as_it_is(tmp_path: Path) -> None:
    """A job file with rules, and a spider whose test a plain pytest runs."""
    import subprocess
    import sys

    with static_site(
        {"/": ("text/html", b"<title>Home</title><h1>Home</h1><a href=/a>a</a>")}
    ) as site:
        assert command("init", "rules", "--seed", f"{site}/", cwd=tmp_path).returncode == 0
        made = command("init", "news", "--spider", "--seed", f"{site}/", cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        tested = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_news.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert tested.returncode == 0, tested.stdout
        assert " passed" in tested.stdout, tested.stdout
        for name in ("rules", "news"):
            args = ("--data", name, "--workers", 1, "--rate", 0, "--out", f"{name}.jsonl")
            done = command("crawl", "--job", f"{name}.toml", *args, "--allow-private", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert len(items(tmp_path / f"{name}.jsonl")) >= 1, name


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_a_node_of_several_hosts_refuses_to_start_with_a_folder_for_bodies(
    tmp_path: Path, kind: str
) -> None:
    """Unless it is declared shared: what one host keeps the others could not find."""
    (tmp_path / "zcrawl.toml").write_text(
        f'[bodies]\nurl = "{tmp_path}/bodies"\n[consul]\naddress = "consul.invalid:8500"\n'
        '[database]\nurls = ["mysql://u:p@db.invalid/x"]\n[mesh]\ninsecure = true\n'
    )
    args = (kind, "--id", "n1", "--config", "zcrawl.toml", "--data", "d")
    done = command(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "bodies.shared = true" in done.stderr
