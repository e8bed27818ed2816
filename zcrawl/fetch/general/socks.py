"""A connection through a SOCKS5 proxy, for `connections`; or through the CONNECT of an HTTP
proxy, for `browser.gate`.

python-socks does the handshake; it is loaded by the first job that needs it. The proxy is told the
address that the guard has checked, not the name, so a proxy that asks another DNS cannot be led
elsewhere.
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
    """A socket that the proxy has connected to `address`; FetchError proxy or connect."""
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
        # The time that a connection may take is watched by aiohttp.
        return await through.connect(address, port, timeout=3600.0)
    except ProxyError as error:
        code = CONNECT if error.error_code in _UNREACHED else PROXY
        raise fetch_error(code, f"{address}:{port} by proxy {where}: {error}") from error
    except (ProxyConnectionError, ProxyTimeoutError) as error:
        raise fetch_error(PROXY, f"proxy {where}: {error}") from error
