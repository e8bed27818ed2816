"""One exchange as a worker saw it, for archives: JSON within a result, a row beside the items.

Made by the worker's pipeline, read by `store.warc`.
"""

from __future__ import annotations

import msgspec


class Capture(msgspec.Struct, frozen=True):
    """One exchange as a worker saw it; the body is a blob."""

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
