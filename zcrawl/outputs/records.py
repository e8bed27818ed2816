"""The writers of formats whose files are records, one after the other: JSON lines, CSV, WARC.

Each makes the bytes that follow in a file. `files.growing` puts them into output files,
`files.exports` into exports; `model.formats` names the classes. Pure: bodies of archives come from
`body_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from zcrawl.outputs.columns import REST, Layout, rest_name
from zcrawl.outputs.render import csv_columns, read_header, render_csv, render_jsonl

GetBody: TypeAlias = Callable[[str], bytes]  # the body of a captured page, by its name


class Records(Protocol):
    """The records of one file. `columns` is None if the format has none, or they are not known
    yet."""

    columns: tuple[str, ...] | None

    def __init__(self, layout: Layout, body_of: GetBody | None) -> None: ...

    @property
    def has_head(self) -> bool:
        """Whether a file without items has content."""
        ...

    def render(self, items: Sequence[bytes], title: str | None, *, first: bool) -> bytes:
        """Return the bytes of the items. `first`: the file is empty so far. `title` is the name in
        the head of the file; None: the file continues another one, and has no head."""
        ...

    def resume(self, beginning: bytes) -> None:
        """Read the columns of an existing file from its first bytes."""
        ...


class JsonLines:
    """One JSON object per line."""

    def __init__(self, layout: Layout, body_of: GetBody | None) -> None:
        self.columns: tuple[str, ...] | None = None

    @property
    def has_head(self) -> bool:
        return False

    def render(self, items: Sequence[bytes], title: str | None, *, first: bool) -> bytes:
        return render_jsonl(items)

    def resume(self, beginning: bytes) -> None:
        pass  # lines are independent


class Csv:
    """A header and a row for each item. If the job has no columns, the first items define them."""

    def __init__(self, layout: Layout, body_of: GetBody | None) -> None:
        self.columns = None if layout.columns is None else tuple(layout.columns)
        self._rest, self._safe = layout.rest, layout.csv_safe

    @property
    def has_head(self) -> bool:
        return self.columns is not None

    def render(self, items: Sequence[bytes], title: str | None, *, first: bool) -> bytes:
        if self.columns is None and first:
            self.columns = csv_columns(items)
            self._rest = rest_name(self.columns)
        assert self.columns is not None  # read from the file when it was opened
        header = first and title is not None
        return render_csv(items, self.columns, header, self._rest, self._safe)

    def resume(self, beginning: bytes) -> None:
        columns = read_header(beginning, self._safe)
        # A file of an earlier version has no column for the rest, and gets none.
        self._rest = columns[-1] if columns and columns[-1].startswith(REST) else ""
        self.columns = columns[:-1] if self._rest else columns


class Warc:
    """The records of captured exchanges, after one that describes the file."""

    def __init__(self, layout: Layout, body_of: GetBody | None) -> None:
        self.columns: tuple[str, ...] | None = None
        self._body_of = body_of

    @property
    def has_head(self) -> bool:
        return True

    def render(self, items: Sequence[bytes], title: str | None, *, first: bool) -> bytes:
        from zcrawl.outputs.warc import render_warc, warc_head

        assert self._body_of is not None  # jobs with archives always have a blob store
        head = warc_head(title) if first and title is not None else b""
        return head + render_warc(list(items), self._body_of)

    def resume(self, beginning: bytes) -> None:
        pass  # records are independent
