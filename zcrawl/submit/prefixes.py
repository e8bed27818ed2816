"""Decide whether a path or an S3 URL is below a prefix that an operator named.

Used by `output_rights` (files that masters write) and `fetch.keyring` (files that workers read).
Pure: it compares names, segment by segment, and reads no file. A name that can be read in different
ways is refused: a way up (`..`), an escape or an empty segment in
an S3 key, a home folder, a control character. So `s3://bucket/mine-evil/x` and
`s3://bucket/mine/../x` do not lie below `s3://bucket/mine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from zcrawl.text.patterns import lazy_pattern

S3: Final = "s3://"
MOST_BYTES: Final = 1_900  # of a name; the database has 2,000, and names of parts are longer
_BUCKET: Final = lazy_pattern(r"[a-z0-9][a-z0-9.-]{1,62}")
_CONTROL: Final = lazy_pattern(r"[\x00-\x1f\x7f]")
_UNCLEAR_IN_KEY: Final = lazy_pattern(r"[%\\?#*]")


class OutputName(msgspec.Struct, frozen=True):
    """A name in its parts. `root` is "" for a relative path, "/", or `s3://bucket`."""

    root: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        slash = "" if self.root in ("", "/") else "/"
        return f"{self.root}{slash}{'/'.join(self.parts)}"


def place_of(name: str) -> OutputName:
    """Split a path or URL into its parts; ValueError with the reason if it is not allowed."""
    if not name:
        raise ValueError("it is empty")
    if len(name.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    if _CONTROL.search(name):
        raise ValueError("it has control characters")
    if name.startswith(S3):
        return _remote(name)
    if "://" in name:
        raise ValueError("the only remote place is s3://bucket/prefix")
    if name.startswith("~"):
        raise ValueError("write the whole path, without `~`")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError("write it without `..`")
    return OutputName("/" if name.startswith("/") else "", parts)


def _remote(url: str) -> OutputName:
    bucket, _, key = url.removeprefix(S3).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{bucket[:80]!r} is not the name of a bucket")
    parts = tuple(key.removesuffix("/").split("/")) if key else ()
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError("its key has an empty segment, `.` or `..`")
    if _UNCLEAR_IN_KEY.search(key):
        raise ValueError("its key has one of the characters % \\ ? # *")
    return OutputName(S3 + bucket, parts)


def prefix_of(text: str) -> OutputName:
    """Parse a prefix of the configuration: an absolute folder, or `s3://bucket/prefix`. ValueError
    for anything else, and for `/`, which would allow everything."""
    place = place_of(text)
    if not place.root:
        raise ValueError("write an absolute folder (/srv/crawls/) or s3://bucket/prefix/")
    if place == OutputName("/", ()):
        raise ValueError("/ would allow everything; name a folder")
    return place


def prefix_above(place: OutputName, prefixes: Iterable[OutputName]) -> OutputName | None:
    """Return the first prefix that `place` is below; a prefix is not below itself."""
    for prefix in prefixes:
        count = len(prefix.parts)
        if (
            place.root == prefix.root
            and len(place.parts) > count
            and place.parts[:count] == prefix.parts
        ):
            return prefix
    return None
