"""Decode the Content-Encoding of a body, piece by piece, and enforce the limit of its size.

Called by every engine with the received bytes, so that all engines have the same encodings, limits
and names of failures. Pure.

Each call of a decoder returns bounded output; more output follows when it is called with no data.
So a decompression bomb needs no more memory than a page of the allowed size. brotli and zstd are
loaded by the first body that needs them (1 and 6 ms).
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, Final, Protocol

from zcrawl.errors import FetchError
from zcrawl.fetch.policy import fetch_error
from zcrawl.model.reasons.failure import BAD_ENCODING, TOO_LARGE, TRUNCATED

ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
# Archives store bodies as received, and programs that read archives (warcio) do not know zstd.
ARCHIVABLE_ENCODING: Final = "gzip, deflate, br"

MAX_ENCODINGS: Final = 5  # stacked Content-Encodings, as curl and urllib3 allow; more is an attack
MAX_MEMBERS: Final = 1000  # of gzip or zstd; each costs a copy of the rest of its chunk
_PIECE: Final = 65_536  # most bytes that a decoder passes to the next one
_WINDOW_LOG: Final = 23  # of zstd: 8 MB, the most that a Content-Encoding may need (RFC 9659)
# Encodings that we do not offer and cannot read. Unknown words ("utf-8", "none") with a plain body
# are common on the web, and are ignored as browsers do.
_UNREADABLE: Final = frozenset({"compress", "x-compress", "dcb", "dcz"})


class _Undecodable(Exception):
    """The data is not in the encoding of the decoder."""


class _Decoder(Protocol):
    """A decoder of one Content-Encoding, with bounded output."""

    def feed(self, data: bytes, limit: int) -> bytes:
        """Decode `data`; return at most `limit` bytes (a codec may exceed it by a buffer)."""
        ...

    @property
    def pending(self) -> bool:
        """Whether `feed(b"", …)` may return more output."""
        ...

    @property
    def complete(self) -> bool: ...


class _Zlib:
    """gzip (all members) and deflate (with or without the zlib header)."""

    def __init__(self, gzip: bool) -> None:
        self._gzip = gzip
        self._head = b""  # of deflate, until there are two bytes that show its kind
        self._object = zlib.decompressobj(31) if gzip else None
        self._left = b""
        self._full = False  # the output filled its limit: zlib may hold more without any input
        self._members = 1
        self._garbage = False  # bytes after the last gzip member, ignored as browsers do

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
    """brotli. Bytes after the end of the stream are an error of the library."""

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
        # `can_accept_more_data` is about input only: output can be left although it is true, and
        # also after a call that returned less than its limit. A call without output is the end.
        return self._gave and not self._object.is_finished()

    @property
    def complete(self) -> bool:
        return bool(self._object.is_finished())


class _Zstd:
    """zstd with all frames, also skippable ones, which have no output."""

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
        self._garbage = False  # bytes after the last frame, ignored as with gzip

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
    """Return the decoders of a Content-Encoding, in the order in which they are applied."""
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
    """Decodes one body, and limits its size, raw and decoded.

    An engine feeds the received bytes. At most one piece beyond the limit is in memory, however
    large the decoded body would be.
    """

    def __init__(self, content_encoding: str, max_bytes: int, keeps: bool = False) -> None:
        """`keeps`: keep the received bytes of an encoded body for `raw_body`."""
        self._decoders = _decoders(content_encoding) if content_encoding else []
        self._fed: list[bytes] | None = [] if keeps else None
        self._max_bytes = max_bytes
        self._between_bytes = 0  # from each decoder to the next
        self.raw_bytes = 0
        self.decoded_bytes = 0

    @property
    def decodes(self) -> bool:
        """Whether the body is encoded, so that some headers do not fit the decoded one."""
        return bool(self._decoders)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the decoded pieces of `data`; FetchError too_large or bad_encoding."""
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
            self._decode(0, data, out)
        except _Undecodable as error:
            raise fetch_error(BAD_ENCODING, f"the body does not decompress: {error}") from error
        return out

    @property
    def raw_body(self) -> bytes | None:
        """The body before decoding; None if it was not encoded or not kept."""
        return b"".join(self._fed) if self._fed and self._decoders else None

    def finish(self) -> None:
        """Check that the body is complete; FetchError truncated if its encoding has not ended."""
        if self.raw_bytes and not all(decoder.complete for decoder in self._decoders):
            raise fetch_error(TRUNCATED, "the compressed body ends too early")

    def _decode(self, index: int, data: bytes, out: list[bytes]) -> None:
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
                # Otherwise an inner stream without output (an endless file name in a gzip header)
                # could be as long as the outer stream makes it.
                self._between_bytes += len(piece)
                if self._between_bytes > self._max_bytes:
                    raise self.too_large("between two encodings")
                self._decode(index + 1, piece, out)
            if not decoder.pending:
                return
            data = b""

    def too_large(self, what: str) -> FetchError:
        return fetch_error(TOO_LARGE, f"more than {self._max_bytes} bytes {what}")
