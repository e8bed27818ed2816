"""Decides what an answer means: by its status, its Retry-After, its Location, its encoding and
its size. Also the one table of fetch failures with their retry classes.

Called by the worker's pipeline (status, redirects) and by the engines (failures, `BodyReader`),
so that every engine has the same limits and the same names for what went wrong. Pure.
"""

from __future__ import annotations

import enum
import importlib
import math
import re
import zlib
from datetime import UTC
from typing import Any, Protocol

import msgspec

from zcrawl.errors import BadUrl, FetchError, RetryClass
from zcrawl.frontier.url import CanonicalRules, join, origin_of

_TRANSIENT = RetryClass.TRANSIENT
_PERMANENT = RetryClass.PERMANENT

# Every code an engine or a redirect may end with.
RETRY_CLASS_OF: dict[str, RetryClass] = {
    "dns": _TRANSIENT,  # resolvers fail often and briefly; NXDOMAIN costs the few retries
    "connect": _TRANSIENT,  # refused, unreachable
    "connect_timeout": _TRANSIENT,
    "read_timeout": _TRANSIENT,  # silent for too long
    "total_timeout": _TRANSIENT,  # never silent for too long, and still not done in time
    "reset": _TRANSIENT,  # closed or reset before an answer came
    "truncated": _TRANSIENT,  # less came than was announced
    "engine": _TRANSIENT,  # a failure of our own, e.g. closed while in use: blame no URL for it
    "browser": _TRANSIENT,  # it crashed, was killed or did not start
    "browser_memory": _TRANSIENT,  # it took more memory than it may: a neighbour's, perhaps
    "proxy": RetryClass.POSTPONED,  # the proxy failed, the page was not asked
    "proxies_down": RetryClass.POSTPONED,  # there is no proxy left to ask
    "address_moved": RetryClass.POSTPONED,  # the host's owner has to be chosen by its address
    "robots_elsewhere": RetryClass.POSTPONED,  # and here by the place of its robots.txt
    "tls": _PERMANENT,  # certificate or handshake
    "too_large": _PERMANENT,
    "bad_encoding": _PERMANENT,  # a body that does not decompress
    "protocol": _PERMANENT,  # no HTTP, or HTTP beyond all limits
    "bad_url": _PERMANENT,  # a URL or header that cannot be sent
    "blocked_address": _PERMANENT,  # the guard said no
    "secret_not_released": _PERMANENT,  # the host may not get what the job would send it
    "redirect_loop": _PERMANENT,
    "too_many_redirects": _PERMANENT,
    "bad_redirect": _PERMANENT,  # no Location, no URL in it, or no http(s) URL
}

MAX_MESSAGE = 500  # characters; libraries quote whole headers in theirs


def fetch_error(code: str, message: str) -> FetchError:
    """The error of that code, with the retry class that belongs to it."""
    return FetchError(message, code=code, retry=RETRY_CLASS_OF[code])


MAX_HEAD_BYTES = 131_072  # of all that comes before a body; real cookies need 8 KB and more


def head_too_large() -> FetchError:
    return fetch_error("protocol", f"more than {MAX_HEAD_BYTES} bytes of headers")


# ---------------------------------------------------------------- status and Retry-After


class Meaning(enum.Enum):
    DONE = "done"  # the page is there
    REDIRECT = "redirect"  # ask RedirectChain
    FAILED = "failed"  # see `retry` and `reason`


class Verdict(msgspec.Struct, frozen=True):
    """What a status means for the request. `retry` and `reason` are set when it failed."""

    meaning: Meaning
    reason: str = ""
    retry: RetryClass | None = None


REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_THROTTLED_STATUSES = frozenset({429, 503})
_TRANSIENT_STATUSES = frozenset({408, 425})
_DONE = Verdict(Meaning.DONE)
_REDIRECT = Verdict(Meaning.REDIRECT)


def classify_status(status: int) -> Verdict:
    """What to make of an answer with this status. 3xx without a target (300, 304) has failed."""
    if 200 <= status < 300:
        return _DONE
    if status in REDIRECT_STATUSES:
        return _REDIRECT
    if status in _THROTTLED_STATUSES:
        retry = RetryClass.THROTTLED
    elif status in _TRANSIENT_STATUSES or 500 <= status < 600:
        retry = RetryClass.TRANSIENT
    else:
        retry = RetryClass.PERMANENT
    return Verdict(Meaning.FAILED, f"http_{status}", retry)


MAX_RETRY_AFTER_S = 3600.0
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?")


