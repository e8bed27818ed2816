"""Captured exchanges as WARC records: request, response and metadata, gzip for each record.

Called by output files and by `export`; needs the extra `warc` (warcio). Pure: bodies come from a
function. Ids of records derive from what they record, so writing a page again writes the same.
What the wire said about encoding is kept under another name: a body is stored decoded.
"""

from __future__ import annotations

import datetime
import hashlib
import io
from collections.abc import Callable
from typing import Any, Final

import msgspec

from zcrawl import __version__
from zcrawl.errors import StoreDataError, UsageError
from zcrawl.mesh.capture import Capture

# Not true of a decoded body.
_TRANSFER: Final = frozenset(("content-encoding", "transfer-encoding", "content-length"))

GetBody = Callable[[str], bytes]


_decode = msgspec.json.Decoder(Capture).decode


def render_warc(captures: list[bytes], body_of: GetBody) -> bytes:
    """The records of these captures, each a gzip member of its own."""
    return b"".join(_records(_read(one), body_of) for one in captures)


def warc_head(name: str) -> bytes:
    """The record that begins a file."""
    out = io.BytesIO()
    writer = _writer(out)
    info = {
        "software": f"zcrawl/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
    }
    writer.write_record(writer.create_warcinfo_record(name, info))
    return out.getvalue()


def _read(data: bytes) -> Capture:
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise StoreDataError(f"a capture cannot be read: {error}", code="bad_item") from error


def _records(capture: Capture, body_of: GetBody) -> bytes:
    from warcio.statusandheaders import StatusAndHeaders

    body = body_of(capture.body)
    out = io.BytesIO()
    writer = _writer(out)
    url = capture.final_url
    target = "/" + url.partition("://")[2].partition("/")[2]
    host = url.partition("://")[2].partition("/")[0]
    response = writer.create_warc_record(
        url,
        "response",
        payload=io.BytesIO(body),
        length=len(body),
        http_headers=StatusAndHeaders(
            f"{capture.status} {_PHRASES.get(capture.status, 'Status')}",
            _response_headers(capture, len(body)),
            protocol="HTTP/1.1",
        ),
        warc_headers_dict=_named(capture, "response"),
    )
    request = writer.create_warc_record(
        url,
        "request",
        http_headers=StatusAndHeaders(
            f"GET {target} HTTP/1.1",
            [("Host", host), *((_line(k), _line(v)) for k, v in capture.request)],
            is_http_request=True,
        ),
        warc_headers_dict=_named(capture, "request"),
    )
    writer.write_request_response_pair(request, response)
    about = _fields(capture)
    metadata = writer.create_warc_record(
        url,
        "metadata",
        payload=io.BytesIO(about),
        length=len(about),
        warc_content_type="application/warc-fields",
        warc_headers_dict={
            **_named(capture, "metadata"),
            "WARC-Concurrent-To": _named(capture, "response")["WARC-Record-ID"],
        },
    )
    writer.write_record(metadata)
    return out.getvalue()


def _response_headers(capture: Capture, length: int) -> list[tuple[str, str]]:
    headers = [
        (f"X-Crawler-{name}" if name.lower() in _TRANSFER else name, value)
        for name, value in ((_line(k), _line(v)) for k, v in capture.headers)
        if name
    ]
    return [*headers, ("Content-Length", str(length))]


def _fields(capture: Capture) -> bytes:
    lines = {
        "fetchTimeMs": f"{capture.elapsed_ms:.0f}",
        "hopsFromSeed": str(capture.depth),
        "via": capture.parent or "",
        "requestedUrl": capture.url,
    }
    return "".join(f"{name}: {_line(value)}\r\n" for name, value in lines.items() if value).encode()


def _named(capture: Capture, kind: str) -> dict[str, str]:
    moment = datetime.datetime.fromtimestamp(capture.at, datetime.UTC)
    date = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    digits = hashlib.sha256(f"{kind} {capture.url} {capture.at!r}".encode()).hexdigest()
    # A UUID of version 8: made by a rule of our own, here from what is recorded.
    name = f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"
    return {"WARC-Date": date, "WARC-Record-ID": f"<urn:uuid:{name}>"}


def _line(text: str) -> str:
    """A header may not bring headers of its own."""
    return text.replace("\r", " ").replace("\n", " ").strip()


def _writer(out: io.BytesIO) -> Any:
    try:
        from warcio.warcwriter import WARCWriter
    except ImportError:
        raise UsageError(
            "WARC needs warcio: pip install 'zcrawl[warc]'", code="missing_extra"
        ) from None
    return WARCWriter(out, gzip=True, warc_version="1.1")


_PHRASES: Final = {
    200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information",
    204: "No Content", 205: "Reset Content", 206: "Partial Content",
}  # fmt: skip
