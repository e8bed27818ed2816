"""Read the value of one compiled field from a page. Called by `parse.extract.plan`. Pure.

A field finds raw values (elements, or parts of JSON), takes their text, and converts it. How it
does that is decided once, when the job is compiled, because a page has many fields. Most are the
text or an attribute of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from selectolax.lexbor import LexborNode

from zcrawl.errors import TooManySteps
from zcrawl.model.extraction import Field
from zcrawl.parse import prose
from zcrawl.parse.extract.page_facts import EMPTY, FAILED, FILLED, SourcePage
from zcrawl.parse.extract.selectors import check_css, compile_path
from zcrawl.parse.extract.types import MAX_VALUE_CHARS, FieldProblem, converter, to_text, to_url
from zcrawl.text.expressions import compile_pattern

MAX_LIST: Final = 10_000
Raw = Any  # an element, or a JSON value
Reader = Callable[[SourcePage, Raw], Iterator[Raw]]
TextOf = Callable[[SourcePage, LexborNode], str | None]
Typed = Callable[[SourcePage, Any], Any]


class FieldReader:
    def __init__(
        self, name: str, field: Field, path: str, counted: str, shared: bool = False
    ) -> None:
        """Compile a field. `shared`: other fields of the same scope have the same selector."""
        self.name = name
        self.default, self.required = field.default, field.required
        self.counted = counted  # the name under which its fill rate is shown
        self.many = field.list
        self.children = readers(field.fields, f"{path}.fields", f"{counted}.")
        self.may_lack: bool = field.required or any(child.may_lack for child in self.children)
        self._find = _reader(field, path, field.list)
        self._pattern = compile_pattern(field.re, f"{path}.re") if field.re else None
        self._css = field.css
        self._shared = shared
        self._text = _text_of(field)
        self._typed = _typed(field)

    def read(self, page: SourcePage, scope: Raw, errors: dict[str, str]) -> Any:
        counts = page.counts.get(self.counted)
        if counts is None:
            counts = page.counts[self.counted] = [0, 0, 0]
        try:
            if self.children:
                value = self._objects(page, scope, errors)
            elif self.many:
                value = self._values(page, scope)
            else:
                value = self._value(page, scope)
        except (FieldProblem, TooManySteps) as problem:
            errors.setdefault(self.counted, str(problem))
            counts[FAILED] += 1
            return self.default
        if value is None or value == "" or value == []:
            counts[EMPTY] += 1
            if self.default is not None:
                return self.default
            return [] if self.many else None
        counts[FILLED] += 1
        return value

    def missing(self, value: Any) -> str | None:
        """Return the path of a required field without a value: this one or one inside it."""
        if self.required and (value is None or value == [] or value == ""):
            return self.counted
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, dict):
                for child in self.children:
                    path = child.missing(element.get(child.name))
                    if path is not None:
                        return path
        return None

    # ------------------------------------------------------------ objects

    def _objects(self, page: SourcePage, scope: Raw, errors: dict[str, str]) -> Any:
        if self.many:
            objects = []
            for raw in self._take(page, scope):
                page.check()
                objects.append(self._object(page, raw, errors))
            return objects
        for raw in self._find(page, scope):
            return self._object(page, raw, errors)
        return None

    def _object(self, page: SourcePage, scope: Raw, errors: dict[str, str]) -> dict[str, Any]:
        return {child.name: child.read(page, scope, errors) for child in self.children}

    def _take(self, page: SourcePage, scope: Raw) -> list[Raw]:
        values = list(islice(self._find(page, scope), MAX_LIST + 1))
        if len(values) > MAX_LIST:
            raise FieldProblem(f"more than {MAX_LIST} values")
        return values

    # ------------------------------------------------------------ plain values

    def _value(self, page: SourcePage, scope: Raw) -> Any:
        if self._css and isinstance(scope, LexborNode):  # the fast way for most fields
            css = self._css
            node = page.first_at(scope, css) if self._shared else scope.css_first(css)
            value = None if node is None else self._text(page, node)
        else:
            value = next(self._find(page, scope), None)
            if isinstance(value, LexborNode):  # the item's own element
                value = self._text(page, value)
        if value is not None and self._pattern is not None:
            value = self._pattern.first(to_text(value))
        return None if value is None else self._typed(page, value)

    def _values(self, page: SourcePage, scope: Raw) -> list[Any]:
        """Return all values. An element without text has none; with a pattern it may have
        several."""
        values: list[Any] = []
        text_of, typed, pattern = self._text, self._typed, self._pattern
        for raw in self._take(page, scope):
            page.check()
            text = text_of(page, raw) if isinstance(raw, LexborNode) else raw
            if text is None:
                continue
            if pattern is None:
                values.append(typed(page, text))
            else:
                matches = pattern.all(to_text(text), MAX_LIST - len(values))
                values += [typed(page, match) for match in matches]
        return values


def readers(fields: dict[str, Field], path: str, counted: str) -> list[FieldReader]:
    """Return the readers of the fields of one scope, in the order of the job file."""
    selectors = [field.css for field in fields.values() if not field.list and not field.fields]
    return [
        FieldReader(
            name,
            field,
            f"{path}.{name}",
            f"{counted}{name}",
            shared=not field.list and selectors.count(field.css) > 1,
        )
        for name, field in fields.items()
    ]


# ---------------------------------------------------------------- an element's text


def _text_of(field: Field) -> TextOf:
    if field.attr:
        name = field.attr

        def attribute(page: SourcePage, node: LexborNode) -> str | None:
            attributes = node.attributes
            return (attributes[name] or "") if name in attributes else None

        return attribute
    match field.type:
        case "html":
            return lambda page, node: node.html or None
        case "text":
            return lambda page, node: prose.text_of(node, page.check) or None
        case "markdown":
            return lambda page, node: (
                prose.markdown_of(node, page.base, page.check, page.resolver.page_encoding) or None
            )
        case _:
            return lambda page, node: prose.words_of(node, page.check) or None


# ---------------------------------------------------------------- a value of the field's type


def _typed(field: Field) -> Typed:
    convert = converter(field)
    if convert is not None:
        return lambda page, value: convert(value)
    if field.type == "url":
        return lambda page, value: to_url(value, page.base, page.resolver.page_encoding)
    return lambda page, value: (
        storable(value)
        if isinstance(value, str)
        else value  # JSON stays as it is without a type
        if isinstance(value, dict | list)
        else storable(to_text(value))
    )


def storable(text: str) -> str:
    """Return a text that every store and format accepts."""
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
        return _path_reader(lambda properties: properties.get(name), "opengraph", many)
    if field.page is not None:
        fact = field.page
        return lambda page, scope: iter(() if (v := page.fact(fact)) is None else (v,))
    if field.main:
        text_format = "markdown" if field.type == "markdown" else "text"
        return lambda page, scope: iter(() if (v := page.main(text_format)) is None else (v,))
    return lambda page, scope: iter(() if scope is None else (scope,))  # the item's own element


def _css_reader(selector: str, many: bool) -> Reader:
    def first(page: SourcePage, scope: Raw) -> Iterator[Raw]:
        node = scope.css_first(selector) if isinstance(scope, LexborNode) else None
        return iter(() if node is None else (node,))

    def every(page: SourcePage, scope: Raw) -> Iterator[Raw]:
        return iter(scope.css(selector) if isinstance(scope, LexborNode) else ())

    return every if many else first


def _path_reader(search: Callable[[Any], Any], part: str | None, many: bool) -> Reader:
    def read(page: SourcePage, scope: Raw) -> Iterator[Raw]:
        if part is not None:
            value = search(page.part(part))
        else:
            value = None if isinstance(scope, LexborNode) else search(scope)
        if value is None:
            return iter(())
        if isinstance(value, list):
            # A field without `list` takes the first value, as with elements.
            return (element for element in (value if many else value[:1]) if element is not None)
        return iter((value,))

    return read
