"""The classes for writing spiders: `from zcrawl.spider import Spider, Request, Page, on`.

A spider is a class (or one function) whose handlers take a page and yield items and requests.
It runs in a child process of a worker (`worker.extensions.spider_child`), one page at a time;
the worker takes care of robots.txt, pace and the address guard. docs/spiders.md is the guide.
"""

from __future__ import annotations

import dataclasses
import json as _json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import httpx
import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from zcrawl.frontier.query_encoding import encode_query
from zcrawl.frontier.url import (
    CANONICAL_VERSION,
    DEFAULT,
    LinkResolver,
    join,
    uses_page_encoding,
)
from zcrawl.parse.charset import decode
from zcrawl.parse.links import links_of
from zcrawl.parse.prose import words_of

__all__ = ["Handler", "Item", "Output", "Page", "Request", "Spider", "Yields", "on"]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request that a spider yields. Its URL may be relative to the page of the handler."""

    url: str
    handler: str | Callable[..., Any] = ""  # gets the page; empty: chosen by `on`, or `parse`
    method: str = "GET"
    body: bytes | str = b""
    json: Any = None  # instead of a body: sent as JSON
    form: Mapping[str, str] | None = None  # instead of a body: sent as a form
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    priority: int = 0  # higher goes first
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # given back as page.meta


Item: TypeAlias = Any  # a dict, a dataclass, a msgspec.Struct: anything that is a JSON object
Output: TypeAlias = Request | Item
Yields: TypeAlias = (
    Iterable[Output] | AsyncIterator[Output] | Awaitable[Iterable[Output] | None] | None
)
Handler: TypeAlias = Callable[["Page"], Yields]
_H = TypeVar("_H", bound=Callable[..., Any])


class Page:
    """A response, as a handler gets it. It is parsed when first needed, and only once."""

    def __init__(
        self,
        url: str,
        status: int,
        headers: list[tuple[str, str]],
        body: bytes,
        *,
        requested_url: str = "",
        meta: Mapping[str, Any] | None = None,
        depth: int = 0,
        parent: str | None = None,
        handler: str = "",
        canonical_version: int = CANONICAL_VERSION,
    ) -> None:
        self.url = url  # after redirects
        self.requested_url = requested_url or url
        self.status = status
        self.body = body
        self.meta: dict[str, Any] = dict(meta or {})  # of its request
        self.depth = depth
        self.parent = parent
        self.handler = handler  # that its request named
        self.raw_headers = headers
        self._rules = msgspec.structs.replace(DEFAULT, version=canonical_version)  # of the run
        self._headers: httpx.Headers | None = None
        self._text: str | None = None
        self._encoding = "utf-8"  # replaced when the text is decoded
        self._tree: LexborHTMLParser | None = None

    @property
    def headers(self) -> httpx.Headers:
        """The headers, by name; upper and lower case do not matter."""
        if self._headers is None:
            self._headers = httpx.Headers(self.raw_headers)
        return self._headers

    @property
    def content_type(self) -> str:
        header = next((v for k, v in self.raw_headers if k.lower() == "content-type"), "")
        return header.partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        """The body as text, in the encoding that the headers or the page name."""
        if self._text is None:
            kind = next((v for k, v in self.raw_headers if k.lower() == "content-type"), "")
            self._text, self._encoding = decode(self.body, kind)
        return self._text

    @property
    def encoding(self) -> str:
        """The encoding of the text, by its name in the WHATWG Encoding Standard."""
        _ = self.text
        return self._encoding

    @property
    def tree(self) -> LexborHTMLParser:
        if self._tree is None:
            self._tree = LexborHTMLParser(self.text)
        return self._tree

    def css(self, selector: str) -> list[LexborNode]:
        """Return all elements that match a selector."""
        return self.tree.css(selector)

    def first(self, selector: str) -> LexborNode | None:
        return self.tree.css_first(selector)

    def text_of(self, selector: str, default: str = "") -> str:
        """Return the text of the first element that matches, on one line."""
        node = self.first(selector)
        return default if node is None else words_of(node)

    def json(self) -> Any:
        """Return the body as JSON; raise ValueError if it is not JSON."""
        return _json.loads(self.body)

    @property
    def links(self) -> list[str]:
        """The links of the page: absolute, in canonical form, without repeats."""
        tree, resolver = self.tree, LinkResolver(self._rules)
        links, _ = links_of(tree, self.url, True, resolver.for_page(self.encoding))
        return [url for url, _ in links]

    def encode_query(self, href: str) -> str:
        """Return the link with an ASCII query, encoded as browsers do on such a page."""
        if uses_page_encoding(self.encoding, self._rules):
            return encode_query(href, self.encoding)
        return href

    def join(self, href: str) -> str:
        """Return the absolute URL of `href`, in canonical form; raise errors.BadUrl if invalid."""
        return join(self.url, href, self._rules, self.encoding)

    @property
    def response(self) -> httpx.Response:
        """Return the same response as an object of httpx."""
        gone = ("content-encoding", "content-length", "transfer-encoding")  # the body is decoded
        kept = [pair for pair in self.raw_headers if pair[0].lower() not in gone]
        request = httpx.Request("GET", self.url)
        return httpx.Response(self.status, headers=kept, content=self.body, request=request)

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"


def on(url: str = "", *, type: str = "") -> Callable[[_H], _H]:
    """Mark the handler of some pages: the pattern `url` is found in their URL, or their content
    type begins with `type`. Used if a page's request names no handler; the first match wins."""
    pattern = re.compile(url)

    def mark(function: _H) -> _H:
        function.__dict__["zcrawl_on"] = (pattern, type)
        return function

    return mark


class Spider:
    """The base class of spiders. `start` yields the first requests, in addition to the seeds of
    the job. `parse` gets pages for which no other handler is named or marked by `on`. The arguments
    of the class are the job's `spider_args`."""

    def start(self) -> Yields:
        return ()

    def parse(self, page: Page) -> Yields:
        raise NotImplementedError(f"no handler takes {page.url}: write parse, or use @on(...)")

    def handler_for(self, page: Page) -> Handler:
        """Return the handler that the request names, else the marked one, else `parse`."""
        if page.handler:
            return _named(self, page.handler)
        for name, (pattern, kind) in self._kinds():
            if pattern.search(page.url) and page.content_type.startswith(kind):
                handler: Handler = getattr(self, name)
                return handler
        return self.parse

    def _kinds(self) -> Iterator[tuple[str, tuple[re.Pattern[str], str]]]:
        """Yield the marked handlers as they are written, the class itself before its bases."""
        seen: set[str] = set()
        for owner in type(self).__mro__:
            for name, value in vars(owner).items():
                kind = getattr(value, "zcrawl_on", None)
                if kind is not None and name not in seen:
                    yield name, kind
                seen.add(name)


class FunctionSpider(Spider):
    """A spider that is one function. Handlers that its requests name are in its module."""

    def __init__(self, function: Handler, module: Mapping[str, Any]) -> None:
        self._function, self._module = function, module

    def handler_for(self, page: Page) -> Handler:
        if not page.handler or page.handler == getattr(self._function, "__name__", ""):
            return self._function
        function = self._module.get(page.handler)
        if page.handler.startswith("_") or not callable(function):
            raise LookupError(f"the spider's module has no function {page.handler!r}")
        taken: Handler = function
        return taken


def _named(spider: Spider, name: str) -> Handler:
    handler = None if name.startswith("_") else getattr(spider, name, None)
    if not callable(handler):
        raise LookupError(f"{type(spider).__name__} has no handler {name!r}")
    taken: Handler = handler
    return taken
