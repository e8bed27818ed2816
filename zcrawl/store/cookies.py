"""A run's cookies as they are stored: one JSON object, host → what its worker sent.

Called by the stores when a result brings cookies. Pure. The leader
never looks into a host's cookies; it keeps the newest of each host, within a bound.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_BYTES: Final = 60_000  # fits a BLOB of every database


def merged(kept: bytes, host: str, cookies: bytes) -> bytes:
    """`kept` with the cookies of one host replaced; the hosts that changed longest ago go first
    when there is no room."""
    hosts = msgspec.json.decode(kept, type=dict[str, str]) if kept else {}
    hosts.pop(host, None)
    hosts[host] = cookies.decode("utf-8", "replace")
    data = msgspec.json.encode(hosts)
    while len(data) > MAX_BYTES:
        del hosts[next(iter(hosts))]
        data = msgspec.json.encode(hosts)
    return data
