"""One page as extraction sees it: the tree or the JSON, and what is derived from it on demand.

Used by `parse.extract.plan`. Pure. A page keeps the book of its fields: how often each was filled,
empty or failed, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from zcrawl.frontier.url import Resolver, absolute
from zcrawl.parse.cost import TimeBudget
from zcrawl.parse.extract import structured
from zcrawl.parse.extract.types import FieldProblem

FILLED, EMPTY, FAILED = range(3)


class PageContext:
    """What the pipeline knows of a page besides its body."""

    __slots__ = ("label", "main", "url", "values")

    def __init__(
        self, url: str, label: str, values: Mapping[str, Any], main: Mapping[str, Any] | None
    ) -> None:
        self.url = url  # after redirects: what links are relative to
        self.label = label
        self.values = values
        self.main = main  # {"text", "markdown"} or {"error"}, where the job asks for it


class SourcePage:
    def __init__(
        self,
        facts: PageContext,
        resolver: Resolver,
        tree: LexborHTMLParser | None,
        json: Any = None,
        title: str | None = None,
        follow_nofollow: bool = False,
        base: str | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self.facts = facts
        self.resolver = resolver
        self.tree = tree
        self.json = json
        self.title = title
        self.follow_nofollow = follow_nofollow
        self.counts: dict[str, list[int]] = {}
        self._budget = budget
        self._base = base  # None: not looked for yet
        self._parts: dict[str, Any] = {}
        self._at: LexborNode | None = None
        self._first: dict[str, LexborNode | None] = {}

    def check(self) -> None:
        """Called between two steps. Raises TooCostly when the page has had its time here."""
        if self._budget is not None:
            self._budget.check()

    @property
    def base(self) -> str:
        """What relative URLs on this page mean: the first good <base>, else the page."""
        if self._base is None:
            self._base = self.facts.url
            for node in self.tree.tags("base") if self.tree is not None else ():
                self.check()
                href = node.attributes.get("href")
                link = None if href is None else self.resolver.resolve(self.facts.url, href)
                if link is not None:
                    self._base = link[0]
                    break
        return self._base

    def absolute(self, href: str) -> str:
        """Where `href` leads from this page, of any scheme. Raises ValueError."""
        return absolute(self.base, href, self.resolver.page_encoding)

    def part(self, name: str) -> Any:
        """Structured data, read once per page."""
        if name not in self._parts:
            self._parts[name] = self._read(name)
        return self._parts[name]

    def _read(self, name: str) -> Any:
        if self.tree is None:
            return {}
        if name == "jsonld":
            return structured.jsonld(self.tree)
        if name == "opengraph":
            return structured.opengraph(self.tree)
        return structured.microdata(self.tree, self.absolute, self.check)

    def main(self, text_format: str) -> str | None:
        main = self.facts.main
        if main is None:
            return None
        if "error" in main:
            raise FieldProblem(str(main["error"]))
        text: str | None = main.get(text_format)
        return text

    def fact(self, name: str) -> Any:
        return self.title if name == "title" else self.facts.values[name]

    def first_at(self, scope: LexborNode, css: str) -> LexborNode | None:
        """The first match, kept for the other fields of this place that look for the same."""
        if scope is not self._at:
            self._at, self._first = scope, {}
        if css not in self._first:
            self._first[css] = scope.css_first(css)
        return self._first[css]
