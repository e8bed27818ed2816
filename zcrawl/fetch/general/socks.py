"""Connect through a SOCKS5 proxy (`connections`) or the CONNECT of an HTTP proxy (`browser.gate`).

python-socks does the handshake; it is loaded by the first job that needs it. The proxy gets the
address that the guard has checked, not the name, so that it does not look the name up again with
another result.
"""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import SplitResult, unquote

from zcrawl.fetch.policy import fetch_error
from zcrawl.model.reasons.failure import CONNECT, PROXY

_UNREACHED: Final = frozenset({3, 4, 5, 6})  # network, host, refused, TTL: not the proxy's fault


async def connect_through(
    proxy: SplitResult, proxy_address: str, address: str, port: int
) -> socket.socket:
    """Return a socket that is connected to `address` through the proxy; FetchError proxy or
    connect."""
    from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError, ProxyType
    from python_socks.async_.asyncio import Proxy

    assert proxy.port is not None  # checked with the job
    through = Proxy(
        ProxyType.HTTP if proxy.scheme == "http" else ProxyType.SOCKS5,
        proxy_address,
        proxy.port,
        username=unquote(proxy.username) if proxy.username else None,
        password=unquote(proxy.password) if proxy.password else None,
    )
    where = f"{proxy.hostname}:{proxy.port}"
    try:
        # aiohttp enforces the timeout of the connection.
        return await through.connect(address, port, timeout=3600.0)
    except ProxyError as error:
        code = CONNECT if error.error_code in _UNREACHED else PROXY
        raise fetch_error(code, f"{address}:{port} by proxy {where}: {error}") from error
    except (ProxyConnectionError, ProxyTimeoutError) as error:
        raise fetch_error(PROXY, f"proxy {where}: {error}") from error
