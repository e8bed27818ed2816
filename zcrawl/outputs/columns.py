"""Find the columns of a job's items, for formats that need them before the first item. Pure.

Used for CSV and Parquet. They come from the rules or the schema of the job, so that all its files
have the same columns; otherwise from the first items. Items made by code (spiders, parsers,
executors, middlewares) may have other keys: values without a column are written as JSON into one
additional column. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from zcrawl.model.extraction import Field
from zcrawl.model.spec import CRAWL, MARK, JobSpec
from zcrawl.outputs.render import COLUMNS

# "string", "int", "float", "bool", "json" (anything, written as JSON text), or nested:
ColumnKind: TypeAlias = "str | ListOf | ObjectOf"


class ListOf(msgspec.Struct, frozen=True):
    inner: ColumnKind


class ObjectOf(msgspec.Struct, frozen=True):
    fields: tuple[tuple[str, ColumnKind], ...]


class Layout(msgspec.Struct, frozen=True):
    """The columns of an output. `columns` None: those of the first items. `rest` is the column for
    all other keys; empty: there are no others. `csv_safe`: spreadsheets do not evaluate cells of a
    CSV."""

    columns: dict[str, ColumnKind] | None
    rest: str = ""
    csv_safe: bool = False


REST: Final = "_more"
_NUMBERS: Final = {"status", "depth", "bytes"}
DEFAULT_COLUMNS: Final[dict[str, ColumnKind]] = {
    name: "int" if name in _NUMBERS else "string" for name in COLUMNS
}
_PLAIN: Final = {"int": "int", "float": "float", "bool": "bool"}
_FITS: Final = {"int": int, "float": (int, float), "bool": bool, "string": str}
_OF_SCHEMA: Final = {"string": "string", "integer": "int", "number": "float", "boolean": "bool"}
MOST_INFERRED: Final = 500  # columns; values of more keys are in `rest`


def layout_of(spec: JobSpec) -> Layout:
    by_code = spec.spider or spec.parsers or spec.middlewares or spec.kind != CRAWL
    columns = columns_of(spec)
    rest = rest_name(columns or {}) if by_code else ""
    return Layout(columns, rest, spec.output.csv_safe)


def rest_name(columns: Iterable[str]) -> str:
    name, taken = REST, set(columns)
    while name in taken:
        name += "_"
    return name


def columns_of(spec: JobSpec) -> dict[str, ColumnKind] | None:
    """Return name → kind. A name with different kinds in two blocks holds JSON."""
    marked: dict[str, ColumnKind] = (
        {"duplicate_of": "string"} if spec.duplicates.near == MARK else {}
    )
    if spec.extract:
        return {**_of_blocks(spec), **marked}
    properties = spec.schema.get("properties")
    if isinstance(properties, Mapping):
        return {name: _of_schema(schema) for name, schema in properties.items()} | marked
    if spec.spider or spec.kind != CRAWL:
        return None
    files = {"screenshot": spec.browser.screenshot, "pdf": spec.browser.pdf}
    return DEFAULT_COLUMNS | {name: "string" for name, enabled in files.items() if enabled} | marked


def _of_blocks(spec: JobSpec) -> dict[str, ColumnKind]:
    columns: dict[str, ColumnKind] = {}
    for block in spec.extract:
        if not block.fields and not block.structured:
            continue
        block_columns: dict[str, ColumnKind] = {} if "url" in block.fields else {"url": "string"}
        block_columns |= {name: kind_of(field) for name, field in block.fields.items()}
        block_columns |= dict.fromkeys(block.structured, "json")
        for name, kind in block_columns.items():
            columns[name] = kind if columns.get(name, kind) == kind else "json"
    return columns


def kind_of(field: Field) -> ColumnKind:
    if field.fields:
        inner: ColumnKind = ObjectOf(
            tuple((name, kind_of(child)) for name, child in field.fields.items())
        )
    elif field.type == "str" and (field.json or field.jsonld or field.microdata):
        inner = "json"  # untyped paths may select any value
    else:
        inner = _PLAIN.get(field.type, "string")
    if field.default is not None and not _default_fits(field.default, inner, field.list):
        return "json"
    return ListOf(inner) if field.list else inner


def _default_fits(default: Any, kind: ColumnKind, many: bool) -> bool:
    if many or not isinstance(kind, str) or kind == "json":
        return kind == "json" and not many
    if isinstance(default, bool) and kind != "bool":
        return False
    return isinstance(default, _FITS[kind])  # type: ignore[arg-type]


# ---------------------------------------------------------------- columns of a schema or of items


def _of_schema(schema: Any) -> ColumnKind:
    if not isinstance(schema, Mapping):
        return "json"
    kinds = schema.get("type")
    several = kinds if isinstance(kinds, list | tuple) else [kinds]
    named = [kind for kind in several if kind != "null"]
    if len(named) != 1 or "enum" in schema or "const" in schema:
        return "json"
    if named[0] == "array" and "items" in schema:
        return ListOf(_of_schema(schema["items"]))
    return _OF_SCHEMA.get(str(named[0]), "json")


def inferred(items: list[dict[str, Any]]) -> dict[str, ColumnKind]:
    """Return the columns of these items, in the order of their first use."""
    values: dict[str, list[Any]] = {}
    for item in items:
        for name, value in item.items():
            if name in values or len(values) < MOST_INFERRED:
                values.setdefault(name, []).append(value)
    return {name: _of_values(column_values) for name, column_values in values.items()}


def _of_values(values: list[Any]) -> ColumnKind:
    kinds = {_of_value(value) for value in values if value is not None}
    if kinds == {"int", "float"}:
        return "float"
    if kinds == {"list"}:
        inner = _of_values([element for value in values if value is not None for element in value])
        return ListOf(inner)
    if len(kinds) > 1 or "list" in kinds or "json" in kinds:
        return "json"
    return kinds.pop() if kinds else "string"


def _of_value(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int" if abs(value) < 2**63 else "json"
        case float():
            return "float"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "json"
