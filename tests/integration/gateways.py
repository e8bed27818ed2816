"""A gateway in a thread of the test, over the cluster of a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.integration.crawling import wait_until
from zcrawl.config import GatewayConfig
from zcrawl.gateway.serve import serve
from zcrawl.mesh.ports import no_log
from zcrawl.roles.watching import in_folder


@contextlib.contextmanager
def gateway(data: Path, port: int = 0) -> Iterator[str]:
    """Serve the cluster in `data`; yield the gateway's URL."""
    listener = socket.create_server(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    config = GatewayConfig()
    serving = serve(listener, config, in_folder(data), no_log, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(serving,), daemon=True)
    thread.start()

    def answers() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{url}/v1/readyz").status_code == 200
        return False

    try:
        wait_until(answers, 20)
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()
        loop.close()
        listener.close()
