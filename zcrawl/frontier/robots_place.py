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

import msgspec

from zcrawl.frontier.url import MAX_URL_BYTES, origin_of
from zcrawl.model.host import RobotsFile
from zcrawl.model.rows import StoredRobots

ELSEWHERE: Final = 301
MAX_REDIRECTS: Final = 5
_MOST_BYTES: Final = (MAX_REDIRECTS + 1) * (MAX_URL_BYTES + 1)


def robots_group(origin: str) -> str:
    """The group of those who want a robots.txt of that origin, and of the origin itself."""
    return f"robots {origin}"


class RobotsWay(msgspec.Struct, frozen=True):
    """The URLs from the origin's own robots.txt to the one that is to be asked next."""

    urls: tuple[str, ...]

    @property
    def place(self) -> str:
        """The origin that the way leads to."""
        return origin_of(self.urls[-1])

    def pack(self, lasts_s: float) -> RobotsFile:
        """Return the way as it is reported and stored."""
        return RobotsFile(ELSEWHERE, zlib.compress("\n".join(self.urls).encode()), lasts_s)


def is_way(file: RobotsFile | StoredRobots) -> bool:
    """Return whether this is no robots.txt, but the way to one."""
    return file.status == ELSEWHERE


def unpack_way(file: RobotsFile | StoredRobots) -> RobotsWay | None:
    """Return the way in a robots.txt as it was reported; None if it is the file itself, or damaged:
    then it is asked for again from the beginning."""
    if not is_way(file):
        return None
    try:
        text = zlib.decompressobj().decompress(file.body, _MOST_BYTES).decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    urls = tuple(url for url in text.split("\n") if url.startswith(("http://", "https://")))
    return RobotsWay(urls) if urls else None


def place_in(file: RobotsFile | StoredRobots) -> str:
    """Return the origin that the way leads to; empty if there is none."""
    way = unpack_way(file)
    return "" if way is None else way.place
