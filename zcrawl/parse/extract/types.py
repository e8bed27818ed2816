"""Turns what a page says into a value of the type that a field wants.

Called by `parse.extract.plan` and `parse.extract.fields`, once per value. Pure. A converter
returns the value or raises `FieldProblem`, whose text is what the user reads in
`export --rejected`; it never returns something near: a price that cannot be read is a problem, not
0.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, Final

from zcrawl.frontier.url import absolute
from zcrawl.model.extraction import Field
from zcrawl.text.patterns import lazy_pattern

MAX_INT: Final = 2**63 - 1  # what every store and format can take
MAX_VALUE_CHARS: Final = 1_000_000
_MAX_NUMBER_CHARS: Final = 60
_SHOWN: Final = 60

# Digits with what people put between them. No nested repetition: its time grows with its input.
_NUMBER = lazy_pattern(r"[-+−]?\s?(?:\d[\d.,'’   _]*|[.,]\d+)(?:[eE][-+]?\d{1,3})?")
_SPACES = lazy_pattern(r"['’\s  _]")
_UNIX_TIME = lazy_pattern(r"\d{10}(?:\.\d{1,9})?|\d{13}", re.ASCII)
_MILLISECONDS_FROM: Final = 10**12
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TRUE: Final = frozenset(("true", "yes", "y", "1", "on", "checked", "selected"))
_FALSE: Final = frozenset(("false", "no", "n", "0", "off"))

Converter = Callable[[Any], Any]


class FieldProblem(ValueError):
    """Why a field has no value although the page says something."""


def converter(field: Field) -> Converter | None:
    """From a string, or what JSON holds, to the field's type. None: a string stays as it is."""
    match field.type:
        case "int":
            return lambda value: to_int(value, field.decimal)
        case "float":
            return lambda value: to_float(value, field.decimal)
        case "bool":
            return to_bool
        case "date":
            return lambda value: to_date(value, field.format)
        case _:
            return None  # str, url and the kinds of text are made where the element is at hand


def to_int(value: Any, decimal: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FieldProblem(f"no number: {shown(value)}")
    if isinstance(value, str) and (text := value.strip()).isascii() and text.isdigit():
        number: float = int(text) if len(text) <= _MAX_NUMBER_CHARS else math.inf
    else:
        number = to_float(value, decimal) if isinstance(value, str) else value
    if not math.isfinite(number) or abs(number) > MAX_INT:
        raise FieldProblem(f"too large a number: {shown(value)}")
    if number != int(number):
        raise FieldProblem(f"no whole number: {shown(value)}")
    return int(number)


def to_float(value: Any, decimal: str = "") -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise FieldProblem(f"too large a number: {shown(value)}") from None
    elif isinstance(value, str):
        number = _read_number(value, decimal)
    else:
        raise FieldProblem(f"no number: {shown(value)}")
    if not math.isfinite(number):
        raise FieldProblem(f"too large a number: {shown(value)}")
    return number


def _read_number(text: str, decimal: str) -> float:
    match = _NUMBER.search(text)
    if match is None:
        raise FieldProblem(f"no number: {shown(text)}")
    digits = match[0]
    if digits.strip("+-.,0123456789eE"):  # something else stands between them
        digits = _SPACES.sub("", digits).replace("−", "-")
    digits = digits.rstrip(".,")
    if len(digits) > _MAX_NUMBER_CHARS:
        raise FieldProblem(f"too long a number: {shown(text)}")
    point = decimal or _decimal_mark(digits)
    other = "," if point == "." else "."
    digits = digits.replace(other, "").replace(",", ".")
    try:
        return float(digits)
    except ValueError:
        raise FieldProblem(f"no number: {shown(text)}") from None


def _decimal_mark(digits: str) -> str:
    """Which of `.` and `,` separates decimals: the last one, unless it can only group digits:
    it is there twice, or it is a comma before exactly three digits."""
    dot, comma = digits.rfind("."), digits.rfind(",")
    if dot >= 0 and comma >= 0:
        return "." if dot > comma else ","
    if comma >= 0:
        grouping = digits.count(",") > 1 or len(digits) - comma == 4
        return "." if grouping else ","
    return "," if digits.count(".") > 1 else "."


def to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word == "":  # an attribute without a value, as in <input checked>
            return True
        if word in _FALSE:
            return False
    raise FieldProblem(f"neither true nor false: {shown(value)}")


def to_date(value: Any, format: str = "") -> str:
    """ISO 8601: `2026-01-31`, or with a time `2026-01-31T10:00:00+01:00`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _from_timestamp(value)
    if not isinstance(value, str):
        raise FieldProblem(f"no date: {shown(value)}")
    text = value.strip()
    if len(text) > 100:
        raise FieldProblem(f"no date: {shown(value)}")
    if format:
        try:
            moment = datetime.datetime.strptime(text, format)
        except ValueError:
            raise FieldProblem(f"no date of the form {format}: {shown(value)}") from None
        return _iso(moment, "%H" in format or "%I" in format or "%c" in format or "%X" in format)
    if _UNIX_TIME.fullmatch(text):  # before ISO 8601, which reads 1712011500000 as a day of 1712
        return _from_timestamp(float(text) if "." in text else int(text))
    try:
        if len(text) <= 10:
            return datetime.date.fromisoformat(text).isoformat()
        return _iso(datetime.datetime.fromisoformat(text), True)
    except ValueError:
        pass  # not ISO 8601; RFC 5322, as in feeds and headers, is the other form machines write
    try:
        return _iso(parsedate_to_datetime(text), True)
    except (ValueError, TypeError, IndexError, OverflowError):
        raise FieldProblem(f"no date, or one that needs a format: {shown(value)}") from None


def _from_timestamp(value: float) -> str:
    """`value`: seconds, or milliseconds from 13 digits on (as seconds: the year 33658)."""
    milliseconds = value if abs(value) >= _MILLISECONDS_FROM else value * 1000
    try:
        return _iso(_EPOCH + datetime.timedelta(milliseconds=milliseconds), True)
    except (ValueError, OverflowError):
        raise FieldProblem(f"no date: {shown(value)}") from None


def _iso(moment: datetime.datetime, with_time: bool) -> str:
    return moment.isoformat() if with_time else moment.date().isoformat()


# References that mean the same to everybody: nothing to encode, no dots to resolve, no port, no
# name that could be a number. Asking the library about them takes ten times as long.
_PLAIN_PATH = lazy_pattern(
    r"/?(?:[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*/)*[A-Za-z0-9_~-]*(?:\.[a-z0-9]+)?"
)
_PLAIN_BASE = lazy_pattern(r"(https?://(?:[a-z0-9-]+\.)+[a-z]+)(/(?:[^?#]*/)?)")


def to_url(value: Any, base: str, page_encoding: str = "utf-8") -> str:
    """Absolute, as a browser reads it on a page at `base` in that encoding."""
    if not isinstance(value, str):
        raise FieldProblem(f"no URL: {shown(value)}")
    value = value.strip()
    if value and _PLAIN_PATH.fullmatch(value) and (place := _PLAIN_BASE.match(base)):
        return f"{place[1] if value[0] == '/' else place[0]}{value}"
    try:
        return absolute(base, value, page_encoding)
    except ValueError:
        raise FieldProblem(f"no URL: {shown(value)}") from None


def to_text(value: Any) -> str:
    """What JSON holds, as a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise FieldProblem(f"no text: {shown(value)}")


def shown(value: object) -> str:
    """The value in a message: short, on one line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**_SHOWN:
        return "a number of very many digits"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
