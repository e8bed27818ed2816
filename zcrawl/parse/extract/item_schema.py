"""Check items with the schema of a job: a part of JSON Schema, checked by msgspec.

Called by `parse.extract.plan`, once per run to compile and once per item to check. Pure. The schema
becomes a msgspec type, so a check takes about a microsecond and reports where an item is wrong.
Keywords that msgspec cannot check in bounded time, or at all (`pattern`, `$ref`, `anyOf` …), are
refused when the job is read, not ignored; use `re` of a field instead of `pattern`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import UNKNOWN_KEY
from zcrawl.text.spelling import near_names

MAX_DEPTH: Final = 8
MOST_SHOWN: Final = 100  # characters of a value
MOST_EXAMPLES: Final = 50  # reasons of one page that have an example
_ANNOTATIONS: Final = frozenset(("title", "description", "$schema", "$id", "examples", "default"))
_PLAIN: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}
_LIMITS: Final[dict[str, dict[str, str]]] = {
    "string": {"minLength": "min_length", "maxLength": "max_length"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
    "number": {
        "minimum": "ge",
        "maximum": "le",
        "exclusiveMinimum": "gt",
        "exclusiveMaximum": "lt",
        "multipleOf": "multiple_of",
    },
}
_LIMITS["integer"] = _LIMITS["number"]

Check = Callable[[dict[str, Any]], tuple[str, str] | None]  # (where, what is wrong)


def compile_check(schema: Mapping[str, Any], path: str) -> Check:
    """Return a function that says where and how an item breaks the schema, or None."""
    if schema.get("type", "object") != "object":
        raise JobError(f"{path}.type is {schema['type']!r}; an item is an object: write 'object'")
    item_type = _object(schema, path, 1)

    def check(item: dict[str, Any]) -> tuple[str, str] | None:
        try:
            msgspec.convert(item, item_type)
        except msgspec.ValidationError as error:
            what, _, where = str(error).replace("`", "").partition(" - at $")
            return where.lstrip(".") or "item", what
        return None

    return check


def describe(item: Mapping[str, Any], where: str, what: str) -> str:
    """Describe for people what is wrong with an item: the field, its shortened value, and why."""
    name = where if where in item else where.partition(".")[0].partition("[")[0]
    value = item.get(name)
    if value is None:
        return what if where == "item" else f"{where}: {what}"
    if isinstance(value, str):
        value = value[: MOST_SHOWN + 1]
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return f"{name} is {text}: {what}"


def _type(schema: Any, path: str, depth: int) -> Any:
    if not isinstance(schema, Mapping):
        raise JobError(f'{path} is not a table; write {{ type = "string" }}, for example')
    if depth > MAX_DEPTH:
        raise JobError(f"{path} is nested too deeply; at most {MAX_DEPTH} levels")
    if "enum" in schema or "const" in schema:
        return _choice(schema, path)
    kinds = schema.get("type")
    if kinds is None:
        guess = "object" if "properties" in schema or "required" in schema else None
        guess = "array" if "items" in schema else guess
        if guess is None:
            _refuse_unknown(schema, (), path)
            return Any
        kinds = guess
    union: Any = None
    for kind in kinds if isinstance(kinds, list | tuple) else [kinds]:
        member = _of_kind(kind, schema, path, depth, several=isinstance(kinds, list | tuple))
        union = member if union is None else union | member
    return union


def _of_kind(kind: Any, schema: Mapping[str, Any], path: str, depth: int, several: bool) -> Any:
    if kind == "object":
        return _object(schema, path, depth)
    if kind == "array":
        if not several:
            _refuse_unknown(schema, ("items", *_LIMITS["array"]), path)
        inner = _type(schema["items"], f"{path}.items", depth + 1) if "items" in schema else Any
        return _limited(types.GenericAlias(list, (inner,)), "array", schema, path)
    if kind not in _PLAIN:
        kinds = [*_PLAIN, "object", "array"]
        close = near_names(str(kind), kinds, cutoff=0.4)
        meant = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(kinds)}"
        raise JobError(f"{path}.type: {kind!r} does not exist; {meant}")
    if not several:
        _refuse_unknown(schema, tuple(_LIMITS.get(kind, ())), path)
    if kind == "null":
        return type(None)
    return _limited(_PLAIN[kind], kind, schema, path)


def _limited(plain: Any, kind: str, schema: Mapping[str, Any], path: str) -> Any:
    limits = {
        name: schema[keyword]
        for keyword, name in _LIMITS.get(kind, {}).items()
        if keyword in schema
    }
    if not limits:
        return plain
    try:
        return Annotated[plain, msgspec.Meta(**limits)]
    except (TypeError, ValueError) as error:
        raise JobError(f"{path}: {error}") from None


def _choice(schema: Mapping[str, Any], path: str) -> Any:
    _refuse_unknown(schema, ("enum", "const", "type"), path)
    values = schema.get("enum", [schema.get("const")])
    if not isinstance(values, list | tuple) or not values:
        raise JobError(f'{path}.enum must be a list of values, such as ["EUR", "USD"]')
    if not all(value is None or type(value) in (str, int) for value in values):
        raise JobError(f"{path}.enum: only texts and whole numbers are allowed")
    return Literal[tuple(values)]


def _object(schema: Mapping[str, Any], path: str, depth: int) -> Any:
    """Return a struct type for a schema of type object."""
    _refuse_unknown(schema, ("type", "properties", "required", "additionalProperties"), path)
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    allows_others = schema.get("additionalProperties", True)
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        raise JobError(f"{path}: properties must be a table, and required a list")
    if not isinstance(allows_others, bool):
        raise JobError(f"{path}.additionalProperties must be true or false")
    names = dict.fromkeys([*properties, *required])
    if not all(isinstance(name, str) for name in names):
        raise JobError(f'{path}.required must be a list of names, such as ["title"]')
    fields: list[Any] = []
    renamed: dict[str, str] = {}
    for number, name in enumerate(names):
        field_type = Any
        if name in properties:
            field_type = _type(properties[name], f"{path}.properties.{name}", depth + 1)
        field_name = f"f{number}"  # names of properties are free, names of struct fields are not
        renamed[field_name] = name
        if name in required:
            fields.append((field_name, field_type))
        else:
            # A missing field is null in an item.
            fields.append(
                (field_name, field_type if field_type is Any else field_type | None, None)
            )
    fields.sort(key=len)
    try:
        return msgspec.defstruct(
            "Item", fields, rename=renamed, forbid_unknown_fields=not allows_others, frozen=True
        )
    except (TypeError, ValueError) as error:
        raise JobError(f"{path}: {error}") from None


def _refuse_unknown(schema: Mapping[str, Any], keywords: tuple[str, ...], path: str) -> None:
    for key in schema:
        if key not in keywords and key not in _ANNOTATIONS and key != "type":
            advice = "; write `re` in the field instead" if key == "pattern" else ""
            raise JobError(
                f"{path}: the keyword {key!r} is not supported here{advice}", code=UNKNOWN_KEY
            )
