"""The columns that a job's items have, for formats that must know them beforehand. Pure.

Used for CSV and Parquet. They come from the job, not from the first items that happen to arrive,
so that every file of a job has the same ones.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from zcrawl.store.render import COLUMNS
from zcrawl.submit.duplicates_spec import MARK
from zcrawl.submit.extract_spec import Field
from zcrawl.submit.spec import JobSpec

# "string", "int", "float", "bool", "json" (anything, written as JSON text), or nested:
Kind: TypeAlias = "str | ListOf | ObjectOf"


class ListOf(msgspec.Struct, frozen=True):
    inner: Kind


class ObjectOf(msgspec.Struct, frozen=True):
    fields: tuple[tuple[str, Kind], ...]


_NUMBERS: Final = {"status", "depth", "bytes"}
DEFAULT_COLUMNS: Final[dict[str, Kind]] = {
    name: "int" if name in _NUMBERS else "string" for name in COLUMNS
}
_PLAIN: Final = {"int": "int", "float": "float", "bool": "bool"}
_FITS: Final = {"int": int, "float": (int, float), "bool": bool, "string": str}


def columns_of(spec: JobSpec) -> dict[str, Kind]:
    """Name → kind. A name that two blocks use for different kinds holds JSON."""
    marked: dict[str, Kind] = {"duplicate_of": "string"} if spec.duplicates.near == MARK else {}
    if not spec.extract:
        return {**DEFAULT_COLUMNS, **marked}
    columns: dict[str, Kind] = {}
    for block in spec.extract:
        if not block.fields and not block.structured:
            continue
        found: dict[str, Kind] = {} if "url" in block.fields else {"url": "string"}
        found |= {name: kind_of(field) for name, field in block.fields.items()}
        found |= dict.fromkeys(block.structured, "json")
        for name, kind in found.items():
            columns[name] = kind if columns.get(name, kind) == kind else "json"
    return {**columns, **marked}


def kind_of(field: Field) -> Kind:
    if field.fields:
        inner: Kind = ObjectOf(tuple((name, kind_of(one)) for name, one in field.fields.items()))
    elif field.type == "str" and (field.json or field.jsonld or field.microdata):
        inner = "json"  # untyped paths may lead to anything
    else:
        inner = _PLAIN.get(field.type, "string")
    if field.default is not None and not _default_fits(field.default, inner, field.list):
        return "json"
    return ListOf(inner) if field.list else inner


def _default_fits(default: Any, kind: Kind, many: bool) -> bool:
    if many or not isinstance(kind, str) or kind == "json":
        return kind == "json" and not many
    if isinstance(default, bool) and kind != "bool":
        return False
    return isinstance(default, _FITS[kind])  # type: ignore[arg-type]
