"""What a crawl of a documentation folder must find, computed from the files alone.

Nothing of zcrawl is used here, on purpose: the standard library's HTML parser and URL functions
read the folder as a browser would see it behind a web server, so that a mistake in zcrawl's own
parser or canonical form cannot hide in the expected result.
"""

from __future__ import annotations

import dataclasses
import functools
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

POSTGRES_MANUAL = Path("/usr/share/doc/postgresql-doc-15/html")
PYTHON_MANUAL = Path("/usr/share/doc/python3-doc/html")

_ORIGIN = "http://reference.test"
_LINKS = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}


@dataclasses.dataclass(frozen=True)
class ReferenceSet:
    """URL paths (percent-encoded as the pages write them), by what is behind them."""

    pages: frozenset[str]  # HTML files
    others: frozenset[str]  # files that exist and are no HTML
    missing: frozenset[str]  # links to nothing: a crawler must get 404 here


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.base: str | None = None
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "base" and self.base is None:
            self.base = values.get("href")
        elif (name := _LINKS.get(tag)) is not None and (link := values.get(name)) is not None:
            self.links.append(link.strip())


@functools.cache
def reference_set(folder: Path, start: str = "/index.html") -> ReferenceSet:
    """All that can be reached from `start` by links that stay on the site."""
    if not (folder / start.lstrip("/")).is_file():
        raise FileNotFoundError(
            f"{folder}{start} is not there: `make test` installs the documentation packages"
        )
    pages: set[str] = set()
    others: set[str] = set()
    missing: set[str] = set()
    seen = {start}
    todo = [start]
    while todo:
        path = todo.pop()
        file = folder / unquote(urlsplit(path).path).lstrip("/")
        if not file.is_file():
            missing.add(path)
        elif file.suffix not in (".html", ".htm"):
            others.add(path)
        else:
            pages.add(path)
            for link in _links_of(file, path):
                if link not in seen:
                    seen.add(link)
                    todo.append(link)
    return ReferenceSet(frozenset(pages), frozenset(others), frozenset(missing))


def _links_of(file: Path, path: str) -> set[str]:
    """The site-local targets of one page, without fragments, as path and query."""
    parser = _Links()
    parser.feed(file.read_text(encoding="utf-8", errors="replace"))
    base = urljoin(_ORIGIN + path, parser.base or "")
    targets = set()
    for link in parser.links:
        target = urlsplit(urldefrag(urljoin(base, link)).url)
        if f"{target.scheme}://{target.netloc}" == _ORIGIN:
            targets.add((target.path or "/") + (f"?{target.query}" if target.query else ""))
    return targets
