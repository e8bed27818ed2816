"""Undoes the Content-Encoding of a body, piece by piece, and holds the body to its limit.

Called by every engine with what it receives, so that all of them read the same encodings, have the
same limits and fail with the same names. Pure.

A decoder gives bounded output. What it could not give yet it gives when it is fed nothing, so a
bomb costs no more memory than a page of the size that is allowed. brotli and zstd are loaded by the
first body that needs them (1 and 6 ms).
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, Final, Protocol

from zcrawl.errors import FetchError
from zcrawl.fetch.policy import fetch_error
from zcrawl.model.reasons.failure import BAD_ENCODING, TOO_LARGE, TRUNCATED

ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
# Archives keep bodies as they came, and what reads archives (warcio) does not know zstd.
ARCHIVABLE_ENCODING: Final = "gzip, deflate, br"

MAX_ENCODINGS: Final = 5  # stacked Content-Encodings, as curl and urllib3 allow; more is an attack
MAX_MEMBERS: Final = 1000  # of gzip or zstd; each costs a copy of the rest of its chunk
_PIECE: Final = 65_536  # what an inner decoder hands to the next one at most
_WINDOW_LOG: Final = 23  # of zstd: 8 MB, the most that a Content-Encoding may need (RFC 9659)
# Encodings that we did not ask for and cannot read. Unknown words ("utf-8", "none") are common in
# the wild in front of a plain body and are ignored, as browsers do.
_UNREADABLE: Final = frozenset({"compress", "x-compress", "dcb", "dcz"})


class _Undecodable(Exception):
    """What a decoder was fed is not in its encoding."""


class _Decoder(Protocol):
    """One Content-Encoding, undone piece by piece with bounded output."""

    def feed(self, data: bytes, limit: int) -> bytes:
        """Take `data` and give at most `limit` bytes (a codec may exceed it by a buffer)."""
        ...

    @property
    def pending(self) -> bool:
        """Whether `feed(b"", …)` may give more output."""
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
            _check_members(self._members, "gzip")
            self._object = zlib.decompressobj(31)
        try:
            out = self._object.decompress(data, limit)
        except zlib.error as error:
            raise _Undecodable(str(error)) from error
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
    """Bytes behind the end of the stream are an error of the library's, which keeps the rest."""

    def __init__(self) -> None:
        import brotli

        self._error: type[Exception] = brotli.error
        self._object: Any = brotli.Decompressor()
        self._gave = False

    def feed(self, data: bytes, limit: int) -> bytes:
        try:
            out = bytes(self._object.process(data, output_buffer_limit=limit))
        except self._error as error:
            raise _Undecodable(str(error)) from error
        self._gave = bool(out)
        return out

    @property
    def pending(self) -> bool:
        # `can_accept_more_data` tells only of input: output can be left although it is true, and
        # also after a call that gave less than its limit. A call that gives nothing is the end.
        return self._gave and not self._object.is_finished()

    @property
    def complete(self) -> bool:
        return bool(self._object.is_finished())


class _Zstd:
    """All frames, also skippable ones, which give nothing."""

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        self._error: type[Exception] = zstd.ZstdError
        self._options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._decompressor = zstd.ZstdDecompressor
        self._object = zstd.ZstdDecompressor(options=self._options)
        self._left = b""
        self._frames = 1
        self._garbage = False  # bytes behind the last frame, ignored as with gzip

    def feed(self, data: bytes, limit: int) -> bytes:
        if self._left:
            data = self._left + data
            self._left = b""
        if self._object.eof:
            if self._garbage or not data:
                return b""
            if data[0] != 0x28 and data[0] & 0xF0 != 0x50:  # how the two kinds of frames begin
                self._garbage = True
                return b""
            self._frames += 1
            _check_members(self._frames, "zstd")
            self._object = self._decompressor(options=self._options)
        try:
            out = self._object.decompress(data, limit)
        except self._error as error:
            raise _Undecodable(str(error)) from error
        if self._object.eof:
            self._left = self._object.unused_data
        return out

    @property
    def pending(self) -> bool:
        return bool(self._left) or not (self._object.eof or self._object.needs_input)

    @property
    def complete(self) -> bool:
        return self._object.eof


def _check_members(count: int, encoding: str) -> None:
    if count > MAX_MEMBERS:
        raise fetch_error(BAD_ENCODING, f"more than {MAX_MEMBERS} {encoding} members")


def _decoders(content_encoding: str) -> list[_Decoder]:
    """The decoders of a Content-Encoding, in the order in which they are undone."""
    decoders: list[_Decoder] = []
    for word in reversed(content_encoding.lower().split(",")):
        name = word.strip()
        if name in ("gzip", "x-gzip"):
            decoders.append(_Zlib(gzip=True))
        elif name == "deflate":
            decoders.append(_Zlib(gzip=False))
        elif name == "br":
            decoders.append(_Brotli())
        elif name == "zstd":
            decoders.append(_Zstd())
        elif name in _UNREADABLE:
            raise fetch_error(BAD_ENCODING, f"cannot read Content-Encoding {name}")
        if len(decoders) > MAX_ENCODINGS:
            raise fetch_error(BAD_ENCODING, f"too many encodings: {content_encoding[:100]!r}")
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
        self._between_bytes = 0  # from each decoder to the next
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
        except _Undecodable as error:
            raise fetch_error(BAD_ENCODING, f"the body does not decompress: {error}") from error
        return out

    @property
    def as_it_came(self) -> bytes | None:
        """The body before decoding; None: it was not decoded, or nobody asked to keep it."""
        return b"".join(self._fed) if self._fed and self._decoders else None

    def finish(self) -> None:
        """The body has ended; FetchError truncated if its encoding says that more should come."""
        if self.raw_bytes and not all(decoder.complete for decoder in self._decoders):
            raise fetch_error(TRUNCATED, "the compressed body ends too early")

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
                # Else an inner stream that gives nothing (a file name without end in a gzip
                # header) could be as long as the outer one makes it.
                self._between_bytes += len(piece)
                if self._between_bytes > self._max_bytes:
                    raise self.too_large("between two encodings")
                self._undo(index + 1, piece, out)
            if not decoder.pending:
                return
            data = b""

    def too_large(self, what: str) -> FetchError:
        return fetch_error(TOO_LARGE, f"more than {self._max_bytes} bytes {what}")
