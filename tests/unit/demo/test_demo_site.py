"""The demo site: its pages, their links, and the server that serves them."""

from __future__ import annotations

import asyncio
import http.client
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest

from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import DemoServer, demo_site, respond


class LinkReader(HTMLParser):
    """Collects what a page links to and its title."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if tag == "a" and name == "href"]


def links_of(catalogue: DemoCatalogue, path: str) -> list[str]:
    reader = LinkReader()
    reader.feed(catalogue.page(path) or "")
    return [urlsplit(urljoin(f"http://shop.test{path}", link)).path for link in reader.links]


@pytest.fixture(scope="module")
def catalogue() -> DemoCatalogue:
    return DemoCatalogue(seed=7)


def test_every_link_on_every_page_is_a_known_page(catalogue: DemoCatalogue) -> None:
    """No page links to something that the site does not have."""
    paths = set(catalogue.paths())
    for path in paths:
        assert set(links_of(catalogue, path)) <= paths, path


def test_every_page_can_be_reached_from_the_home_page(catalogue: DemoCatalogue) -> None:
    """A crawl that starts at "/" and misses nothing finds exactly paths()."""
    reached, todo = {"/"}, ["/"]
    while todo:
        for link in links_of(catalogue, todo.pop()):
            if link not in reached:
                reached.add(link)
                todo.append(link)
    assert reached == set(catalogue.paths())


def test_paths_are_unique_and_all_have_a_page(catalogue: DemoCatalogue) -> None:
    """paths() names each page once, and page() knows each of them."""
    paths = catalogue.paths()
    assert len(paths) == len(set(paths)) > 600
    assert all(catalogue.page(path) for path in paths)
    assert catalogue.page("/books/page/1/") is None
    assert catalogue.page("/nowhere/") is None


def test_the_same_seed_makes_the_same_site(catalogue: DemoCatalogue) -> None:
    """Pages depend on the arguments only; another seed makes another site."""
    again, other = DemoCatalogue(seed=7), DemoCatalogue(seed=8)
    assert [again.page(path) for path in again.paths()] == [
        catalogue.page(path) for path in catalogue.paths()
    ]
    assert other.page("/") != catalogue.page("/")


def test_a_book_page_has_what_a_shop_shows(catalogue: DemoCatalogue) -> None:
    """Title, price, rating, description and the way back are on a book's page."""
    path = next(path for path in catalogue.paths() if path.endswith("-0001/"))
    page = catalogue.page(path) or ""
    for part in ("<title>", "class='price'", "class='rating'", "class='description'", "crumbs"):
        assert part in page
    assert {"/", "/tags/", "/books/"} <= set(links_of(catalogue, path))


def test_list_pages_are_chained_in_both_directions(catalogue: DemoCatalogue) -> None:
    """Page 2 links to page 1 and to page 3; the first and the last page have one neighbour."""
    assert {"/books/", "/books/page/3/"} <= set(links_of(catalogue, "/books/page/2/"))
    assert "/books/page/29/" in links_of(catalogue, "/books/page/30/")
    assert catalogue.page("/books/page/31/") is None


@pytest.mark.parametrize(("books", "tags"), [(0, 1), (1, 40), (21, 2)])
def test_odd_sizes_keep_the_site_whole(books: int, tags: int) -> None:
    """An empty shop, more tags than words and a list that just needs a second page all hold."""
    site = DemoCatalogue(seed=3, books=books, tags=tags)
    paths = site.paths()
    assert len(paths) == len(set(paths))
    assert {link for path in paths for link in links_of(site, path)} <= set(paths)


def test_a_catalogue_without_tags_is_refused() -> None:
    """Books need a tag to be found under, so no tags is a mistake of the caller."""
    with pytest.raises(ValueError, match="tags >= 1"):
        DemoCatalogue(seed=1, books=5, tags=0)


async def test_the_server_keeps_a_connection_for_many_requests() -> None:
    """Two requests and their answers travel over one connection."""
    site = DemoCatalogue(seed=1, books=5, tags=2)
    async with DemoServer(site) as server:
        parts = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for path in ("/", "/tags/?page=1"):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            assert body.decode() == site.page(path.partition("?")[0])
        assert server.requests == 2
        writer.close()
        await writer.wait_closed()


async def test_closing_the_server_ends_open_connections() -> None:
    """A client that keeps its connection open does not keep the server from closing."""
    async with DemoServer(DemoCatalogue(seed=1, books=1, tags=1)) as server:
        parts = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"</html>")
    await reader.read()
    assert reader.at_eof()
    writer.close()


def test_a_site_in_a_thread_serves_callers_without_a_loop() -> None:
    """demo_site answers a blocking client, robots.txt included, and is gone afterwards."""
    with demo_site(DemoCatalogue(seed=1, books=3, tags=1)) as server:
        parts = urlsplit(server.url)
        client = http.client.HTTPConnection(parts.hostname or "", parts.port)
        client.request("GET", "/robots.txt")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"User-agent: *\nAllow: /\n")
        client.request("GET", "/missing")
        missing = client.getresponse()
        assert missing.status == 404
        missing.read()
        client.close()
    with pytest.raises(ConnectionRefusedError):
        client.request("GET", "/")


@pytest.mark.parametrize(
    ("head", "status", "kept"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 200, True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 200, False),
        (b"GET / HTTP/1.0\r\n\r\n", 200, False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", 200, True),
        (b"HEAD / HTTP/1.1\r\n\r\n", 200, True),
        (b"GET /x HTTP/1.1\r\n\r\n", 404, True),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n", 405, False),
        (b"hello\r\n\r\n", 400, False),
        (b"\xff\xfe\x00 \x01\r\n\r\n", 400, False),
    ],
)
def test_request_heads_get_the_right_answer(head: bytes, status: int, kept: bool) -> None:
    """Methods, versions, connection wishes and garbage each have their status."""
    answer, keep = respond(DemoCatalogue(seed=1, books=1, tags=1), head)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert keep is kept
    if head.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n")


async def test_an_endless_request_head_is_refused() -> None:
    """A head above the limit gets 431 and the connection is closed."""
    async with DemoServer(DemoCatalogue(seed=1, books=1, tags=1)) as server:
        parts = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET /" + b"a" * 40_000)
        assert b" 431 " in await reader.readline()
        writer.close()