def parse_retry_after(value: str, now_utc: float) -> float | None:
    """Seconds to wait, from either form of Retry-After, within [0, 3600]; None if it is neither.

    `now_utc` is the Unix time that a date is compared with.
    """
    value = value.strip()
    if _SECONDS.fullmatch(value):
        seconds = float(value)
    else:
        try:
            from email.utils import parsedate_to_datetime  # 10 ms of a start

            date = parsedate_to_datetime(value)
            # "-0000" and a missing zone give a naive date; HTTP dates are always UTC.
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_utc
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    if math.isnan(seconds):
        return None
    return min(MAX_RETRY_AFTER_S, max(0.0, seconds))


# ---------------------------------------------------------------- redirects


class Follow(msgspec.Struct, frozen=True):
    """The same origin: the worker that holds the host goes on."""

    url: str


class HandOver(msgspec.Struct, frozen=True):
    """Another origin, so another pace: it becomes a request of its own."""

    url: str


class RedirectChain:
    """The hops of one request. One instance per request; `next_hop` after each redirect."""

    def __init__(self, start_url: str, max_redirects: int, rules: CanonicalRules) -> None:
        self._rules = rules
        self._max_redirects = max_redirects
        self._seen = {start_url}

    @property
    def hops(self) -> int:
        return len(self._seen) - 1

    def next_hop(self, current_url: str, location: str | None) -> Follow | HandOver:
        """Where the answer of `current_url` points to; FetchError if that leads nowhere."""
        if location is None or not location.strip():
            raise fetch_error("bad_redirect", f"redirect without a Location from {current_url}")
        try:
            url = join(current_url, location, self._rules)
        except BadUrl as error:
            raise fetch_error("bad_redirect", f"redirect to {location[:200]!r}: {error}") from error
        if origin_of(url) != origin_of(current_url):
            return HandOver(url)
        if url in self._seen:
            raise fetch_error("redirect_loop", f"redirect back to {url}")
        if self.hops >= self._max_redirects:
            raise fetch_error(
                "too_many_redirects", f"more than {self._max_redirects} redirects, next: {url}"
            )
        self._seen.add(url)
        return Follow(url)


# ---------------------------------------------------------------- bodies

MAX_ENCODINGS = 2  # stacked Content-Encodings; more than that is an attack, not a page
MAX_GZIP_MEMBERS = 1000  # each member costs a copy of the rest of its chunk
_PIECE = 65_536  # what an inner decoder hands to the next one at most
# Encodings we did not ask for and cannot read. Unknown words ("utf-8", "none") are common in the
# wild in front of a plain body and are ignored, as browsers do.
_UNREADABLE = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})


class _Decoder(Protocol):
    """One Content-Encoding, undone piece by piece with bounded output."""

    def feed(self, data: bytes, limit: int) -> bytes:
        """Take `data` and give at most `limit` bytes (a codec may exceed it by a buffer)."""
        ...

    @property
    def pending(self) -> bool:
        """Whether `feed(b"", …)` would give more output."""
        ...

    @property
    def complete(self) -> bool: ...


class _Zlib:
    """gzip (all members) and deflate (with or without the zlib header)."""

    def __init__(self, gzip: bool) -> None:
        self._gzip = gzip
        self._head = b""  # of deflate, until two bytes tell its kind
        self._object = zlib.decompressobj(31) if gzip else None
        self._left = b""
        self._full = False  # the output filled its limit: zlib may hold more without any input
        self._members = 1
        self._garbage = False  # bytes behind the last gzip member, ignored like everybody does

    def feed(self, data: bytes, limit: int) -> bytes:
        if self._object is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            first, second = self._head[:2]
            zlib_header = first & 0x0F == 8 and (first << 8 | second) % 31 == 0
            self._object = zlib.decompressobj(15 if zlib_header else -15)
            data, self._head = self._head, b""
        if self._left:
            data = self._left + data
            self._left = b""
        if self._garbage or not (data or self._full):
            return b""
        if self._object.eof:
            if not self._gzip or not data.startswith(b"\x1f"):
                self._garbage = True
                return b""
            self._members += 1
            if self._members > MAX_GZIP_MEMBERS:
                raise fetch_error("bad_encoding", f"more than {MAX_GZIP_MEMBERS} gzip members")
            self._object = zlib.decompressobj(31)
        out = self._object.decompress(data, limit)
        self._left = self._object.unused_data if self._object.eof else self._object.unconsumed_tail
        self._full = len(out) >= limit and not self._object.eof
        return out

    @property
    def pending(self) -> bool:
        return self._full or bool(self._left)

    @property
    def complete(self) -> bool:
        return self._object is not None and self._object.eof


