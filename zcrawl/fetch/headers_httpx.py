"""Single headers of an answer, without reading all of them.

Called by the worker's pipeline for every page: httpx would decode and copy all headers to find
one, which costs more than the rest of the answer.
"""

from __future__ import annotations

import httpx


def header_of(response: httpx.Response, name: bytes) -> str | None:
    """The first header of that name, as sent: httpx would read all headers to find one, which
    costs more than the rest of the answer."""
    sent = response.extensions.get("wire_headers")
    for key, value in response.headers.raw if sent is None else sent:
        if key.lower() == name:
            return value.decode("latin-1")
    return None


def headers_of(response: httpx.Response, name: bytes) -> list[str]:
    """All headers of that name."""
    sent = response.extensions.get("wire_headers")
    found = response.headers.raw if sent is None else sent
    return [value.decode("latin-1") for key, value in found if key.lower() == name]
