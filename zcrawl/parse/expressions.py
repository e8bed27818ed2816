"""What a job file may write to find something: CSS, a regular expression, a JMESPath. Judged and
compiled here, once per run, for `parse.extract` and `parse.extract_field`. Pure.

Regular expressions run on RE2, whose time grows with the text and with nothing else: a pattern from
a job file on a text from a stranger's page cannot hang a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import re2
from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from zcrawl.errors import JobError
from zcrawl.parse.extract_types import FieldProblem

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
