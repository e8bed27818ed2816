"""Compile the CSS selectors and JMESPath expressions of a job, once per run.

Called by `parse.extract.plan` and `parse.extract.fields`. Pure. `text.expressions`, which the
leader uses too, compiles patterns and paths; selectors need lexbor, which only workers load.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import BAD_SELECTOR
from zcrawl.parse.extract.types import FieldProblem
from zcrawl.text import expressions

_PROBE = LexborHTMLParser("<p>")


def check_css(selector: str, path: str) -> str:
    """Return the selector if lexbor accepts it; otherwise JobError."""
    try:
        _PROBE.css_first(selector)
    except SelectolaxError:
        raise JobError(
            f"{path}: not a CSS selector: {selector!r}{_advice(selector)}", code=BAD_SELECTOR
        ) from None
    return selector


def compile_path(expression: str, path: str) -> Callable[[Any], Any]:
    """Return a search function whose failures are `FieldProblem`."""
    import jmespath  # 10 ms of a start that most jobs do not need

    compiled = expressions.compile_path(expression, path)

    def search(value: Any) -> Any:
        try:
            return compiled(value)
        except (
            jmespath.exceptions.JMESPathError,
            RecursionError,
            TypeError,
            ValueError,
            OverflowError,  # `floor` of an infinite number, `avg` of numbers with 400 digits
        ) as error:
            raise FieldProblem(f"{expression}: {error}") from None

    return search


def _advice(selector: str) -> str:
    """Return advice for people who write selectors of Scrapy or XPath."""
    name, pseudo, rest = selector.partition("::")
    if pseudo and rest == "text":
        return f"; the text of an element is taken by itself: write {name!r}"
    attribute = re.fullmatch(r"attr\(([\w-]+)\)", rest)
    if attribute:
        return f"; write {{ css = {name!r}, attr = {attribute[1]!r} }}"
    if selector.lstrip("(").startswith(("/", "./")):
        return "; XPath is not supported, write CSS: '//h1' is 'h1', '//ul/li' is 'ul > li'"
    if ":contains(" in selector:
        return "; CSS has no :contains(); select the element and use `re` on its text"
    return ""
