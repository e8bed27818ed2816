"""Turn lines into seeds, in chunks, so that five million need no more memory than a thousand.

Called by the CLI for arguments, `--seeds FILE` and stdin. Pure: it takes an iterator of lines.
The rule for lines that are not URLs: in the first chunk such a line is an error, before a job
exists. Later such lines are left out, counted and reported at the end, because the crawl may have
run for hours by then.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from zcrawl.errors import BadUrl
from zcrawl.frontier.tasks import check_task_id, is_task_id
from zcrawl.frontier.url import canonicalize, quoted
from zcrawl.model.reasons.skip import UNSUPPORTED_SCHEME
from zcrawl.model.spec import CRAWL
from zcrawl.submit.url_logins import refuse_login
from zcrawl.text.patterns import lazy_pattern

CHUNK: Final = 1000
CHUNK_TEXT: Final = 250_000  # characters; a master accepts 500,000 in one request
_SHOWN: Final = 80  # characters of a bad line that a message repeats
_MAX_PORT: Final = 65_535
_PATH = lazy_pattern(r"^(?:\.{0,2}/(?!/)|~/|file:|[\w./-]+\.html?$)")
_PORT = lazy_pattern(
    r"^(?:https?://)?(?:[^/?#@]*@)?(?:\[[0-9A-Fa-f:.]*\]|[^/?#:]*):([0-9]{1,20})(?:[/?#]|$)"
)
_WORD_PORT = lazy_pattern(r"^https?://[^/?#:\[]*:([^/?#]*[^0-9/?#][^/?#]*)(?:[/?#]|$)")
_NO_HOST = lazy_pattern(r"^https?:(?:/{0,2}$|///)", re.IGNORECASE)
_SPACE_IN_HOST = lazy_pattern(r"^https?://[^/?#]*\s", re.IGNORECASE)
_MAILBOX = lazy_pattern(r"^(?:mailto:)?[^/:@\s]+@([\w.-]+)$", re.IGNORECASE)
_NOT_UTF8 = lazy_pattern("[\udc80-\udcff]")  # how such bytes of a file arrive
_OWN_NETWORK = lazy_pattern(r"localhost\b|127\.|10\.|192\.168\.")
_LIST = "For a list of URLs in a file: --seeds FILE"
_JOB = "A job file is TOML, and its name ends in .toml"
_FILE_ADVICE: Final = {
    ".txt": _LIST,
    ".csv": _LIST,
    ".json": _JOB,
    ".yaml": _JOB,
    ".yml": _JOB,
    ".tml": _JOB,
    ".xml": "For a sitemap write its whole URL, https://example.com/sitemap.xml",
}
_SCHEME = lazy_pattern(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_HOST = lazy_pattern(r"^[\w.-]+(?::[0-9]+)?(?:[/?#].*)?$")


def check_seed(text: str) -> str:
    """Return `text` if it is a URL without a password; else raise BadUrl with advice."""
    shown = quoted(text, _SHOWN)
    if _PATH.match(text):
        raise BadUrl(
            f"not a valid URL: {shown} is a file's path. zcrawl crawls web servers; to try a "
            "folder of files: python3 -m http.server, then http://127.0.0.1:8000/"
        )
    if text == "-":
        raise BadUrl("not a valid URL: '-'. For a list of URLs on stdin write --seeds -")
    port = _PORT.match(text)
    port = port or (_WORD_PORT.match(text) if "@" not in text else None)
    if port and not (port[1].isdigit() and 0 < int(port[1]) <= _MAX_PORT):
        raise BadUrl(f"not a valid URL: {shown} has port {port[1]}; ports go from 1 to 65535")
    if _NO_HOST.match(text):
        raise BadUrl(f"not a valid URL: {shown} has no host. Write https://example.com/")
    if _SPACE_IN_HOST.match(text):
        raise BadUrl(f"not a valid URL: {shown} has a space in its host")
    advice = file_advice(text)
    if advice:
        raise BadUrl(f"not a valid URL: {shown} is a file's name. {advice}")
    looks_like_host = _HOST.match(text) and (not _SCHEME.match(text) or _port_follows(text))
    if looks_like_host:
        meant = shown.strip("'")
        scheme = "http" if _OWN_NETWORK.match(text) else "https"
        spider = f"; for a spider in a file: --spider {meant}:Name" if text.endswith(".py") else ""
        raise BadUrl(f"not a valid URL: {shown} has no scheme. Try {scheme}://{meant}{spider}")
    mailbox = _MAILBOX.match(text)
    if mailbox:  # or a login without its scheme: what is before the @ is not shown
        raise BadUrl(
            f"not a valid URL: an e-mail address at {mailbox[1][:80]}. For its site write "
            f"https://{mailbox[1][:80]}/",
            code=UNSUPPORTED_SCHEME,
        )
    try:
        canonicalize(text)
    except BadUrl:
        if not _NOT_UTF8.search(text):
            raise
        raise BadUrl(
            f"not a valid URL: {shown} has a byte that is not UTF-8; save the file with the "
            "encoding UTF-8"
        ) from None
    refuse_login(text)
    return text


def check_task(text: str) -> str:
    """Return `text` if it is a URL as `check_seed` accepts it, or can be the id of a task."""
    return check_task_id(text) if is_task_id(text) else check_seed(text)


def seed_check(kind: str) -> Callable[[str], str]:
    """Return the check of a seed of jobs of this kind."""
    return check_seed if kind == CRAWL else check_task


def file_advice(name: str) -> str:
    """Return advice about a file that was given instead of a URL or a job file; empty if it is not
    a file of a known kind."""
    plain = "/" not in name.removeprefix("./") and ":" not in name
    dot = name.rfind(".")
    return _FILE_ADVICE.get(name[dot:].lower(), "") if plain and dot > 0 else ""


def _port_follows(text: str) -> bool:
    """Return whether a port follows: `localhost:8000/` is a host, not a scheme `localhost`."""
    return bool(re.match(r"^[\w.-]+:[0-9]+(?:[/?#]|$)", text))


class SeedLines:
    """Make chunks of at most CHUNK seeds and CHUNK_TEXT characters from lines.

    Blank lines and `#` comments are ignored."""

    def __init__(
        self,
        lines: Iterable[str],
        source: str,
        clean: Callable[[str], str] = lambda text: text,
        check: Callable[[str], str] = check_seed,
    ) -> None:
        """Read from `lines`; `clean` takes logins out of URLs (`url_logins`)."""
        self._clean, self._check = clean, check
        self.seeds = 0
        self.bad = 0
        self.first_bad = ""
        self._lines = enumerate(lines, 1)
        self._source = source
        self._strict = True  # until the first chunk is complete
        self.ended = False  # all lines are read

    def chunks(self, before: Sequence[str] = ()) -> Iterator[list[str]]:
        """Yield chunks; the seeds in `before` are already checked and come first."""
        chunk: list[str] = []
        length = 0
        for seed in itertools.chain(before, self._read()):
            if length + len(seed) > CHUNK_TEXT:
                yield self._complete(chunk)
                chunk, length = [], 0
            chunk.append(seed)
            length += len(seed)
            if len(chunk) == CHUNK:  # at once: the next line of stdin may come in an hour
                yield self._complete(chunk)
                chunk, length = [], 0
        self.ended = True
        if chunk:
            yield chunk

    def _complete(self, chunk: list[str]) -> list[str]:
        self._strict = False
        return chunk

    def _read(self) -> Iterator[str]:
        for number, line in self._lines:
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                seed = self._check(self._clean(text))
            except BadUrl as error:
                self._refuse(number, error)
                continue
            self.seeds += 1
            yield seed

    def _refuse(self, number: int, error: BadUrl) -> None:
        where = f"{self._source}, line {number}: {error}"
        if self._strict:
            raise BadUrl(where, code=error.code) from None
        self.bad += 1
        self.first_bad = self.first_bad or where

    def complaint(self) -> str | None:
        """Return the report about bad lines for the end of the crawl, or None."""
        if not self.bad:
            return None
        total = self.seeds + self.bad
        return f"{self.bad} of {total} seeds are not valid URLs; first: {self.first_bad}"
