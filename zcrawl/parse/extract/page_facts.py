"""The page that extraction reads: the tree or the JSON, and data that is derived on demand.

Used by `parse.extract.plan`. Pure. A page counts for each field how often it was filled, empty or
failed.
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
    """The facts of a page besides its body, from the pipeline."""

    __slots__ = ("block", "main", "url", "values")

    def __init__(
        self, url: str, block: str, values: Mapping[str, Any], main: Mapping[str, Any] | None
    ) -> None:
        self.url = url  # after redirects; links are relative to it
        self.block = block
        self.values = values
        self.main = main  # {"text", "markdown"} or {"error"}, if the job needs it


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
        self._base = base  # None: not read yet
        self._parts: dict[str, Any] = {}
        self._at: LexborNode | None = None
        self._first: dict[str, LexborNode | None] = {}

    def check(self) -> None:
        """Raise TooCostly when the time of the page is over. Called between two steps."""
        if self._budget is not None:
            self._budget.check()

    @property
    def base(self) -> str:
        """The base of relative URLs on this page: the first valid <base>, otherwise the page."""
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
        """Return `href` as an absolute URL of any scheme. Raises ValueError."""
        return absolute(self.base, href, self.resolver.page_encoding)

    def part(self, name: str) -> Any:
        """Return structured data, read once per page."""
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
        """Return the first match, cached for other fields with the same selector in this scope."""
        if scope is not self._at:
            self._at, self._first = scope, {}
        if css not in self._first:
            self._first[css] = scope.css_first(css)
        return self._first[css]
