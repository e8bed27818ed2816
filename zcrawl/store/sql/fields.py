"""Column types that differ between SQLite and MySQL, for the models of the schema."""

from __future__ import annotations

from typing import Any

import peewee

URL_BYTES = 8_192


class IdField(peewee.Field):
    """An id given by the store. SQLite needs the word INTEGER to make it the row id."""

    field_type = "ZC_ID"


class BytesField(peewee.BlobField):
    """Bytes of bounded length: BLOB on SQLite, VARBINARY(n) on MySQL, so no collation applies."""

    def __init__(self, length: int, **options: Any) -> None:
        self.length = length
        super().__init__(**options)

    field_type = "ZC_BYTES"

    def get_modifiers(self) -> list[int]:
        return [self.length]


def default(value: str) -> dict[str, Any]:
    return {"constraints": [peewee.SQL(f"DEFAULT {value}")]}
