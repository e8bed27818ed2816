"""What foreign code raised, in one line: type, message, file and line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from json import JSONDecodeError
from typing import Any

import pytest
from selectolax.lexbor import SelectolaxError

from zcrawl.spider import Page
from zcrawl.text.raised import raised_text

SOURCE = """\
import json

def plain(page):
    return [][0]

def deeper(page):
    return helper(page)

def helper(page):
    raise LookupError

def library(page):
    return json.loads("{")

def ours(page):
    return page.css("p[")

async def later(page):
    return {}["key"]
"""


def functions() -> dict[str, Callable[[Any], Any]]:
    names: dict[str, Any] = {}
    exec(compile(SOURCE, "/anywhere/sp.py", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("name", "kind", "start", "place"),
    [
        ("plain", IndexError, "IndexError: list index out of range", "(sp.py, line 4, in plain)"),
        ("deeper", LookupError, "LookupError (", "(sp.py, line 10, in helper)"),
        (
            "library",
            JSONDecodeError,
            "JSONDecodeError: Expecting",
            "(sp.py, line 13, in library)",
        ),
        ("ours", SelectolaxError, "SelectolaxError: ", "(sp.py, line 16, in ours)"),
        ("later", KeyError, "KeyError: 'key'", "(sp.py, line 19, in later)"),
    ],
)
def test_the_line_is_the_last_one_in_the_file_that_was_called(
    name: str, kind: type[Exception], start: str, place: str
) -> None:
    """Not the one in Python's library, nor in zcrawl, that it led to."""
    page = Page("https://a.test/", 200, [], b"<p>x")
    with pytest.raises(kind) as caught:
        result = functions()[name](page)
        asyncio.run(result)
    # Above the functions stands this test, which zcrawl's own frames replace in a worker.
    error: BaseException = caught.value
    while error.__traceback__ is not None and "sp.py" not in _file(error):
        error.__traceback__ = error.__traceback__.tb_next
    text = raised_text(error)
    assert text.startswith(start)
    assert text.endswith(place)


def _file(error: BaseException) -> str:
    assert error.__traceback__ is not None
    return error.__traceback__.tb_frame.f_code.co_filename


def test_an_error_without_a_foreign_line_has_none() -> None:
    """As a syntax error, or one that was never raised."""
    assert raised_text(ValueError("no place")) == "ValueError: no place"
    assert raised_text(ValueError()) == "ValueError"
