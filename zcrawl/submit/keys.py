"""Check the keys of a TOML document against typed sections, and suggest the most similar key for
an unknown one.

Called by `validate` for job files and by `config` for config files. Pure.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.spelling import near_names


@functools.cache  # each submission is checked twice; finding the fields of a type takes 50 µs
def known_keys(schema: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct] | None]:
    """Return the keys of a section, each with its own section, or None for a plain value."""
    return {
        field.encode_name: field.type
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        else None
        for field in msgspec.structs.fields(schema)
    }


def dotted_keys(schema: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return every key that has a value, written as `section.key`."""
    keys: list[str] = []
    for key, section in known_keys(schema).items():
        if section is None:
            keys.append(prefix + key)
        else:
            keys.extend(dotted_keys(section, f"{prefix}{key}."))
    return keys


def unknown_keys(
    data: Mapping[str, Any], schema: type[msgspec.Struct], prefix: str = ""
) -> list[str]:
    """Return the keys of `data` that `schema` does not have, in the order of the document."""
    schema_keys = known_keys(schema)
    extra_keys: list[str] = []
    for key, value in data.items():
        if key not in schema_keys:
            extra_keys.append(prefix + key)
            continue
        section = schema_keys[key]
        if section is not None and isinstance(value, Mapping):
            extra_keys.extend(unknown_keys(value, section, f"{prefix}{key}."))
    return extra_keys


def nearest(key: str, schema: type[msgspec.Struct]) -> str | None:
    """Return the key of any section that is most similar to `key`."""
    full = dotted_keys(schema)
    section = key.rpartition(".")[0]  # never suggested, because the key is already in it
    candidates = [*full, *(name for name in known_keys(schema) if name != section)]
    close = near_names(key, candidates)
    if close:
        return close[0]
    # The right name in the wrong section: `rate` at the top, `scope.rate`.
    last = {name.rpartition(".")[2]: name for name in reversed(full)}
    close = near_names(key.rpartition(".")[2], last, cutoff=0.75)
    return last[close[0]] if close else None


_AT = lazy_pattern(r"^(?P<what>.*?)(?: - at `\$?\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_EXPECTED = lazy_pattern(r"Expected `(?P<needed>[^`]+)`(?P<limit>[^,]*), got `(?P<given>[^`]+)`")
_LENGTH = lazy_pattern(r"Expected `array` of length (?P<needed>\d+), got (?P<given>\d+)")
_MISSING = lazy_pattern(r"Object missing required field `(?P<key>[^`]+)`")
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
_KINDS: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "array",
    dict: "object",
    datetime.datetime: "datetime",
    datetime.date: "date",
    datetime.time: "time",
}
_TOML_PLACE = lazy_pattern(r" \(at line (?P<line>\d+), column (?P<column>\d+)\)$")
_TOML_ADVICE = {
    "Invalid value": "texts need quotes, and yes and no are written true and false",
    "Cannot overwrite a value": "a key is there twice",
    "Cannot declare": "a section is there twice",
    "Unclosed array": "a ] is missing",
    'Expected "\'"': "a quote is not closed",
    "Unterminated string": "a quote is not closed",
    "Illegal character": "a quote is not closed in this line",
    "Invalid initial character for a key part": "a line is key = value, or [section]",
}


def word_for(value: object) -> str:
    """Return the name of a value's type for people."""
    return _word(_KINDS.get(type(value), type(value).__name__))


def _word(kind: str) -> str:
    return _WORDS.get(kind, kind)


def toml_error(error: Exception, text: str) -> str:
    """Return `line 4: not valid TOML: Invalid value: robots = no (texts need quotes …)`."""
    said = str(error)
    advice = next((hint for start, hint in _TOML_ADVICE.items() if said.startswith(start)), "")
    place = _TOML_PLACE.search(said)
    if place is None:
        return f"not valid TOML: {said}" + (f" ({advice})" if advice else "")
    lines, number = text.splitlines(), int(place["line"])
    line = lines[number - 1].strip()[:80] if 0 < number <= len(lines) else ""
    what = said[: place.start()]
    shown = f": {line}" if line else ""
    return f"line {number}: not valid TOML: {what}{shown}" + (f" ({advice})" if advice else "")


def type_error(error: msgspec.ValidationError, data: Mapping[str, Any]) -> str:
    """Return msgspec's error in plain words: `scope.max_depth: a whole number is needed, …`.

    `data` is the converted value, because msgspec does not name the key of a table."""
    match = _AT.match(str(error))
    assert match is not None  # the expression matches every text
    expected = _EXPECTED.fullmatch(match["what"])
    missing = _MISSING.fullmatch(match["what"])
    length = _LENGTH.fullmatch(match["what"])
    given = expected["given"] if expected else ""
    path = _place(_steps(match["path"] or ""), data, given) or ""
    if expected is not None:
        kinds = [kind for kind in expected["needed"].split(" | ") if kind != "null"]
        other = "one with decimals" if kinds == ["int"] and given == "float" else _word(given)
        what = f"{' or '.join(map(_word, kinds))} is needed, not {other}"
        if kinds == ["array"] and given == "str":
            what += ' (write it in brackets: ["..."])'
        elif kinds == ["array"] and given == "object":
            what += " (write it in brackets: [{ ... }])"
        elif given == "str" and not {"str", "array", "object"} & set(kinds):
            what += " (write it without quotes)"
        elif kinds == ["object"] and path in data:
            what += f" (write a section, [{path}], with keys below it)"
    elif missing is not None:
        what = f"the key {missing['key']!r} is missing; add {missing['key']} = ..."
    elif length is not None:
        what = f"{length['needed']} values are needed, not {length['given']}"
    else:
        what = match["what"].replace("`", "").replace(" | ", " or ")
        what = what.replace("array", "list").replace("object", "table")
        what = what[:1].lower() + what[1:]
    return f"{path}: {what}" if path else what


def _steps(path: str) -> list[str]:
    """Split `extract[0].fields[...].css` into its steps: extract, 0, fields, ..., css."""
    return [step for step in re.split(r"[.\[\]]+", path.replace("[...]", "[*]")) if step]


def _place(steps: list[str], data: Any, given: str, path: str = "") -> str | None:
    """Return the path of the value of the wrong type in `data`; None: not on this path."""
    if not steps:
        return path if not given or _KINDS.get(type(data)) in (given, None) else None
    step, rest = steps[0], steps[1:]
    if step == "*":
        inner = data.items() if isinstance(data, Mapping) else ()
        places = (_place(rest, value, given, f"{path}.{key}") for key, value in inner)
        return next((place for place in places if place is not None), path)
    if step.isdigit() and isinstance(data, list | tuple):
        number = int(step)
        value = data[number] if number < len(data) else None
        if path == "extract":  # as in other messages: no number if there is only one block
            return _place(rest, value, given, path if len(data) == 1 else f"{path}[{number + 1}]")
        return _place(rest, value, given, f"{path}, entry {number + 1}")
    value = data.get(step) if isinstance(data, Mapping) else None
    separator = ", " if ", entry" in path else "." if path else ""
    return _place(rest, value, given, f"{path}{separator}{step}")