class _Brotli:
    def __init__(self) -> None:
        self._object: Any = _brotli.Decompressor()

    def feed(self, data: bytes, limit: int) -> bytes:
        return bytes(self._object.process(data, output_buffer_limit=limit))

    @property
    def pending(self) -> bool:
        return not self._object.can_accept_more_data() and not self._object.is_finished()

    @property
    def complete(self) -> bool:
        return bool(self._object.is_finished())


def _bounded_brotli() -> Any:
    """The brotli module, if it is there and new enough (1.2) to bound its output."""
    try:
        module: Any = importlib.import_module("brotli")
    except ImportError:
        return None
    return module if hasattr(module.Decompressor, "can_accept_more_data") else None


_brotli = _bounded_brotli()
_CODEC_ERRORS: tuple[type[Exception], ...] = (
    (zlib.error,) if _brotli is None else (zlib.error, _brotli.error)
)
ACCEPT_ENCODING = "gzip, deflate" if _brotli is None else "gzip, deflate, br"


def _decoders(content_encoding: str) -> list[_Decoder]:
    """The decoders of a Content-Encoding, in the order in which they are undone."""
    decoders: list[_Decoder] = []
    for word in reversed(content_encoding.lower().split(",")):
        name = word.strip()
        if name in ("gzip", "x-gzip"):
            decoders.append(_Zlib(gzip=True))
        elif name == "deflate":
            decoders.append(_Zlib(gzip=False))
        elif name == "br" and _brotli is not None:
            decoders.append(_Brotli())
        elif name in _UNREADABLE:
            raise fetch_error("bad_encoding", f"cannot read Content-Encoding {name}")
        if len(decoders) > MAX_ENCODINGS:
            raise fetch_error("bad_encoding", f"too many encodings: {content_encoding[:100]!r}")
    return decoders


class BodyReader:
    """Undoes the Content-Encoding of one body and holds it to its limit, raw and decoded.

    An engine feeds what it receives. No more than one piece beyond the limit is ever in memory,
    whatever the body expands to.
    """

    def __init__(self, content_encoding: str, max_bytes: int, keeps: bool = False) -> None:
        """`keeps`: what was fed is there in the end, if it had to be decoded."""
        self._decoders = _decoders(content_encoding) if content_encoding else []
        self._fed: list[bytes] | None = [] if keeps else None
        self._max_bytes = max_bytes
        self.raw_bytes = 0
        self.decoded_bytes = 0

    @property
    def decodes(self) -> bool:
        """Whether the body differs from what was sent, so that its headers no longer fit."""
        return bool(self._decoders)

    def feed(self, data: bytes) -> list[bytes]:
        """The decoded pieces that `data` gives; FetchError too_large or bad_encoding."""
        self.raw_bytes += len(data)
        if self.raw_bytes > self._max_bytes:
            raise self.too_large("sent")
        if not self._decoders:
            self.decoded_bytes = self.raw_bytes
            return [data]
        if self._fed is not None:
            self._fed.append(data)
        out: list[bytes] = []
        try:
            self._undo(0, data, out)
        except _CODEC_ERRORS as error:
            raise fetch_error("bad_encoding", f"the body does not decompress: {error}") from error
        return out

    @property
    def as_it_came(self) -> bytes | None:
        """The body before decoding; None: it was not decoded, or nobody asked to keep it."""
        return b"".join(self._fed) if self._fed and self._decoders else None

    def finish(self) -> None:
        """The body has ended; FetchError truncated if its encoding says that more should come."""
        if self.raw_bytes and not all(decoder.complete for decoder in self._decoders):
            raise fetch_error("truncated", "the compressed body ends too early")

    def _undo(self, index: int, data: bytes, out: list[bytes]) -> None:
        decoder = self._decoders[index]
        last = index == len(self._decoders) - 1
        while True:
            limit = min(_PIECE, self._max_bytes - self.decoded_bytes + 1) if last else _PIECE
            piece = decoder.feed(data, limit)
            if piece and last:
                self.decoded_bytes += len(piece)
                if self.decoded_bytes > self._max_bytes:
                    raise self.too_large("decoded")
                out.append(piece)
            elif piece:
                self._undo(index + 1, piece, out)
            if not decoder.pending:
                return
            data = b""

    def too_large(self, what: str) -> FetchError:
        return fetch_error("too_large", f"more than {self._max_bytes} bytes {what}")
