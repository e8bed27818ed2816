"""The content of the demo site: a book catalogue made from a seed.

Decides which pages exist and what they contain; `server` serves them, `zcrawl demo` crawls them,
and tests compare a crawl to `paths()`. Every choice is a hash of the seed and the name of the
choice, not a number of a random generator: a page can be made alone, and is the same on every
Python version.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

from zcrawl.demo import pages, words
from zcrawl.demo.pages import Book, Listing, Tag

PER_LIST = 20  # books on a list page
FEATURED = 12  # books on the home page
RELATED = 4  # books at the foot of a book's page

ROBOTS_TXT = "User-agent: *\nAllow: /\n"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class _Dice:
    """Choices that depend only on the seed and on the name of the choice."""

    seed: int

    def number(self, below: int, *what: object) -> int:
        text = ":".join(str(part) for part in (self.seed, *what))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % below

    def pick(self, options: Sequence[T], *what: object) -> T:
        return options[self.number(len(options), *what)]


class DemoCatalogue:
    """A site: home → tags → lists with pagination → books. The same arguments give the same
    site."""

    def __init__(self, seed: int = 1, books: int = 600, tags: int = 24) -> None:
        if books < 0 or tags < 1:
            raise ValueError(f"a catalogue needs books >= 0 and tags >= 1, not {books} and {tags}")
        dice = _Dice(seed)
        self._dice = dice
        self._tags = [_tag(number) for number in range(tags)]
        self._books = [_book(dice, number, self._tags) for number in range(books)]
        self._lists: dict[str, Listing] = {}
        self._add_lists("All books", "/books/", self._books)
        for tag in self._tags:
            tagged = [book for book in self._books if tag in book.tags]
            self._add_lists(tag.name, tag.path, tagged)
        self._by_path = {book.path: book for book in self._books}

    def paths(self) -> list[str]:
        """Return every page of the site once, in a fixed order. robots.txt is not a page."""
        return ["/", "/tags/", *self._lists, *self._by_path]

    def page(self, path: str) -> str | None:
        """Return the HTML of a path, or None if the site has no such page."""
        if path == "/":
            return pages.home(self._tags, self._books[:FEATURED])
        if path == "/tags/":
            return pages.tag_index(
                [(tag, self._lists[tag.path].total) for tag in self._tags], len(self._books)
            )
        if (listing := self._lists.get(path)) is not None:
            return pages.book_list(listing)
        if (book := self._by_path.get(path)) is not None:
            return pages.book_page(book, self._related(book))
        return None

    def _add_lists(self, title: str, path: str, books: list[Book]) -> None:
        last = max(1, -(-len(books) // PER_LIST))
        for number in range(1, last + 1):
            part = tuple(books[(number - 1) * PER_LIST : number * PER_LIST])
            listing = Listing(title, path, number, last, part, len(books))
            self._lists[listing.page_path(number)] = listing

    def _related(self, book: Book) -> list[Book]:
        count = len(self._books)
        picks = {self._dice.number(count, "related", book.path, n) for n in range(RELATED)}
        return [self._books[pick] for pick in sorted(picks) if self._books[pick] != book]


def _tag(number: int) -> Tag:
    """Return the nth tag; after the end of the word list, words are repeated with a number."""
    again, index = divmod(number, len(words.TAGS))
    name = words.TAGS[index] if not again else f"{words.TAGS[index]} {again + 1}"
    return Tag(name, f"/tags/{_slug(name)}/")


def _book(dice: _Dice, number: int, tags: Sequence[Tag]) -> Book:
    title = " ".join(
        (
            "The",
            dice.pick(words.ADJECTIVES, "adjective", number),
            dice.pick(words.NOUNS, "noun", number),
            dice.pick(words.PLACES, "place", number),
        )
    )
    author = (
        f"{dice.pick(words.FIRST_NAMES, 'first', number)} "
        f"{dice.pick(words.LAST_NAMES, 'last', number)}"
    )
    blurb = " ".join(
        dice.pick(lines, name, number)
        for name, lines in (("a", words.OPENINGS), ("b", words.MIDDLES), ("c", words.ENDINGS))
    )
    tag_count = 1 + dice.number(3, "tag count", number)
    chosen = {dice.number(len(tags), "tag", number, n) for n in range(tag_count)}
    return Book(
        path=f"/books/{_slug(title)}-{number + 1:04d}/",
        title=title,
        author=author,
        price_cents=499 + 10 * dice.number(400, "price", number),
        rating=1 + dice.number(5, "rating", number),
        stock=dice.number(30, "stock", number),
        year=1950 + dice.number(75, "year", number),
        number=f"ZC-{dice.number(10**6, 'number', number):06d}-{number + 1:04d}",
        description=blurb,
        tags=tuple(tags[index] for index in sorted(chosen)),
    )


def _slug(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")
