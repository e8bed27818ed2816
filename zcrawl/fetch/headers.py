"""Read single headers of an answer without decoding all of them.

Called by the worker's pipeline for every page: httpx would decode and copy all headers to find
one, which costs more than the rest of the answer.
"""

from __future__ import annotations

from zcrawl.fetch.ports import Response


def header_of(response: Response, name: bytes) -> str | None:
    """Return the first header of that name."""
    sent = response.extensions.get("wire_headers")
    for key, value in response.headers.raw if sent is None else sent:
        if key.lower() == name:
            return _text(value)
    return None


def headers_of(response: Response, name: bytes) -> list[str]:
    """Return all headers of that name."""
    sent = response.extensions.get("wire_headers")
    pairs = response.headers.raw if sent is None else sent
    return [_text(value) for key, value in pairs if key.lower() == name]


def _text(value: bytes) -> str:
    """Decode a header as httpx does: UTF-8 if valid (some servers write Location so), else
    Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
