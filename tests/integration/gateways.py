"""A gateway in a thread of the test, over the cluster of a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from zcrawl.gateway.mesh import Mesh

from tests.integration.crawling import wait_until
from zcrawl.gateway.app import make_app
from zcrawl.gateway.cutting import CuttableProtocol
from zcrawl.gateway.principals import Principal, local
from zcrawl.mesh.ports import no_log
from zcrawl.roles.watching import in_folder


class OpenLine(Mesh):
    """The line of a gateway without keys: everybody is `local`."""

    async def principal(self, authorization: str, address: str) -> Principal:
        return local(address)


@contextlib.contextmanager
def gateway(data: Path, port: int = 0) -> Iterator[str]:
    """Serve the cluster in `data`; yield the gateway's URL."""
    listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        async with OpenLine(in_folder(data), no_log) as line:
            config = uvicorn.Config(
                make_app(line),
                http=CuttableProtocol,
                log_config=None,
                timeout_graceful_shutdown=1,
            )
            servers.append(uvicorn.Server(config))
            await servers[0].serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        wait_until(lambda: bool(servers) and servers[0].started, 20)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        servers[0].should_exit = True
        thread.join(20)
        listener.close()
