"""A body of seeds, cut into requests as it arrives: one seed a line. Pure.

A line is a URL, or JSON: a text, or an object with `url`. Empty lines and lines that begin with
`#` do not count. How the body is cut depends on its lines only, not on the network. So a body
that is sent twice gives the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

MOST_SEEDS: Final = 1_000  # of a request `add_seeds`
MOST_TEXT: Final = 400_000  # characters of them
MOST_LINE: Final = 16_384  # bytes


class Chunk(msgspec.Struct, frozen=True):
    """The seeds of one request, and the lines of the body that they are from."""

    seeds: list[str]
    first_line: int
    last_line: int


class BadLine(ValueError):
    """A line that is no seed. `line` is counted from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} {why}")
        self.line = line


class SeedBody:
    """Feed it with bytes; it gives chunks. It holds one chunk and one line."""

    def __init__(self) -> None:
        self.line = 0  # lines read
        self._rest = b""
        self._seeds: list[str] = []
        self._text = 0
        self._first = 1

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Yield the chunks that are full now."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MOST_LINE:
            raise BadLine(self.line + len(lines) + 1, f"is longer than {MOST_LINE} bytes")
        for line in lines:
            yield from self._take(line)

    def finish(self) -> Chunk:
        """Return the last chunk, which may be empty."""
        rest, self._rest = self._rest, b""
        if rest:
            full = list(self._take(rest))
            if full:  # its last line filled it: nothing is left over
                return full[0]
        return self._cut()

    def _take(self, line: bytes) -> Iterator[Chunk]:
        self.line += 1
        if len(line) > MOST_LINE:
            raise BadLine(self.line, f"is longer than {MOST_LINE} bytes")
        seed = _seed(line.strip(), self.line)
        if not seed:
            return
        self._seeds.append(seed)
        self._text += len(seed)
        if len(self._seeds) == MOST_SEEDS or self._text >= MOST_TEXT:
            yield self._cut()

    def _cut(self) -> Chunk:
        chunk = Chunk(self._seeds, self._first, self.line)
        self._seeds, self._text, self._first = [], 0, self.line + 1
        return chunk


def _seed(line: bytes, number: int) -> str:
    if not line or line.startswith(b"#"):
        return ""
    try:
        if line[:1] not in (b'"', b"{"):
            return line.decode()
        value = msgspec.json.decode(line)
    except UnicodeDecodeError:
        raise BadLine(number, "is not UTF-8") from None
    except RecursionError:
        raise BadLine(number, "is nested too deep") from None
    except msgspec.DecodeError as error:
        raise BadLine(number, f"is not JSON: {error}") from None
    if isinstance(value, dict):
        value = value.get("url")
    if not isinstance(value, str) or not value:
        raise BadLine(number, 'is neither a URL nor {"url": "…"}')
    return value
