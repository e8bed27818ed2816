"""Follow a robots.txt that is redirected to another origin.

The other origin has a pace of its own, which the request must keep as well. So the worker does not
follow the redirect at once. It reports the redirect (as a robots.txt with status `ELSEWHERE`), the
leader puts both hosts into one group (`dispatch.shared_limits`) with one owner, and the next
request of the first host continues from there. Pure; used by `worker.pipeline.robots` and
`dispatch.host_owners`.
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
    """Return the key of the group of an origin and of the hosts whose robots.txt is there."""
    return f"robots {origin}"


class RobotsWay(msgspec.Struct, frozen=True):
    """The URLs from the origin's own robots.txt to the one to fetch next."""

    urls: tuple[str, ...]

    @property
    def place(self) -> str:
        """The origin of the last URL."""
        return origin_of(self.urls[-1])

    def pack(self, lasts_s: float) -> RobotsFile:
        """Return the redirects in the form that is reported and stored."""
        return RobotsFile(ELSEWHERE, zlib.compress("\n".join(self.urls).encode()), lasts_s)


def is_way(file: RobotsFile | StoredRobots) -> bool:
    """Return whether this record holds redirects instead of a robots.txt."""
    return file.status == ELSEWHERE


def unpack_way(file: RobotsFile | StoredRobots) -> RobotsWay | None:
    """Return the redirects of a record; None if it is the file itself or damaged.

    A damaged record makes the worker start again at the origin's own robots.txt.
    """
    if not is_way(file):
        return None
    try:
        text = zlib.decompressobj().decompress(file.body, _MOST_BYTES).decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    urls = tuple(url for url in text.split("\n") if url.startswith(("http://", "https://")))
    return RobotsWay(urls) if urls else None


def place_in(file: RobotsFile | StoredRobots) -> str:
    """Return the origin to which the record redirects; empty if it does not."""
    way = unpack_way(file)
    return "" if way is None else way.place
