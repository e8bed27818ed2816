"""A connection that takes nothing can be cut off at once. `routes.events` does so.

A server that only closes such a connection waits until its client has taken what was sent, which
may be never. So `limits.LimitedProtocol` puts the connection into the state of each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

TRANSPORT: Final = "zcrawl_transport"


def cut(state: Mapping[str, Any]) -> bool:
    """Cut the connection of a request. Return False if the server did not say which it is."""
    transport = state.get(TRANSPORT)
    if transport is None:
        return False
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()
    return True
