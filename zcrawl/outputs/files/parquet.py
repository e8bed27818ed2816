"""Write items as Parquet, in row groups with bounded memory. Needs the extra `parquet` (pyarrow).

Named by the registry of formats (`zcrawl.model.formats`), for output files and exports. A Parquet
file is readable only after its footer is written at the end, so callers write a temporary file and
rename it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl.errors import StoreDataError, UsageError
from zcrawl.model.reasons.storage import BAD_ITEM
from zcrawl.model.reasons.usage import MISSING_EXTRA
from zcrawl.outputs.columns import ColumnKind, Layout, ListOf, ObjectOf, inferred, rest_name
from zcrawl.outputs.files.folder import OutputFolder

ROW_GROUP: Final = 20_000  # items
GROUP_BYTES: Final = 32_000_000  # of items as JSON: large ones make smaller groups
_object = msgspec.json.Decoder(dict[str, Any]).decode


class ParquetRows:
    """A Parquet file: `add` items, then `close` it. `written`: bytes on disk so far."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        group: int = ROW_GROUP,
        folder: OutputFolder | None = None,
    ) -> None:
        """Create the file, in `folder` if it is given."""
        self._pa, self._pq = _pyarrow()
        # Created at once: a later leader removes it, and our `publish` then fails.
        self._file = path.open("wb") if folder is None else folder.create(path.name, -1)
        self._layout = layout
        self._writer: Any = None  # from the first row group on, which may define the columns
        self._columns: dict[str, ColumnKind] = {}
        self._rest = ""
        self._group = group
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    @property
    def written(self) -> int:
        """Bytes so far; waiting rows count as a quarter of their JSON."""
        return self._file.tell() + self._waiting_bytes // 4

    def add(self, items: Sequence[bytes]) -> None:
        for item in items:
            self._waiting.append(item)
            self._waiting_bytes += len(item)
            if len(self._waiting) >= self._group or self._waiting_bytes >= GROUP_BYTES:
                self._write()

    def close(self) -> None:
        try:
            if self._waiting:
                self._write()
            if self._writer is None:
                self._begin([])
        finally:
            if self._writer is not None:  # also after an error; otherwise its destructor does it
                # later
                self._writer.close()
            self._file.close()

    def _begin(self, first: list[dict[str, Any]]) -> None:
        pa, layout = self._pa, self._layout
        self._columns = inferred(first) if layout.columns is None else layout.columns
        self._rest = rest_name(self._columns) if layout.rest else ""
        columns = {**self._columns, self._rest: "json"} if self._rest else self._columns
        schema = pa.schema([(name, _arrow(pa, kind)) for name, kind in columns.items()])
        self._writer = self._pq.ParquetWriter(self._file, schema, compression="zstd")

    def _write(self) -> None:
        items, self._waiting, self._waiting_bytes = self._waiting, [], 0
        values = [_decode(item) for item in items]
        if self._writer is None:
            self._begin(values)
        # Values of each item without a column, or that do not fit it.
        others: list[dict[str, Any]] = []
        if self._rest:
            columns = self._columns
            others = [{k: v for k, v in fields.items() if k not in columns} for fields in values]
        arrays = [self._array(name, kind, values, others) for name, kind in self._columns.items()]
        if self._rest:
            texts = [msgspec.json.encode(fields).decode() if fields else None for fields in others]
            arrays.append(self._pa.array(texts, type=self._pa.string()))
        schema = self._writer.schema
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=schema))

    def _array(
        self, name: str, kind: ColumnKind, items: list[dict[str, Any]], others: list[dict[str, Any]]
    ) -> Any:
        values, arrow = [item.get(name) for item in items], _arrow(self._pa, kind)
        if kind != "json":
            try:
                return self._pa.array(values, type=arrow)
            except (self._pa.ArrowException, TypeError, ValueError, OverflowError):
                pass  # a value has another type: converted below, one by one
        fitted = []
        for number, value in enumerate(values):
            try:
                fitted.append(_fit(value, kind))
            except StoreDataError:
                if not others:
                    raise
                others[number][name] = value
                fitted.append(None)
        return self._pa.array(fitted, type=arrow)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow: pip install 'zcrawl[parquet]'", code=MISSING_EXTRA
        ) from None
    return pyarrow, pyarrow.parquet


def _arrow(pa: Any, kind: ColumnKind) -> Any:
    match kind:
        case ListOf(inner):
            return pa.list_(_arrow(pa, inner))
        case ObjectOf(fields):
            return pa.struct([(name, _arrow(pa, inner)) for name, inner in fields])
        case "int":
            return pa.int64()
        case "float":
            return pa.float64()
        case "bool":
            return pa.bool_()
        case _:
            return pa.string()


def _fit(value: Any, kind: ColumnKind) -> Any:
    """Return the value, or its JSON for a text column. A value that does not fit raises an
    error."""
    if value is None:
        return None
    match kind:
        case ListOf(inner):
            return (
                [_fit(element, inner) for element in value]
                if isinstance(value, list)
                else _refuse_value(value)
            )
        case ObjectOf(fields):
            if not isinstance(value, dict):
                return _refuse_value(value)
            return {name: _fit(value.get(name), inner) for name, inner in fields}
        case "string":
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "json":
            return msgspec.json.encode(value).decode()
        case "bool":
            return value if isinstance(value, bool) else _refuse_value(value)
        case "int":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return value if whole and abs(value) < 2**63 else _refuse_value(value)
        case _:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return float(value) if number else _refuse_value(value)


def _refuse_value(value: Any) -> Any:
    raise StoreDataError(f"a value does not fit its column: {value!r:.80}", code=BAD_ITEM)


def _decode(item: bytes) -> dict[str, Any]:
    try:
        return _object(item)
    except msgspec.MsgspecError as error:
        raise StoreDataError(f"an item is not a JSON object: {error}", code=BAD_ITEM) from error
