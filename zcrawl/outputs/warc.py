"""Render captured exchanges as WARC records: request, response and metadata, each with gzip.

Called by output files and by `export`; needs the extra `warc` (warcio). Pure: bodies come from a
function. Ids of records follow from their content, so writing a page again gives the same bytes.

A body is written as received, in its Content-Encoding but without transfer chunks. So
Transfer-Encoding is renamed and Content-Length is the length of the record. If an engine returns
only the decoded body, Content-Encoding is renamed too, and the metadata record says so. If a body
is lost, the record has only its headers, `WARC-Truncated` and the reason, because retries would
block the archive for ever.
"""

from __future__ import annotations

import datetime
import hashlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from zcrawl import __version__
from zcrawl.errors import StoreCorrupt, StoreDataError, StoreError, UsageError
from zcrawl.model.capture import Capture, Exchange
from zcrawl.model.reasons.storage import BAD_BLOB_NAME, BAD_ITEM, NO_BLOB
from zcrawl.model.reasons.usage import MISSING_EXTRA

if TYPE_CHECKING:
    from zcrawl.outputs.records import GetBody

# Headers that do not fit a body without chunks; the last one only for a decoded body.
_TRANSFER: Final = frozenset(("transfer-encoding", "content-length"))
_DECODED: Final = _TRANSFER | {"content-encoding"}
_FORMS: Final = {
    "": "as received",
    "decoded": "decoded: the engine does not give the encoded bytes",
    "rendered": "rendered: the document after its scripts, as a browser had it",
}

LOST: Final = frozenset((NO_BLOB, BAD_BLOB_NAME, StoreCorrupt.code))

_decode = msgspec.json.Decoder(Capture).decode


def render_warc(captures: list[bytes], body_of: GetBody) -> bytes:
    """Return the records of these captures, each in its own gzip member."""
    return b"".join(
        _records(exchange, about, body_of)
        for capture in captures
        for exchange, about in _exchanges(_read(capture))
    )


def warc_head(name: str) -> bytes:
    """Return the first record of a file."""
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
        raise StoreDataError(f"a capture cannot be read: {error}", code=BAD_ITEM) from error


def _exchanges(capture: Capture) -> Iterator[tuple[Exchange, dict[str, str]]]:
    """Yield the exchanges in their order, each with the fields of its metadata record."""
    via = capture.parent or ""
    about = {"hopsFromSeed": str(capture.depth), "requestedUrl": capture.url}
    for hop in capture.hops:
        yield hop, {"via": via, **about}
        via = hop.url
    last = Exchange(
        url=capture.final_url,
        status=capture.status,
        headers=capture.headers,
        request=capture.request,
        at=capture.at,
        body=capture.body,
        method=capture.method,
        sent=capture.sent,
        form=capture.form,
    )
    took = f"{capture.elapsed_ms:.0f}" if capture.elapsed_ms else ""
    yield last, {"fetchTimeMs": took, "via": via, **about}


def _records(exchange: Exchange, about: dict[str, str], body_of: GetBody) -> bytes:
    from warcio.statusandheaders import StatusAndHeaders

    body, body_lost = _payload(exchange.body, body_of)
    sent, sent_lost = _payload(exchange.sent, body_of)
    out = io.BytesIO()
    writer = _writer(out)
    url = exchange.url
    host, _, path = url.partition("://")[2].partition("/")
    response = writer.create_warc_record(
        url,
        "response",
        payload=io.BytesIO(body),
        length=len(body),
        http_headers=StatusAndHeaders(
            f"{exchange.status} {_PHRASES.get(exchange.status, 'Status')}",
            _response_headers(exchange, len(body)),
            protocol="HTTP/1.1",
        ),
        warc_headers_dict=_record_headers(exchange, "response") | _truncated(body_lost),
    )
    headers = [(_line(k), _line(v)) for k, v in exchange.request]
    if not any(name.lower() == "host" for name, _ in headers):
        headers.insert(0, ("Host", host))
    request = writer.create_warc_record(
        url,
        "request",
        payload=io.BytesIO(sent),
        length=len(sent),
        http_headers=StatusAndHeaders(
            f"{_line(exchange.method)} /{path} HTTP/1.1", headers, is_http_request=True
        ),
        warc_headers_dict=_record_headers(exchange, "request") | _truncated(sent_lost),
    )
    writer.write_request_response_pair(request, response)
    form = f"lost: {body_lost}" if body_lost else _FORMS[exchange.form]
    fields = _fields({**about, "body": form, "requestBody": sent_lost and f"lost: {sent_lost}"})
    metadata = writer.create_warc_record(
        url,
        "metadata",
        payload=io.BytesIO(fields),
        length=len(fields),
        warc_content_type="application/warc-fields",
        warc_headers_dict={
            **_record_headers(exchange, "metadata"),
            "WARC-Concurrent-To": _record_headers(exchange, "response")["WARC-Record-ID"],
        },
    )
    writer.write_record(metadata)
    return out.getvalue()


def is_lost(error: StoreError) -> bool:
    """Return whether a body is lost for ever."""
    return error.code in LOST


def _payload(name: str | None, body_of: GetBody) -> tuple[bytes, str]:
    """Return the body, and the reason if it is lost. Temporary failures raise, and are retried."""
    if not name:
        return b"", ""
    try:
        return body_of(name), ""
    except StoreError as error:
        if not is_lost(error):
            raise
        return b"", str(error)


def _truncated(lost: str) -> dict[str, str]:
    return {"WARC-Truncated": "unspecified"} if lost else {}


def _response_headers(exchange: Exchange, length: int) -> list[tuple[str, str]]:
    unfitting = _TRANSFER if exchange.form == "" else _DECODED
    headers = [
        (f"X-Crawler-{name}" if name.lower() in unfitting else name, value)
        for name, value in ((_line(k), _line(v)) for k, v in exchange.headers)
        if name and (name.lower(), value) != ("content-length", str(length))
    ]
    return [*headers, ("Content-Length", str(length))]


def _fields(about: dict[str, str]) -> bytes:
    return "".join(f"{name}: {_line(value)}\r\n" for name, value in about.items() if value).encode()


def _record_headers(exchange: Exchange, kind: str) -> dict[str, str]:
    moment = datetime.datetime.fromtimestamp(exchange.at, datetime.UTC)
    date = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    digits = hashlib.sha256(f"{kind} {exchange.url} {exchange.at!r}".encode()).hexdigest()
    # A UUID of version 8 (made by our own rule), from the recorded data.
    name = f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"
    return {"WARC-Date": date, "WARC-Record-ID": f"<urn:uuid:{name}>"}


def _line(text: str) -> str:
    """Remove line breaks, so that a header cannot contain other headers."""
    return text.replace("\r", " ").replace("\n", " ").strip()


def _writer(out: io.BytesIO) -> Any:
    try:
        from warcio.warcwriter import WARCWriter
    except ImportError:
        raise UsageError(
            "WARC needs warcio: pip install 'zcrawl[warc]'", code=MISSING_EXTRA
        ) from None
    return WARCWriter(out, gzip=True, warc_version="1.1")


# The names of RFC 9110 and related standards: an archive has a status line, and engines do not
# return the phrase.
_PHRASES: Final = {
    200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information",
    204: "No Content", 205: "Reset Content", 206: "Partial Content",
    300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other",
    304: "Not Modified", 307: "Temporary Redirect", 308: "Permanent Redirect",
    400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable", 408: "Request Timeout",
    409: "Conflict", 410: "Gone", 411: "Length Required", 413: "Content Too Large",
    414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable",
    421: "Misdirected Request", 422: "Unprocessable Content", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip
