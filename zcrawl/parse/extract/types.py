"""Convert the text of a page to the type of a field.

Called by `parse.extract.plan` and `parse.extract.fields`, once per value. Pure. A converter
returns the value or raises `FieldProblem`, whose text is shown by `export --rejected`. It never
guesses: a price that cannot be read is a problem, not 0.
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

MAX_INT: Final = 2**63 - 1  # the limit of all stores and formats
MAX_VALUE_CHARS: Final = 1_000_000
_MAX_NUMBER_CHARS: Final = 60
_SHOWN: Final = 60

# Digits with usual separators. No nested repetition, so that the time stays linear.
_NUMBER = lazy_pattern(r"[-+−]?\s?(?:\d[\d.,'’   _]*|[.,]\d+)(?:[eE][-+]?\d{1,3})?")
_SPACES = lazy_pattern(r"['’\s  _]")
_UNIX_TIME = lazy_pattern(r"\d{10}(?:\.\d{1,9})?|\d{13}", re.ASCII)
_MILLISECONDS_FROM: Final = 10**12
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TRUE: Final = frozenset(("true", "yes", "y", "1", "on", "checked", "selected"))
_FALSE: Final = frozenset(("false", "no", "n", "0", "off"))

Converter = Callable[[Any], Any]


class FieldProblem(ValueError):
    """The reason why a text of the page cannot be converted."""


def converter(field: Field) -> Converter | None:
    """Return a function that converts a string or a JSON value to the field's type. None: a string
    stays unchanged."""
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
            return None  # str, url and the kinds of text are read from the element


def to_int(value: Any, decimal: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FieldProblem(f"not a number: {shown(value)}")
    if isinstance(value, str) and (text := value.strip()).isascii() and text.isdigit():
        number: float = int(text) if len(text) <= _MAX_NUMBER_CHARS else math.inf
    else:
        number = to_float(value, decimal) if isinstance(value, str) else value
    if not math.isfinite(number) or abs(number) > MAX_INT:
        raise FieldProblem(f"the number is too large: {shown(value)}")
    if number != int(number):
        raise FieldProblem(f"not a whole number: {shown(value)}")
    return int(number)


def to_float(value: Any, decimal: str = "") -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise FieldProblem(f"the number is too large: {shown(value)}") from None
    elif isinstance(value, str):
        number = _read_number(value, decimal)
    else:
        raise FieldProblem(f"not a number: {shown(value)}")
    if not math.isfinite(number):
        raise FieldProblem(f"the number is too large: {shown(value)}")
    return number


def _read_number(text: str, decimal: str) -> float:
    match = _NUMBER.search(text)
    if match is None:
        raise FieldProblem(f"not a number: {shown(text)}")
    digits = match[0]
    if digits.strip("+-.,0123456789eE"):  # other separators
        digits = _SPACES.sub("", digits).replace("−", "-")
    digits = digits.rstrip(".,")
    if len(digits) > _MAX_NUMBER_CHARS:
        raise FieldProblem(f"the number is too long: {shown(text)}")
    point = decimal or _decimal_mark(digits)
    other = "," if point == "." else "."
    digits = digits.replace(other, "").replace(",", ".")
    try:
        return float(digits)
    except ValueError:
        raise FieldProblem(f"not a number: {shown(text)}") from None


def _decimal_mark(digits: str) -> str:
    """Return the decimal separator, `.` or `,`: the last one, unless it only groups digits (it
    occurs twice, or it is a comma before exactly three digits)."""
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
    """Convert to ISO 8601: `2026-01-31`, or with a time `2026-01-31T10:00:00+01:00`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _from_timestamp(value)
    if not isinstance(value, str):
        raise FieldProblem(f"not a date: {shown(value)}")
    text = value.strip()
    if len(text) > 100:
        raise FieldProblem(f"not a date: {shown(value)}")
    if format:
        try:
            moment = datetime.datetime.strptime(text, format)
        except (ValueError, re.error):  # re.error: a directive that the format has twice
            raise FieldProblem(f"not a date of the form {format}: {shown(value)}") from None
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
        raise FieldProblem(f"not a date, or it needs a format: {shown(value)}") from None


def _from_timestamp(value: float) -> str:
    """Convert Unix time: seconds, or milliseconds from 13 digits on (as seconds: the year
    33658)."""
    milliseconds = value if abs(value) >= _MILLISECONDS_FROM else value * 1000
    try:
        return _iso(_EPOCH + datetime.timedelta(milliseconds=milliseconds), True)
    except (ValueError, OverflowError):
        raise FieldProblem(f"not a date: {shown(value)}") from None


def _iso(moment: datetime.datetime, with_time: bool) -> str:
    return moment.isoformat() if with_time else moment.date().isoformat()


# References that need no library: nothing to encode, no dots to resolve, no port, no name that
# could be a number. The library takes ten times as long.
_PLAIN_PATH = lazy_pattern(
    r"/?(?:[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*/)*[A-Za-z0-9_~-]*(?:\.[a-z0-9]+)?"
)
_PLAIN_BASE = lazy_pattern(r"(https?://(?:[a-z0-9-]+\.)+[a-z]+)(/(?:[^?#]*/)?)")


def to_url(value: Any, base: str, page_encoding: str = "utf-8") -> str:
    """Return the absolute URL, as a browser resolves it on a page at `base` in that encoding."""
    if not isinstance(value, str):
        raise FieldProblem(f"not a URL: {shown(value)}")
    value = value.strip()
    if value and _PLAIN_PATH.fullmatch(value) and (place := _PLAIN_BASE.match(base)):
        return f"{place[1] if value[0] == '/' else place[0]}{value}"
    try:
        return absolute(base, value, page_encoding)
    except ValueError:
        raise FieldProblem(f"not a URL: {shown(value)}") from None


def to_text(value: Any) -> str:
    """Convert a JSON value to a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise FieldProblem(f"not a text: {shown(value)}")


def shown(value: object) -> str:
    """Return a value for a message: short, on one line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**_SHOWN:
        return "a number of very many digits"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
