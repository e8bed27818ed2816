"""Convert an element to words, to text with line breaks, or to Markdown. Pure.

Called by `parse.extract.fields`, `parse.extract.structured` and spiders. Elements that begin a new
line or a cell in a browser separate words; inline elements do not: `B<i>o</i>ld` is one word.

The same walk over the nodes makes text and Markdown: Markdown is the text with marks. A walk keeps
its own stack, because a page may nest deeper than Python's limit of recursion. Tables become rows
with `|`; other elements without an equivalent in Markdown become their text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from selectolax.lexbor import LexborNode

from zcrawl.frontier.url import absolute
from zcrawl.text.patterns import lazy_pattern

MAX_CHARS: Final = 1_000_000
_STEPS_BETWEEN_CHECKS: Final = 256
Check = Callable[[], None]

_SKIPPED = frozenset(("script", "style", "template", "noscript", "head", "svg", "iframe"))
_BLOCKS = frozenset(
    ("p", "div", "section", "article", "main", "header", "footer", "aside", "nav", "figure",
     "figcaption", "address", "dl", "dt", "dd", "form", "fieldset", "details", "summary",
     "ul", "ol", "li", "table", "tr", "blockquote", "pre", "hr",
     "h1", "h2", "h3", "h4", "h5", "h6",
     "caption", "center", "dialog", "dir", "hgroup", "legend", "menu", "optgroup", "option",
     "search")
)  # fmt: skip
_LINES = {"li", "tr", "dt", "dd", "caption", "legend", "optgroup", "option"}
_PARAGRAPHS = _BLOCKS - _LINES  # an empty line around them
_SEPARATES_WORDS = _BLOCKS | {"br", "td", "th"}
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "del": "~~", "s": "~~"}
_SPACE = lazy_pattern(r"[ \t\r\n\f]+")
_BLANK_LINES = lazy_pattern(r"\n{3,}")
_SPACE_AT_BREAK = lazy_pattern(r"[ \t]+(?=\n)")


def words_of(node: LexborNode, check: Check = lambda: None) -> str:
    """Return the text on one line with single spaces. Scripts keep their text, because a field may
    select one. `check` is called regularly, and may stop the walk with an exception."""
    words = node.text().split()
    child = node.first_child
    if child is None or (child.next is None and child.is_text_node):
        return " ".join(words)
    # Most elements have white space wherever a tag could separate words: a cheap check in C.
    if words == node.text(separator=" ").split():
        return " ".join(words)
    return " ".join(_separated(node, check).split())


def _separated(root: LexborNode, check: Check) -> str:
    parts: list[str] = []
    stack: list[LexborNode | None] = [root]  # None: the end of an element that separates words
    steps = 0
    while stack:
        steps += 1
        if not steps % _STEPS_BETWEEN_CHECKS:
            check()
        node = stack.pop()
        if node is None:
            parts.append(" ")
        elif node.is_text_node:
            parts.append(node.text_content or "")
        elif node.is_element_node:
            if node.tag in _SEPARATES_WORDS:
                parts.append(" ")
                stack.append(None)
            child = node.last_child
            while child is not None:
                stack.append(child)
                child = child.prev
    return "".join(parts)


def text_of(node: LexborNode, check: Check = lambda: None) -> str:
    """Return the text with a line for each block and an empty line between paragraphs. `check` is
    called regularly, and may stop the walk with an exception."""
    return _walk(node, None, check)


def markdown_of(
    node: LexborNode, base: str, check: Check = lambda: None, page_encoding: str = "utf-8"
) -> str:
    """Return CommonMark, with links resolved against `base` on a page in that encoding."""
    return _walk(node, base, check, page_encoding)


class _Writer:
    def __init__(self, base: str | None, page_encoding: str) -> None:
        self.base = base
        self.page_encoding = page_encoding
        self.out: list[str] = []
        self.length = 0
        self.at_break = True  # at the beginning of a line: spaces are dropped
        self.preformatted = 0
        self.lists: list[int] = []  # of each open list the next number, or -1 for bullets
        self.cells = 0

    def write(self, text: str) -> None:
        if text:
            self.out.append(text)
            self.length += len(text)
            self.at_break = text.endswith("\n")

    def text(self, text: str) -> None:
        if self.preformatted:
            self.write(text)
            return
        text = _SPACE.sub(" ", text)
        if self.at_break or (self.out and self.out[-1].endswith(" ")):
            text = text.lstrip(" ")
        self.write(text)

    def line(self, empty: bool = False) -> None:
        """Begin a new line if needed; with `empty`, after an empty line."""
        if not self.out:
            return
        if not self.at_break:
            self.write("\n")
        if empty and not (len(self.out) > 1 and self.out[-1] == self.out[-2] == "\n"):
            self.write("\n")


def _walk(root: LexborNode, base: str | None, check: Check, page_encoding: str = "utf-8") -> str:
    writer = _Writer(base, page_encoding)
    # (node, ("", "")): enter it; (None, (tag, closing text)): leave it.
    stack: list[tuple[LexborNode | None, tuple[str, str]]] = [(root, ("", ""))]
    steps = 0
    while stack and writer.length < MAX_CHARS:
        steps += 1
        if not steps % _STEPS_BETWEEN_CHECKS:
            check()
        node, (tag, closing) = stack.pop()
        if node is None:
            _leave(writer, tag, closing)
            continue
        if node.is_text_node:
            writer.text(node.text_content or "")
            continue
        if not node.is_element_node:
            continue
        tag = node.tag or ""
        if tag in _SKIPPED:
            continue
        stack.append((None, (tag, _enter(writer, tag, node))))
        child = node.last_child
        while child is not None:
            stack.append((child, ("", "")))
            child = child.prev
    text = "".join(writer.out)[:MAX_CHARS]
    return _BLANK_LINES.sub("\n\n", _SPACE_AT_BREAK.sub("", text)).strip()


def _enter(writer: _Writer, tag: str, node: LexborNode) -> str:
    """Begin an element; return the text to write at its end."""
    if tag == "br":
        writer.write("\n")
        return ""
    if tag == "pre":
        writer.preformatted += 1
    if tag in _BLOCKS:
        writer.line(empty=tag in _PARAGRAPHS and not (tag in ("ul", "ol") and writer.lists))
    if tag in ("ul", "ol"):
        writer.lists.append(1 if tag == "ol" else -1)
    if tag == "tr":
        writer.cells = 0
    if tag in ("td", "th"):
        if writer.cells:
            writer.write(" | " if writer.base is not None else "\t")
        writer.cells += 1
    return "" if writer.base is None else _mark(writer, tag, node, writer.base)


def _mark(writer: _Writer, tag: str, node: LexborNode, base: str) -> str:
    if tag[0] == "h" and tag[1:].isdigit():
        writer.write("#" * int(tag[1:]) + " ")
    elif tag == "li":
        lists = writer.lists or [-1]
        indent = "  " * (len(lists) - 1)
        writer.write(indent + ("- " if lists[-1] < 0 else f"{lists[-1]}. "))
        if lists[-1] > 0:
            lists[-1] += 1
    elif tag == "blockquote":
        writer.write("> ")
    elif tag == "hr":
        writer.write("---")
    elif tag == "pre":
        writer.write("```\n")
        return "\n```"
    elif tag == "a" and (href := _url(node, "href", base, writer.page_encoding)):
        writer.write("[")
        return f"]({href})"
    elif tag == "img" and (src := _url(node, "src", base, writer.page_encoding)):
        writer.write(f"![{_SPACE.sub(' ', node.attributes.get('alt') or '')}]({src})")
    elif tag in _MARKS and not writer.preformatted:
        writer.write(_MARKS[tag])
        return _MARKS[tag]
    return ""


def _leave(writer: _Writer, tag: str, closing: str) -> None:
    if tag == "pre":
        writer.preformatted -= 1
        if closing and writer.at_break:
            closing = closing.lstrip("\n")
    writer.write(closing)
    if tag in ("ul", "ol") and writer.lists:
        writer.lists.pop()
    if tag in _BLOCKS:
        writer.line(empty=tag in _PARAGRAPHS and not (tag in ("ul", "ol") and writer.lists))


def _url(node: LexborNode, attribute: str, base: str, page_encoding: str) -> str:
    """Return the absolute URL of an attribute; empty if it is missing or invalid."""
    try:
        return absolute(base, node.attributes.get(attribute) or "", page_encoding)
    except ValueError:
        return ""
