"""A store in a package: `output.to = ["plugin:folder"]` keeps each batch of items in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class Folder:
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, items: Sequence[bytes]) -> None:
        """The same name again replaces the file: each item is there once."""
        aside = self._path / f"{name}.part"
        aside.write_bytes(b"".join(item + b"\n" for item in items))
        aside.rename(self._path / f"{name}.jsonl")

    def close(self) -> None:
        """Each batch is complete when it is put."""
