"""Frames to messages and back: MessagePack on the wire, typed and validated inside.

Called by the ZeroMQ adapter for every message. `decode` raises only DecodeError; a bad body under
a good header comes back as `BadBody`, because a numbered result must be consumed even then.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import msgspec

from zcrawl.errors import DecodeError
from zcrawl.mesh.messages import (
    BODY_TYPES,
    PROTOCOL_VERSION,
    BadBody,
    Body,
    Header,
    Kind,
    Message,
)

MAX_FRAME_BYTES = 16_000_000


def encode(header: Header, body: Body) -> list[bytes]:
    return [
        msgpack.packb(msgspec.to_builtins(header, builtin_types=(bytes,))),
        msgpack.packb(msgspec.to_builtins(body, builtin_types=(bytes,))),
    ]


def decode(frames: Sequence[bytes]) -> Message | BadBody:
    if len(frames) != 2:
        raise DecodeError(f"a message has two frames, not {len(frames)}")
    header = _decode_header(frames[0])
    try:
        body_type = BODY_TYPES[Kind(header.kind)]
    except ValueError:
        raise DecodeError(f"unknown message type {header.kind}", code="unknown_type") from None
    try:
        body = msgspec.convert(_unpack(frames[1]), body_type, builtin_types=(bytes,))
    except (msgspec.ValidationError, DecodeError, RecursionError) as error:
        return BadBody(header, str(error)[:200])
    return Message(header, body)


def _decode_header(frame: bytes) -> Header:
    raw = _unpack(frame)
    if isinstance(raw, list) and raw and isinstance(raw[0], int) and raw[0] != PROTOCOL_VERSION:
        raise DecodeError(
            f"protocol version {raw[0]} met version {PROTOCOL_VERSION}", code="version"
        )
    try:
        return msgspec.convert(raw, Header)
    except msgspec.ValidationError as error:
        raise DecodeError(f"bad header: {error}") from None


def _unpack(frame: bytes) -> object:
    if len(frame) > MAX_FRAME_BYTES:
        raise DecodeError(f"a frame of {len(frame)} bytes is too large")
    try:
        value: object = msgpack.unpackb(frame, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise DecodeError(f"not MessagePack: {error}") from None
    return value
