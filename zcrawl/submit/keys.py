"""Checks the keys of a TOML document against typed sections: which are known, which come in a
later version, and which known one is nearest to a key that is not.

Called by `validate` for job files and by `config` for config files. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


def known_keys(schema: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """The keys of a section, each with the section behind it, or None for a plain value."""
    return {
        field.encode_name: field.type
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        else None
        for field in msgspec.structs.fields(schema)
    }


def dotted_keys(schema: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Every key that holds a value, written as `section.key`."""
    found: list[str] = []
    for key, section in known_keys(schema).items():
        if section is None:
            found.append(prefix + key)
        else:
            found.extend(dotted_keys(section, f"{prefix}{key}."))
    return found


def unknown_keys(
    data: Mapping[str, Any], schema: type[msgspec.Struct], prefix: str = ""
) -> list[str]:
    """The keys of `data` that `schema` does not have, in the order of the document."""
    known = known_keys(schema)
    found: list[str] = []
    for key, value in data.items():
        if key not in known:
            found.append(prefix + key)
            continue
        section = known[key]
        if section is not None and isinstance(value, Mapping):
            found.extend(unknown_keys(value, section, f"{prefix}{key}."))
    return found


def nearest(key: str, schema: type[msgspec.Struct], later: Iterable[str] = ()) -> str | None:
    """The known key, from any section, that `key` was most likely meant to be."""
    full = dotted_keys(schema)
    candidates = [*full, *known_keys(schema), *later]
    close = difflib.get_close_matches(key, candidates, n=1, cutoff=0.6)
    if close:
        return close[0]
    # The right name in the wrong section: `rate` at the top, `scope.rate`.
    last = {name.rpartition(".")[2]: name for name in reversed(full)}
    close = difflib.get_close_matches(key.rpartition(".")[2], last, n=1, cutoff=0.7)
    return last[close[0]] if close else None


_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$?\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<needed>[^`]+)`(?P<limit>[^,]*), got `(?P<given>[^`]+)`")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
    "datetime": "a date",
    "date": "a date",
    "time": "a time",
    "bytes": "bytes",
}


def type_error(error: msgspec.ValidationError) -> str:
    """`scope.max_depth: a whole number is needed, not text in quotes`, from msgspec's words."""
    match = _AT.match(str(error))
    assert match is not None  # the expression matches every text
    path = _place(match["path"] or "")
    expected = _EXPECTED.fullmatch(match["what"])
    if expected is None:
        what = match["what"].replace("`", "").replace(" | ", " or ")
        what = what.replace("Object missing required field ", "missing key ")
        what = what.replace("array", "list").replace("object", "table")
        what = what[:1].lower() + what[1:]
    else:
        kinds = [kind for kind in expected["needed"].split(" | ") if kind != "null"]
        needed = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
        what = f"{needed} is needed, not {_WORDS.get(expected['given'], expected['given'])}"
        if kinds == ["array"] and expected["given"] == "str":
            what += ' (write it in brackets: ["..."])'
    return f"{path}: {what}" if path else what


def _place(path: str) -> str:
    """`extract[0].fields[...].css` as `extract, entry 1, fields, css`."""
    path = path.replace("[...]", "")
    if "[" not in path:
        return path
    path = re.sub(r"\[(\d+)\]\.?", lambda index: f", entry {int(index[1]) + 1}, ", path)
    return path.rstrip(", ")
