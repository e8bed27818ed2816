"""The arguments of a client's request, read with their types: a wrong one is the client's error.

Called by the desk and by followers. Types and defaults are those that the operation declares
(`operations`); a handler that reads an argument which is not declared is a bug of the master.
Whatever else fails while a request is answered is an error of the master's own (`internal_error`),
so nothing but these readers says `bad_request` for a type.
"""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn

from zcrawl.errors import RefusedError
from zcrawl.master.desk.operation import Type
from zcrawl.master.desk.operations import find
from zcrawl.mesh.messages import ClientRequest
from zcrawl.model.reasons.cluster import BAD_REQUEST

MOST_INTEGER: Final = (1 << 63) - 1  # what a database's column holds
_MOST_SHOWN: Final = 100


class Arguments(dict[str, Any]):
    """A mapping like the request's own; its readers raise RefusedError `bad_request`."""

    def __init__(self, request: ClientRequest) -> None:
        super().__init__(request.args)
        operation = find(request.op)
        self._op = request.op
        self._declared = {} if operation is None else operation.arguments

    def __getitem__(self, name: str) -> Any:
        self._check_declared(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> NoReturn:
        raise RefusedError(f"{self._op}: {name!r} is missing", code=BAD_REQUEST)

    def get(self, name: str, default: Any = None) -> Any:
        self._check_declared(name)
        return super().get(name, default)

    def integer(self, name: str) -> int:
        """Return a whole number, also one that is written as text."""
        value = self._read(name, Type.INTEGER)
        try:
            number = int(value) if isinstance(value, str | int | float) else None
        except (ValueError, OverflowError):  # not a number, or an infinite one
            number = None
        if number is None or abs(number) > MOST_INTEGER:
            raise self._wrong(name, value, "a whole number")
        return number

    def number(self, name: str) -> float:
        value = self._read(name, Type.NUMBER)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):  # not a number, or one that no float can be
            number = math.nan
        if math.isnan(number):
            raise self._wrong(name, value, "a number")
        return number

    def text(self, name: str) -> str:
        """Return the text of anything: references are numbers or names."""
        return str(self._read(name, Type.TEXT))

    def sequence(self, name: str) -> list[Any]:
        value = self._read(name, Type.LIST)
        if not isinstance(value, list | tuple):
            raise self._wrong(name, value, "a list")
        return list(value)

    def table(self, name: str) -> dict[str, Any]:
        value = self._read(name, Type.TABLE)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self._wrong(name, value, "a table")
        return value

    def _read(self, name: str, type: Type) -> Any:
        """Return what was sent, or the declared default. Without a default it must be there."""
        self._check_declared(name)
        argument = self._declared[name]
        if argument.type is not type:
            raise TypeError(f"{self._op} declares {name} as {argument.type.value}")
        return self[name] if argument.default is None else self.get(name, argument.default)

    def _check_declared(self, name: str) -> None:
        if name not in self._declared:
            raise LookupError(f"{self._op} does not declare the argument {name!r}")

    def _wrong(self, name: str, value: object, requirement: str) -> RefusedError:
        shown = ascii(value)[:_MOST_SHOWN]
        text = f"{self._op}: {name} must be {requirement}, not {shown}"
        return RefusedError(text, code=BAD_REQUEST)
