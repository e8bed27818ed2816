"""Exchanges as a worker saw them, for archives: JSON within a result, a row beside the items.

Made by the worker's `pipeline.capture`, read by `outputs.warc`.
"""

from typing import Literal

import msgspec

# How the kept body relates to what the wire carried. "": byte for byte, but for the chunks.
Form = Literal["", "decoded", "rendered"]


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request and its answer; bodies are blobs, empty ones have no name."""

    url: str
    status: int
    headers: list[tuple[str, str]]  # of the answer
    request: list[tuple[str, str]]  # headers that were sent
    at: float  # UTC seconds
    body: str = ""
    method: str = "GET"
    sent: str = ""  # the request's own body
    form: Form = ""


class Capture(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last exchange of one request, and the redirects before it."""

    url: str  # as requested
    final_url: str
    status: int
    headers: list[tuple[str, str]]  # of the answer
    request: list[tuple[str, str]]  # headers that were sent
    at: float  # UTC seconds
    body: str  # the blob's name
    elapsed_ms: float = 0.0
    depth: int = 0
    parent: str | None = None
    method: str = "GET"
    sent: str = ""
    # Captures of earlier versions have decoded bodies without this mark.
    form: Form = "decoded"
    hops: list[Exchange] = []  # redirects before it
