"""One field, compiled: from a page and a place on it to a value. Called by `parse.extract`. Pure.

A field has a reader, which finds raw values (elements' texts, attributes, parts of JSON), and a
converter. Regular expressions run on RE2, whose time grows with the text and with nothing else: a
pattern from a job file on a text from a stranger's page cannot hang a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import re2
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from zcrawl.errors import JobError
from zcrawl.parse import prose
from zcrawl.parse.extract_page import EMPTY, FAILED, FILLED, SourcePage
from zcrawl.parse.extract_types import (
    MAX_VALUE_CHARS,
    FieldProblem,
    converter,
    to_text,
    to_url,
)
from zcrawl.submit.extract_spec import Field

MAX_LIST: Final = 10_000
Raw = Any  # an element, or what JSON holds
Reader = Callable[[SourcePage, Raw], Iterator[Raw]]
_PROBE = LexborHTMLParser("<p>")


def check_css(selector: str, path: str) -> str:
    """The selector, if lexbor takes it."""
    try:
        _PROBE.css_first(selector)
    except SelectolaxError:
        raise JobError(f"{path}: no CSS selector: {selector!r}", code="bad_selector") from None
    return selector


class Pattern:
    """An RE2 pattern. Texts go in as bytes: for strings the library maps every offset, which
    takes three times as long as the search."""

    def __init__(self, compiled: Any) -> None:
        self._search, self._finditer = compiled.search, compiled.finditer
        self._group = 1 if compiled.groups else 0

    def found_in(self, text: str) -> bool:
        return self._search(text.encode("utf-8", "replace")) is not None

    def first(self, text: str) -> str | None:
        match = self._search(text.encode("utf-8", "replace"))
        return None if match is None else self._value(match)

    def all(self, text: str, most: int) -> list[str]:
        found: list[str] = []
        for match in self._finditer(text.encode("utf-8", "replace")):
            value = self._value(match)
            if value is not None:
                found.append(value)
            if len(found) >= most:
                break
        return found

    def _value(self, match: Any) -> str | None:
        value = match[self._group]
        return None if value is None else value.decode("utf-8", "replace")


def compile_pattern(pattern: str, path: str) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return Pattern(re2.compile(pattern, options=options))
    except re2.error as error:
        text = error.args[0]
        reason = text.decode() if isinstance(text, bytes) else text
        raise JobError(
            f"{path}: no regular expression (RE2, so without look-around and back-references): "
            f"{reason}",
            code="bad_pattern",
        ) from None


def compile_path(expression: str, path: str) -> Callable[[Any], Any]:
    import jmespath  # 10 ms of a start that most jobs do not need

    try:
        compiled = jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as error:
        reason = " ".join(str(error).split())
        raise JobError(f"{path}: no JMESPath: {reason}", code="bad_path") from None

    def search(value: Any) -> Any:
        try:
            return compiled.search(value)
        except (jmespath.exceptions.JMESPathError, RecursionError, TypeError, ValueError) as error:
            raise FieldProblem(f"{expression}: {error}") from None

    return search


class FieldReader:
    """`read` gives the value for an item, or None; problems go into `errors`."""

    def __init__(self, name: str, field: Field, path: str, counted: str) -> None:
        self.name = name
        self.default, self.required = field.default, field.required
        self.counted = counted  # the name under which its fill rate is shown
        self.many = field.list
        self.children = [
            FieldReader(inner, one, f"{path}.fields.{inner}", f"{counted}.{inner}")
            for inner, one in field.fields.items()
        ]
        self._first = _reader(field, path, many=False)
        self._all = _reader(field, path, many=True)
        self._pattern = compile_pattern(field.re, f"{path}.re") if field.re else None
        self._attr = field.attr
        self._type = field.type
        self._convert = converter(field)
        # Most fields are the text or an attribute of an element: a way without detours for them.
        self._css = field.css
        self._plain = field.type == "str" and not field.re
        self._collapsed = field.type not in ("html", "text", "markdown")

    def read(self, page: SourcePage, scope: Raw, errors: dict[str, str]) -> Any:
        try:
            value = (
                self._objects(page, scope, errors) if self.children else self._value(page, scope)
            )
        except FieldProblem as problem:
            errors.setdefault(self.counted, str(problem))
            page.count(self.counted, FAILED)
            return self.default
        if value is None or value == "" or value == []:
            page.count(self.counted, EMPTY)
            if self.default is not None:
                return self.default
            return [] if self.many else None
        page.count(self.counted, FILLED)
        return value

    def missing(self, value: Any) -> str | None:
        """The path of a required field, here or inside, that has no value."""
        if self.required and (value is None or value == [] or value == ""):
            return self.counted
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                for child in self.children:
                    found = child.missing(one.get(child.name))
                    if found is not None:
                        return found
        return None

    # ------------------------------------------------------------ objects

    def _objects(self, page: SourcePage, scope: Raw, errors: dict[str, str]) -> Any:
        if self.many:
            return [self._object(page, one, errors) for one in self._take(page, scope)]
        for one in self._first(page, scope):
            return self._object(page, one, errors)
        return None

    def _object(self, page: SourcePage, scope: Raw, errors: dict[str, str]) -> dict[str, Any]:
        return {child.name: child.read(page, scope, errors) for child in self.children}

    def _take(self, page: SourcePage, scope: Raw) -> list[Raw]:
        found: list[Raw] = []
        for one in self._all(page, scope):
            if len(found) == MAX_LIST:
                raise FieldProblem(f"more than {MAX_LIST} values")
            found.append(one)
        return found

    # ------------------------------------------------------------ plain values

    def _value(self, page: SourcePage, scope: Raw) -> Any:
        if not self.many:
            if self._css and page.tree is not None:
                node = scope.css_first(self._css)
                return None if node is None else self._one(page, node)
            for raw in self._first(page, scope):
                return self._one(page, raw)
            return None
        values: list[Any] = []
        for raw in self._take(page, scope):
            values += self._values(page, raw, MAX_LIST - len(values))
        return values

    def _one(self, page: SourcePage, raw: Raw) -> Any:
        value = self._raw_text(page, raw) if isinstance(raw, LexborNode) else raw
        if value is None:
            return None
        if self._pattern is not None:
            value = self._pattern.first(to_text(value))
        return None if value is None else self._typed(page, value)

    def _values(self, page: SourcePage, raw: Raw, most: int) -> list[Any]:
        """Of one element or piece of JSON: none if it says nothing, several with a pattern."""
        if self._pattern is None:
            value = self._one(page, raw)
            return [] if value is None else [value]
        text = self._raw_text(page, raw) if isinstance(raw, LexborNode) else raw
        if text is None:
            return []
        return [self._typed(page, one) for one in self._pattern.all(to_text(text), most)]

    def _raw_text(self, page: SourcePage, node: LexborNode) -> str | None:
        if self._attr:
            attributes = node.attributes
            return (attributes[self._attr] or "") if self._attr in attributes else None
        if self._collapsed:
            text = " ".join(node.text().split())
        elif self._type == "html":
            text = node.html or ""
        elif self._type == "text":
            text = prose.text_of(node)
        else:
            text = prose.markdown_of(node, page.base)
        return text or None

    def _typed(self, page: SourcePage, value: Any) -> Any:
        if self._plain and isinstance(value, str):
            return storable(value)
        if self._convert is not None:
            return self._convert(value)
        if self._type == "url":
            return to_url(value, page.base)
        if isinstance(value, dict | list):
            return value  # JSON is what it is, where nobody asks for a type
        return storable(to_text(value))


def storable(text: str) -> str:
    """A text that every store and format can take."""
    if len(text) > MAX_VALUE_CHARS:
        raise FieldProblem(f"a text of {len(text)} characters")
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _reader(field: Field, path: str, many: bool) -> Reader:
    if field.css:
        return _css_reader(check_css(field.css, f"{path}.css"), many)
    if field.json:
        return _path_reader(compile_path(field.json, f"{path}.json"), None, many)
    for part in ("jsonld", "microdata"):
        expression = getattr(field, part)
        if expression:
            return _path_reader(compile_path(expression, f"{path}.{part}"), part, many)
    if field.opengraph:
        name = field.opengraph
        return _path_reader(lambda found: found.get(name), "opengraph", many)
    if field.page is not None:
        fact = field.page
        return lambda page, scope: iter(() if (v := page.fact(fact)) is None else (v,))
    if field.main:
        wanted = "markdown" if field.type == "markdown" else "text"
        return lambda page, scope: iter(() if (v := page.main(wanted)) is None else (v,))
    return lambda page, scope: iter(() if scope is None else (scope,))  # the item's own element


def _css_reader(selector: str, many: bool) -> Reader:
    def first(page: SourcePage, scope: Raw) -> Iterator[Raw]:
        node = scope.css_first(selector) if hasattr(scope, "css_first") else None
        return iter(() if node is None else (node,))

    def every(page: SourcePage, scope: Raw) -> Iterator[Raw]:
        return iter(scope.css(selector) if hasattr(scope, "css") else ())

    return every if many else first


def _path_reader(search: Callable[[Any], Any], part: str | None, many: bool) -> Reader:
    def read(page: SourcePage, scope: Raw) -> Iterator[Raw]:
        if part is not None:
            value = search(page.part(part))
        else:
            value = None if page.tree is not None else search(scope)
        if value is None:
            return iter(())
        if isinstance(value, list):
            # A single value of several is the first one, as with elements.
            return (one for one in (value if many else value[:1]) if one is not None)
        return iter((value,))

    return read
