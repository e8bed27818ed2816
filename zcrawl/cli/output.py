"""Printing of commands: data on stdout, notes on stderr, foreign text cleaned by `text.terminal`.

Nothing else in zcrawl writes to stdout or stderr (an architecture test checks it), so no command
can forget to clean. rich is imported where a table is drawn and nowhere else; a pipe gets plain
aligned columns.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

import msgspec

from zcrawl.errors import ZcrawlError
from zcrawl.model.reasons.usage import STDOUT_FAILED
from zcrawl.text.terminal import shown, shown_json, shown_json_bytes

# For terminals that have only ASCII characters.
PLAIN: Final = str.maketrans({"×": "x", "…": "...", "–": "-", "→": "->", "·": "-"})


class StdoutFailed(ZcrawlError):
    """Standard output cannot be written, for example on a full disk."""

    code = STDOUT_FAILED


def note_if(line: str | None) -> None:
    if line:
        note(line)


def note(text: str) -> None:
    """Print one line for people on stderr."""
    _narrate(shown(text))


def note_lines(text: str) -> None:
    """Print several lines for people, such as a traceback, on stderr."""
    _narrate(shown(text, keep="\n"))


def can_confirm() -> bool:
    """Return whether a person can see a question and answer it."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def confirm(question: str) -> bool:
    """Ask a question on stderr. Only `y` and `yes` mean yes; the end of the input means no."""
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def data(text: str) -> None:
    """Print one line of data on stdout."""
    _write(shown(text))


def page(text: str) -> None:
    """Print several lines of formatted data on stdout."""
    _write(shown(text, keep="\n"))


def print_json(value: Any) -> None:
    """Print one value as one line of JSON on stdout."""
    print_json_text(msgspec.json.encode(value).decode())


def print_json_text(text: str) -> None:
    """Print encoded JSON on stdout."""
    _write(shown_json(text))


def write_items(chunk: bytes, form: str) -> None:
    """Write items in their format to stdout.

    JSON lines are always escaped, which does not change values. CSV has no escapes: programs get
    the text unchanged, terminals get it cleaned.
    """
    from zcrawl.model.formats import FORMATS, StdoutKind

    display = FORMATS[form].display
    if display is StdoutKind.JSON:
        chunk = shown_json_bytes(chunk)
    elif display is StdoutKind.TEXT and sys.stdout.isatty():
        chunk = shown(chunk.decode("utf-8", "replace"), keep="\r\n").encode()
    with _stdout_errors():
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _narrate(text: str) -> None:
    # If stderr cannot be written, for example on a full disk, the work continues without the note.
    with contextlib.suppress(OSError):
        print(_encodable(text, sys.stderr), file=sys.stderr, flush=True)


def _write(text: str) -> None:
    with _stdout_errors():
        print(_encodable(text, sys.stdout), flush=True)


@contextlib.contextmanager
def _stdout_errors() -> Iterator[None]:
    """Turn errors of stdout into StdoutFailed, except BrokenPipeError (the reader is gone)."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutFailed(f"standard output cannot be written: {error.strerror}") from None


def _encodable(text: str, stream: TextIO) -> str:
    """Return the text with only those characters that the stream's encoding has."""
    encoding = stream.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(PLAIN)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], right: Collection[str] = ()
) -> None:
    """Print rows under headings: a rich table on a terminal, else columns that `awk` can read.

    Columns in `right` are aligned to the right.
    """
    cells = [[shown(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells, right)
        return
    widths = [
        max(len(name), *(len(row[n]) for row in cells)) if cells else len(name)
        for n, name in enumerate(columns)
    ]
    for row in ([*columns], *cells):
        aligned = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        data("  ".join(aligned).rstrip())


def _rich_table(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Collection[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        drawn.add_column(name, overflow="fold", justify="right" if name in right else "left")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def fields(values: Mapping[str, object]) -> None:
    """Print `name  value` lines on stdout."""
    lines = {shown(name): value for name, value in values.items()}
    width = max(map(len, lines), default=0)
    for name, value in lines.items():
        data(f"{name.ljust(width)}  {value}")


def describe_output(view: dict[str, Any]) -> str:
    """Return where an output of a run is, and its problem if it has one."""
    where = view["path"]
    if view.get("file"):
        where = f"{view['file']} on {view['master']}" if view["master"] else view["file"]
        others = sum(place["last"] - place["first"] + 1 for place in view["places"]) - 1
        where += f" and {others} parts before it" if others else ""
    return f"{where}: {view['problem']}" if view["problem"] else where


def counts(values: Mapping[str, int], limit: int = 8) -> str:
    """Return counts as text, most frequent first: `404 × 3, timeout × 1`."""
    pairs = sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{name} × {number}" for name, number in pairs[:limit]]
    return ", ".join(shown) + (f" and {len(pairs) - limit} more" if len(pairs) > limit else "")


def size(number: float) -> str:
    """Return a number of bytes as text, in powers of 1000: `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError("unreachable: the last unit takes every number")


def plural(number: int, noun: str) -> str:
    """Return a count with its noun: `1 page`, `2 pages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clock(number: float) -> str:
    """Return a duration without spaces, for columns: `0:45`, `3:20`, `2:05:00`."""
    minutes, rest = divmod(round(number), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def seconds(number: float) -> str:
    """Return a duration as text: `4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if number < 60:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
