"""Turns lines into seeds, in chunks, so that five million of them need no more memory than a
thousand.

Called by the CLI for arguments, `--seeds FILE` and stdin. Pure: it takes an iterator of lines.
The rule for lines that are no URL: within the first chunk the first of them ends everything
before a job exists; later ones are left out, counted, and told at the end, because by then the
crawl may be hours old.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from zcrawl.errors import BadUrl
from zcrawl.frontier.url import canonicalize, quoted
from zcrawl.submit.url_logins import refuse_login

CHUNK: Final = 1000
_SHOWN: Final = 80  # characters of a bad line that a message repeats
_MAX_PORT: Final = 65_535
_PATH = re.compile(r"^(?:\.{0,2}/(?!/)|~/|file:|[\w./-]+\.html?$)")
_PORT = re.compile(
    r"^(?:https?://)?(?:[^/?#@]*@)?(?:\[[0-9A-Fa-f:.]*\]|[^/?#:]*):([0-9]{1,20})(?:[/?#]|$)"
)
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_HOST = re.compile(r"^[\w.-]+(?::[0-9]+)?(?:[/?#].*)?$")


def check_seed(text: str) -> str:
    """`text` if it is a URL without a password; else BadUrl, with the likely remedy."""
    shown = quoted(text, _SHOWN)
    if _PATH.match(text):
        raise BadUrl(
            f"not a valid URL: {shown} is a file's path. zcrawl crawls web servers; to try a "
            "folder of files: python3 -m http.server, then http://127.0.0.1:8000/"
        )
    port = _PORT.match(text)
    if port and int(port[1]) > _MAX_PORT:
        raise BadUrl(f"not a valid URL: {shown} has port {port[1]}; ports go from 1 to 65535")
    looks_like_host = _HOST.match(text) and (not _SCHEME.match(text) or _port_follows(text))
    if looks_like_host:
        meant = shown.strip("'")
        raise BadUrl(f"not a valid URL: {shown} has no scheme. Try https://{meant}")
    canonicalize(text)
    refuse_login(text)
    return text


def _port_follows(text: str) -> bool:
    """`localhost:8000/` reads as a scheme named localhost; nobody means that."""
    return bool(re.match(r"^[\w.-]+:[0-9]+(?:[/?#]|$)", text))


class SeedLines:
    """Chunks of at most CHUNK seeds from lines. Blank lines and `#` comments are no seeds."""

    def __init__(
        self, lines: Iterable[str], source: str, clean: Callable[[str], str] = lambda text: text
    ) -> None:
        """`clean` takes logins out of URLs (`url_logins`)."""
        self._clean = clean
        self.seeds = 0
        self.bad = 0
        self.first_bad = ""
        self._lines = enumerate(lines, 1)
        self._source = source
        self._strict = True  # until the first chunk is complete

    def chunks(self, before: Sequence[str] = ()) -> Iterator[list[str]]:
        """`before` are seeds that were judged elsewhere; they come first."""
        chunk: list[str] = list(before)
        while len(chunk) >= CHUNK:
            yield chunk[:CHUNK]
            self._strict = False
            chunk = chunk[CHUNK:]
        for number, line in self._lines:
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                chunk.append(check_seed(self._clean(text)))
            except BadUrl as error:
                self._refuse(number, error)
                continue
            self.seeds += 1
            if len(chunk) == CHUNK:
                yield chunk
                self._strict = False
                chunk = []
        if chunk:
            yield chunk

    def _refuse(self, number: int, error: BadUrl) -> None:
        where = f"{self._source}, line {number}: {error}"
        if self._strict:
            raise BadUrl(where, code=error.code) from None
        self.bad += 1
        self.first_bad = self.first_bad or where

    def complaint(self) -> str | None:
        """What is to be told at the end, if anything."""
        if not self.bad:
            return None
        total = self.seeds + self.bad
        return f"{self.bad} of {total} seeds are not valid URLs; first: {self.first_bad}"
