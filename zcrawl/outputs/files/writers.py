"""Load the writer of an output format when a file is opened, because some need large libraries.

Called by `growing`, `parts` and `export`. `model.formats` names the writers.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from zcrawl.model.formats import Format
from zcrawl.outputs.columns import Layout
from zcrawl.outputs.files.folder import OutputFolder
from zcrawl.outputs.records import GetBody, Records


class WholeFile(Protocol):
    """A file that is readable only after it is closed. `written`: approximate bytes so far."""

    @property
    def written(self) -> int: ...

    def add(self, items: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


def records_of(format: Format, layout: Layout, body_of: GetBody | None) -> Records:
    """Return the records of a new file of an appendable format."""
    assert format.appendable, format.name
    return cast(Records, load(format)(layout, body_of))


def whole_file(
    format: Format, path: Path, layout: Layout, folder: OutputFolder | None = None
) -> WholeFile:
    """Begin a file of a format that is not appendable; in `folder` if it is given."""
    assert not format.appendable, format.name
    return cast(WholeFile, load(format)(path, layout, folder=folder))


def load(format: Format) -> Any:
    """Return the writer class of a format."""
    module, _, name = format.writer.partition(":")
    return getattr(importlib.import_module(module), name)
