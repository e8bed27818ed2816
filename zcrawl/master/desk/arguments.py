"""The arguments of a client's request, read with their types: a wrong one is the client's error.

Called by the desk and by followers. Whatever else fails while a request is answered is an error
of the master's own (`internal_error`), so nothing but these readers says `bad_request` for a type.
"""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn

from zcrawl.errors import RefusedError
from zcrawl.mesh.messages import Request
from zcrawl.model.reasons.cluster import BAD_REQUEST

MOST_INTEGER: Final = (1 << 63) - 1  # what a database's column holds
_MOST_SHOWN: Final = 100


class Arguments(dict[str, Any]):
    """A mapping like the request's own; its readers raise RefusedError `bad_request`."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.args)
        self._op = request.op

    def __missing__(self, name: str) -> NoReturn:
        raise RefusedError(f"{self._op}: {name!r} is missing", code=BAD_REQUEST)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number, also one that is written as text."""
        value = self[name] if default is None else self.get(name, default)
        try:
            number = int(value) if isinstance(value, str | int | float) else None
        except (ValueError, OverflowError):  # not a number, or an infinite one
            number = None
        if number is None or abs(number) > MOST_INTEGER:
            raise self._wrong(name, value, "a whole number")
        return number

    def number(self, name: str, default: float) -> float:
        value = self.get(name, default)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):  # not a number, or one that no float can be
            number = math.nan
        if math.isnan(number):
            raise self._wrong(name, value, "a number")
        return number

    def text(self, name: str, default: str | None = None) -> str:
        """Anything that has a text: references are numbers or names."""
        return str(self[name] if default is None else self.get(name, default))

    def sequence(self, name: str) -> list[Any]:
        value = self[name]
        if not isinstance(value, list | tuple):
            raise self._wrong(name, value, "a list")
        return list(value)

    def table(self, name: str) -> dict[str, Any]:
        value = self[name]
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self._wrong(name, value, "a table")
        return value

    def _wrong(self, name: str, value: object, wanted: str) -> RefusedError:
        shown = ascii(value)[:_MOST_SHOWN]
        text = f"{self._op}: {name} must be {wanted}, not {shown}"
        return RefusedError(text, code=BAD_REQUEST)
