"""The HTML of the demo site. Called by `catalogue`. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from html import escape

STYLE = (
    "body{font:16px/1.5 Georgia,serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "nav a{margin-right:1rem}.price{font-weight:bold}.crumbs{color:#777;font-size:.85rem}"
    "article{border-top:1px solid #ddd;padding:.6rem 0}footer{margin-top:3rem;color:#777}"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tag:
    name: str
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Book:
    path: str
    title: str
    author: str
    price_cents: int
    rating: int  # 1 to 5
    stock: int
    year: int
    number: str
    description: str
    tags: tuple[Tag, ...]

    @property
    def price(self) -> str:
        return f"{self.price_cents // 100}.{self.price_cents % 100:02d}"


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list: number 1 has the list's own path, the others /page/N/ below it."""

    title: str
    path: str
    number: int
    last: int
    books: tuple[Book, ...]
    total: int

    def page_path(self, number: int) -> str:
        return self.path if number == 1 else f"{self.path}page/{number}/"


def home(tags: Sequence[Tag], featured: Sequence[Book]) -> str:
    body = (
        "<h1>The Demo Bookshop</h1>\n"
        "<p>A catalogue that was made by a program so that a crawler has something to read.</p>\n"
        f"<h2>Browse by tag</h2>\n<ul class='tags'>{_items(_link(t.path, t.name) for t in tags)}"
        f"</ul>\n<h2>On the front table</h2>\n{''.join(_teaser(book) for book in featured)}"
    )
    return _document("The Demo Bookshop", [], body)


def tag_index(tags: Sequence[tuple[Tag, int]], total: int) -> str:
    entries = _items(f"{_link(tag.path, tag.name)} ({count})" for tag, count in tags)
    body = f"<h1>Tags</h1>\n<p>{total} books in {len(tags)} tags.</p>\n<ul>{entries}</ul>"
    return _document("Tags", [("/", "Home")], body)


def book_list(listing: Listing) -> str:
    crumbs = [("/", "Home")]
    if listing.path.startswith("/tags/"):
        crumbs.append(("/tags/", "Tags"))
    title = listing.title.capitalize()
    first = (listing.books and f"<p>{listing.total} books.</p>") or "<p>No books yet.</p>"
    body = (
        f"<h1>{escape(title)}</h1>\n{first}\n"
        f"{''.join(_teaser(book) for book in listing.books)}{_pager(listing)}"
    )
    name = title if listing.number == 1 else f"{title}, page {listing.number}"
    return _document(name, crumbs, body)


def book_page(book: Book, related: Sequence[Book]) -> str:
    tags = _items(_link(tag.path, tag.name) for tag in book.tags)
    rows = "".join(
        f"<tr><th>{name}</th><td>{escape(value)}</td></tr>"
        for name, value in (
            ("Number", book.number),
            ("Published", str(book.year)),
            ("Availability", f"{book.stock} in stock" if book.stock else "Out of stock"),
        )
    )
    others = _items(_link(other.path, other.title) for other in related)
    body = (
        f"<h1>{escape(book.title)}</h1>\n<p class='author'>by {escape(book.author)}</p>\n"
        f"<p class='price' data-currency='EUR'>{book.price}</p>\n{_stars(book.rating)}\n"
        f"<div class='description'><p>{escape(book.description)}</p></div>\n"
        f"<table>{rows}</table>\n<h2>Tags</h2>\n<ul class='tags'>{tags}</ul>\n"
        f"<h2>Readers also looked at</h2>\n<ul class='related'>{others}</ul>"
    )
    first = book.tags[0]
    crumbs = [("/", "Home"), ("/tags/", "Tags"), (first.path, first.name.capitalize())]
    return _document(f"{book.title} by {book.author}", crumbs, body)


def _document(title: str, crumbs: Sequence[tuple[str, str]], body: str) -> str:
    nav = "".join(
        _link(path, name)
        for path, name in (("/", "Home"), ("/tags/", "Tags"), ("/books/", "Books"))
    )
    trail = " › ".join([*(_link(path, name) for path, name in crumbs), escape(title)])
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<nav>{nav}</nav>\n<p class='crumbs'>{trail}</p>\n<main>\n{body}\n</main>\n"
        f"<footer>{_link('/', 'Back to the front page')} · {_link('/books/', 'All books')}"
        "</footer>\n</body>\n</html>\n"
    )


def _teaser(book: Book) -> str:
    return (
        f"<article class='book'><h3>{_link(book.path, book.title)}</h3>"
        f"<p>by {escape(book.author)}, <span class='price'>{book.price}</span></p>"
        f"{_stars(book.rating)}</article>\n"
    )


def _pager(listing: Listing) -> str:
    links = []
    if listing.number > 1:
        links.append(_link(listing.page_path(listing.number - 1), "previous", "prev"))
    links.append(f"<span>Page {listing.number} of {listing.last}</span>")
    if listing.number < listing.last:
        links.append(_link(listing.page_path(listing.number + 1), "next", "next"))
    return f"<p class='pager'>{' '.join(links)}</p>"


def _stars(rating: int) -> str:
    return f"<p class='rating' data-rating='{rating}'>{'★' * rating}{'☆' * (5 - rating)}</p>"


def _link(path: str, text: str, rel: str = "") -> str:
    attribute = f" rel='{rel}'" if rel else ""
    return f"<a href='{escape(path)}'{attribute}>{escape(text)}</a>"


def _items(entries: Iterable[str]) -> str:
    return "".join(f"<li>{entry}</li>" for entry in entries)
