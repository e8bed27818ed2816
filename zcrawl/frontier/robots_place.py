"""Where a robots.txt is that its own origin does not have: the way there, as it is told and kept.

A robots.txt may be redirected to another origin, which has a pace of its own. Whoever follows must
hold that pace as well, so the worker does not follow at once: it reports the way (as a robots.txt
whose status is `ELSEWHERE`), the leader puts both hosts into one group (`dispatch.shared_limits`),
which one process has and paces, and the next request of the first host goes on from there. Pure;
used by `worker.pipeline.robots` and `dispatch.host_owners`.
"""

from __future__ import annotations

import zlib
from typing import Final

from zcrawl.frontier.url import MAX_URL_BYTES, origin_of

ELSEWHERE: Final = 301
MAX_REDIRECTS: Final = 5
_MOST_BYTES: Final = (MAX_REDIRECTS + 1) * (MAX_URL_BYTES + 1)


def robots_group(origin: str) -> str:
    """The group of those who want a robots.txt of that origin, and of the origin itself."""
    return f"robots {origin}"


def packed(way: list[str]) -> bytes:
    """The URLs from the origin's own robots.txt to the one that is to be asked next."""
    return zlib.compress("\n".join(way).encode())


def way_in(status: int, body: bytes) -> list[str]:
    """The way in a robots.txt as it was reported; empty if it is the file itself, or damaged:
    then it is asked for again from the beginning."""
    if status != ELSEWHERE:
        return []
    try:
        text = zlib.decompressobj().decompress(body, _MOST_BYTES).decode()
    except (zlib.error, UnicodeDecodeError):
        return []
    return [url for url in text.split("\n") if url.startswith(("http://", "https://"))]


def place_in(status: int, body: bytes) -> str:
    """The origin that the way leads to; empty if there is none."""
    way = way_in(status, body)
    return origin_of(way[-1]) if way else ""
