"""The listening socket of a gateway. The parent of a supervised one holds it, so that the address
stays the same, and connections wait, while a gateway is started again.
"""

from __future__ import annotations

import ipaddress
import socket

from zcrawl.errors import UsageError

BACKLOG = 1_024


def listen(address: str) -> socket.socket:
    """Return a socket that listens on `host:port`, `[::1]:port` or `:port` (loopback)."""
    host, colon, port = address.strip().rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"--http {address!r}: write host:port, e.g. 127.0.0.1:8080")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError as error:
        raise UsageError(f"--http {address}: cannot listen: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener


def is_public(listener: socket.socket) -> bool:
    """Return whether other machines can reach it."""
    return not ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
