"""Frames to messages and back: MessagePack on the wire, typed and validated inside.

Called by the ZeroMQ adapter for every message. `decode` raises only DecodeError; a bad body under
a good header comes back as `BadBody`, because a numbered result must be consumed even then.

Headers and bodies are written and read by msgspec, which validates while it reads. The same bytes
take less time than by msgpack and a conversion (a result with 20 links: written in 1.0 us instead
of 4.5, read in 3.0 instead of 4.1; a header read in 0.3 instead of 0.7). Headers of other
versions and version notices have no type, so msgpack reads them. It reads requests too, because
their arguments have no type either, and msgspec would accept lists as keys of a map there: Python's
hashes of numbers are no secret, so 20,000 keys with one hash took 5 s, and a frame has room for
300,000.

Every version must be able to read two things of any other: a header is an array that begins with
the version and has the source as its fifth field; and the version notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgpack
import msgspec

from zcrawl.errors import DecodeError, MeshError, VersionMismatch
from zcrawl.mesh.messages import (
    BODY_TYPES,
    PROTOCOL_VERSION,
    BadBody,
    Body,
    ClientRequest,
    Header,
    Message,
    MessageKind,
)
from zcrawl.model.reasons.cluster import MESSAGE_TOO_LARGE, UNKNOWN_TYPE

MAX_FRAME_BYTES = 16_000_000
# Of what a request nests: at 980 lists in lists a leader's encoder raised RecursionError, and any
# viewer could depose it. A job file nests ten deep.
MAX_DEPTH = 64
_TOO_DEEP = f"values that nest more than {MAX_DEPTH} deep"
# Of the arguments of a request. The leader decodes requests in its event loop: 16 MB of empty lists
# took it 5 s. A job has at most 10,000 entries (`submit.validate`).
MAX_VALUES = 100_000
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})  # and lists and maps of them
# A topic that all versions subscribe to; no header begins like this.
VERSION_TOPIC = b"zcrawl-protocol"
REQUEST_ID_WITHIN = 300  # bytes of a body; ids of clients have 32
_BODIES: dict[int, type[Body]] = {int(kind): body for kind, body in BODY_TYPES.items()}
_ENCODER = msgspec.msgpack.Encoder()
_HEADER_DECODER = msgspec.msgpack.Decoder(Header)
_DECODERS: dict[int, msgspec.msgpack.Decoder[Body]] = {}  # filled when a kind first arrives
_Values = TypeVar("_Values", list[Any], dict[str, Any])
_SOURCE = Header.__struct_fields__.index("source")


def encode(header: Header, body: Body) -> list[bytes]:
    return [_ENCODER.encode(header), _ENCODER.encode(body)]


def encode_report(header: Header, body: Body) -> list[bytes]:
    """Encode a message of a worker. Raise MeshError if it is too large for every master.

    The master's socket closes the connection at a longer frame, and a repeat would close it again.
    """
    frames = encode(header, body)
    if len(frames[1]) > MAX_FRAME_BYTES:
        text = f"a message of {len(frames[1])} bytes; at most {MAX_FRAME_BYTES}"
        raise MeshError(text, code=MESSAGE_TOO_LARGE)
    return frames


def decode(frames: Sequence[bytes]) -> Message | BadBody:
    if len(frames) != 2:
        raise DecodeError(f"a message has two frames, not {len(frames)}")
    return decode_body(decode_header(frames[0]), frames[1])


def decode_body(header: Header, frame: bytes) -> Message | BadBody:
    """Decode the body of a message whose header was accepted."""
    try:
        if header.kind == MessageKind.REQUEST:
            return Message(header, _decode_request(frame))
        # All other bodies have fields of types that do not nest, or come from masters.
        decoder = _DECODERS.get(header.kind)
        if decoder is None:
            decoder = _DECODERS[header.kind] = msgspec.msgpack.Decoder(_BODIES[header.kind])
        _check_length(frame)
        return Message(header, decoder.decode(frame))
    except (msgspec.MsgspecError, DecodeError, ValueError) as error:
        return BadBody(header, str(error)[:200])
    except RecursionError:
        return BadBody(header, _TOO_DEEP)


def _decode_request(frame: bytes) -> ClientRequest:
    """Decode a request. DecodeError for arguments that are too many or not plain: nested too deep,
    of a type that JSON does not have, or with keys that are not text."""
    values = _ValueCount()
    raw = _unpack(frame, strict_map_key=True, **values.limits())
    request = msgspec.convert(raw, ClientRequest)
    _check_plain(request.args)
    return request


class _ValueCount:
    """Count the values of a frame while it is decoded, and stop at MAX_VALUES."""

    def __init__(self) -> None:
        self._values = 0

    def limits(self) -> dict[str, Any]:
        return {
            "list_hook": self._count,
            "object_hook": self._count,
            "max_array_len": MAX_VALUES,
            "max_map_len": MAX_VALUES,
        }

    def _count(self, values: _Values) -> _Values:
        self._values += 1 + len(values)
        if self._values > MAX_VALUES:
            raise DecodeError(f"more than {MAX_VALUES} values in the arguments of a request")
        return values


def version_notice(source: str) -> list[bytes]:
    """Return the frames that name our version, for a peer that may use another one."""
    return [VERSION_TOPIC, msgpack.packb([PROTOCOL_VERSION, source])]


def check_notice(frames: Sequence[bytes]) -> str | None:
    """Return the sender of a version notice, None if it is not one. Raise if it is not our
    version."""
    if len(frames) != 2 or frames[0] != VERSION_TOPIC:
        return None
    match _unpack(frames[1]):
        case [int(version), str(source), *_]:
            if version != PROTOCOL_VERSION:
                raise VersionMismatch(source, version, PROTOCOL_VERSION)
            return source
        case _:
            return None


def decode_header(frame: bytes) -> Header:
    """Decode a header and check that its kind exists."""
    _check_length(frame)
    try:
        header = _HEADER_DECODER.decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decode_odd_header(frame)
    if header.version != PROTOCOL_VERSION or header.kind not in _BODIES:
        return _decode_odd_header(frame)
    return header


def _decode_odd_header(frame: bytes) -> Header:
    """Raise an error that says what is wrong with a header, maybe one of another version."""
    raw = _unpack(frame)
    if isinstance(raw, list) and raw and isinstance(raw[0], int) and raw[0] != PROTOCOL_VERSION:
        source = raw[_SOURCE] if len(raw) > _SOURCE else None
        name = source if isinstance(source, str) else "somebody"
        raise VersionMismatch(name, raw[0], PROTOCOL_VERSION)
    try:
        header = msgspec.convert(raw, Header)
    except msgspec.ValidationError as error:
        raise DecodeError(f"bad header: {error}") from None
    if header.kind not in _BODIES:
        raise DecodeError(f"unknown message type {header.kind}", code=UNKNOWN_TYPE)
    return header


def peek_request_id(beginning: bytes) -> str:
    """Return the id of a REQUEST without decoding its whole body; empty if there is none.

    A refusal needs the id, so that the client can match the answer.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=REQUEST_ID_WITHIN)
    try:
        unpacker.feed(beginning[:REQUEST_ID_WITHIN])
        unpacker.read_array_header()
        id: object = unpacker.unpack()
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        return ""
    return id if isinstance(id, str) else ""


def _check_plain(value: object) -> None:
    """Raise DecodeError for arguments that could not be encoded or shown. Level by level: recursion
    is what fails."""
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[object] = []
        for element in level:
            if isinstance(element, dict):
                deeper += element.values()
            elif isinstance(element, list):
                deeper += element
            elif type(element) not in _PLAIN:
                raise DecodeError(f"an argument of the type {type(element).__name__}")
        if not deeper:
            return
        level = deeper
    raise DecodeError(_TOO_DEEP)


def _check_length(frame: bytes) -> None:
    if len(frame) > MAX_FRAME_BYTES:
        raise DecodeError(f"a frame of {len(frame)} bytes is too large")


def _unpack(frame: bytes, *, strict_map_key: bool = False, **limits: Any) -> object:
    """Decode any frame; `strict_map_key`: refuse maps with other keys before they are built."""
    _check_length(frame)
    try:
        value: object = msgpack.unpackb(frame, strict_map_key=strict_map_key, **limits)
    except msgpack.StackError:
        raise DecodeError(_TOO_DEEP) from None
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise DecodeError(f"not MessagePack: {error}") from None
    return value
