"""The child process that finds main content: `python -m zcrawl.parse.children.content_child`.

Started by `content`. Questions and answers are MessagePack with a length before it, on stdin and
stdout; the end of stdin is the end of it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO

import msgpack

from zcrawl.errors import BadUrl
from zcrawl.frontier.url import absolute, join
from zcrawl.parse.charset import decode
from zcrawl.parse.children.content import LENGTH
from zcrawl.runtime.confine import close_inherited, confine

MISSING = "main content needs the extra 'content': pip install 'zcrawl[content]'"


def main() -> None:
    source, target = sys.stdin.buffer, sys.stdout.buffer
    os.nice(5)
    close_inherited()
    confine()  # it reads foreign pages; where the system cannot, it has no secret of its own
    while True:
        head = source.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        (length,) = LENGTH.unpack(head)
        question = msgpack.unpackb(source.read(length))
        _answer(target, {} if question is None else content_of(*question))


def content_of(body: bytes, content_type: str, url: str) -> dict[str, Any]:
    try:
        import trafilatura
    except ImportError:
        return {"error": MISSING}
    text, encoding = decode(body, content_type)
    try:
        tree = trafilatura.load_html(text)
        if tree is None:
            return {}
        _make_links_absolute(tree, url, encoding)
        return {
            kind: trafilatura.extract(
                tree if kind == "markdown" else text,
                url=url,
                output_format=form,
                include_links=kind == "markdown",
                include_formatting=kind == "markdown",
                include_comments=False,
            )
            for kind, form in (("markdown", "markdown"), ("text", "txt"))
        }
    except Exception as error:  # whatever the library trips over costs this page's field only
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def _make_links_absolute(tree: Any, page_url: str, encoding: str) -> None:
    """Resolve the links of an lxml tree as `parse.links` does: against the first good <base>, else
    against the page. The library would resolve them against the root of the page's host. A link
    that cannot be resolved keeps its text only."""
    base = page_url
    for element in tree.iter("base"):
        try:
            base = join(page_url, element.get("href", ""), page_encoding=encoding)
        except BadUrl:
            continue
        break
    for element in tree.iter("a"):
        href = element.get("href")
        if href is None:
            continue
        try:
            element.set("href", absolute(base, href, encoding))
        except ValueError:
            del element.attrib["href"]


def _answer(target: BinaryIO, answer: dict[str, Any]) -> None:
    data = msgpack.packb(answer)
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()


if __name__ == "__main__":
    main()
