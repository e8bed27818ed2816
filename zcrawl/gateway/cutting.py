"""A connection that takes nothing can be cut off at once. `routes.events` does so.

A server that only closes such a connection waits until its client has taken what was sent, which
may be never. So the gateway's server (`http=CuttableProtocol`) puts the connection into the scope
of each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TRANSPORT: Final = "zcrawl_transport"


class CuttableProtocol(HttpToolsProtocol):
    """The protocol of httptools; the state of each request has the connection's transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, TRANSPORT: transport}
        super().connection_made(transport)


def cut(state: Mapping[str, Any]) -> bool:
    """Cut the connection of a request. Return False if the server did not say which it is."""
    transport = state.get(TRANSPORT)
    if not isinstance(transport, asyncio.WriteTransport):
        return False
    transport.abort()
    return True
