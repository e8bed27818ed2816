"""The registry of output formats: one declaration for each format.

Job files, output files, `export`, the check for missing packages, command help and the table in
docs/outputs.md read it; there is no other list of formats or endings. A writer is named here and
loaded when a file is opened (`outputs.files.writers`), because some load large libraries. Pure.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class StdoutKind(enum.Enum):
    """What becomes of a format's bytes on standard output."""

    JSON = "JSON"  # control characters are escaped, which changes no value
    TEXT = "text"  # a terminal gets it without control characters, a program gets it unchanged
    BINARY = "binary"  # a terminal does not get it


class Format(msgspec.Struct, frozen=True):
    """A declared format.

    `appendable`: a file of records that can be continued at its end, so it grows in the embedded
    form, and leaders of a cluster write pieces of it; its writer is an `outputs.records.Records`.
    Otherwise a file is written from its first row and appears when it is complete; its writer is an
    `outputs.files.writers.WholeFile`.
    """

    name: str  # in `output.to`, `--format` and the database
    title: str  # in messages and docs
    endings: tuple[str, ...]  # of file names; the first is for files that only the format names
    writer: str  # module:class
    appendable: bool
    display: StdoutKind
    about: str  # for docs: what is in a file, and when it appears
    has_columns: bool = False  # the writer must know the fields of items beforehand
    captures: bool = False  # it holds captured exchanges instead of items
    extra: str = ""  # of zcrawl, that the writer needs
    package: str = ""  # a module of that extra

    @property
    def ending(self) -> str:
        return self.endings[0]


FORMATS: Final[dict[str, Format]] = {}  # by name


def declare(format: Format) -> str:
    """Declare a format; return its name. ValueError: the declaration is not complete."""
    problem = _problem(format)
    if problem:
        raise ValueError(f"output format {format.name!r}: {problem}")
    FORMATS[format.name] = format
    return format.name


def _problem(format: Format) -> str:
    if not format.name.isalnum() or format.name in FORMATS:
        return "the name is not a word, or is declared twice"
    if not format.endings or not all(ending.startswith(".") for ending in format.endings):
        return "it has no ending that begins with a dot"
    if any(format_of(f"x{ending}") for ending in format.endings):
        return "another format has the ending"
    if not all(format.writer.partition(":")):
        return "its writer is not module:class"
    if not format.title or not format.about:
        return "it is not documented"
    if bool(format.extra) != bool(format.package):
        return "an extra is known by a package, and only that"
    return ""


def format_of(name: str) -> str | None:
    """Return the format of a file name by its ending, or None."""
    lower = name.lower()
    for format in FORMATS.values():
        if lower.endswith(format.endings):
            return format.name
    return None


def ending_of(name: str) -> str:
    """Return the ending of a format that the name of a file has; empty: none."""
    lower = name.lower()
    return next((ending for ending in all_endings() if lower.endswith(ending)), "")


def all_endings() -> list[str]:
    """Return the endings of all formats, in the order of their declarations."""
    return [ending for format in FORMATS.values() for ending in format.endings]


def listed_endings(*, captures: bool = True) -> str:
    """Return the usual ending of each format for a sentence: `.jsonl, .csv or .parquet`.

    Without `captures` those that hold captured exchanges are left out."""
    formats = [format for format in FORMATS.values() if captures or not format.captures]
    *others, last = [format.ending for format in formats]
    return f"{', '.join(others)} or {last}"


def is_capture(name: str | None) -> bool:
    """Return whether outputs of the format of that name hold captured exchanges."""
    format = FORMATS.get(name or "")
    return format is not None and format.captures


# ---------------------------------------------------------------- declarations

GROWS: Final = (
    "`crawl`, `up`: grows with the crawl, at most a moment behind. On a cluster: appears when it "
    "is complete."
)
JSONL: Final = declare(
    Format(
        name="jsonl",
        title="JSON lines",
        endings=(".jsonl", ".ndjson"),
        writer="zcrawl.outputs.records:JsonLines",
        appendable=True,
        display=StdoutKind.JSON,
        about=GROWS,
    )
)
CSV: Final = declare(
    Format(
        name="csv",
        title="CSV",
        endings=(".csv",),
        writer="zcrawl.outputs.records:Csv",
        appendable=True,
        display=StdoutKind.TEXT,
        about=GROWS,
        has_columns=True,
    )
)
PARQUET: Final = declare(
    Format(
        name="parquet",
        title="Parquet",
        endings=(".parquet",),
        writer="zcrawl.outputs.files.parquet:ParquetRows",
        appendable=False,
        display=StdoutKind.BINARY,
        about="Appears when it is complete: at the end of the run or of the part. Types are those "
        "of the fields; objects and lists are nested; what has no single type is JSON text.",
        has_columns=True,
        extra="parquet",
        package="pyarrow",
    )
)
WARC: Final = declare(
    Format(
        name="warc",
        title="WARC",
        endings=(".warc.gz",),
        writer="zcrawl.outputs.records:Warc",
        appendable=True,
        display=StdoutKind.BINARY,
        about=f"{GROWS} WARC 1.1: a request, a response and a metadata record for each answer and "
        "each redirect before it, gzip for each record.",
        captures=True,
        extra="warc",
        package="warcio",
    )
)
