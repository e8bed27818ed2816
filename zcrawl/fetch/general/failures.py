"""Translate the errors of aiohttp into our codes.

Used by `wire`. Also decides whether the proxy or the server has failed: a failure before the
connection is established is the proxy's, unless the proxy reports that it could not reach the
server.
"""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from zcrawl.errors import FetchError
from zcrawl.fetch.general.connections import established
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.model.reasons.failure import (
    BAD_URL,
    CONNECT,
    CONNECT_TIMEOUT,
    DNS,
    ENGINE,
    PROTOCOL,
    PROXY,
    READ_TIMEOUT,
    RESET,
    TLS,
    TOTAL_TIMEOUT,
    TRUNCATED,
)

_UNREACHED_STATUSES = frozenset(
    {502, 503, 504}
)  # of a CONNECT: the server's fault, not the proxy's


def translate(url: str, error: Exception, proxy: str | None = None) -> FetchError:
    text = f"{url}: {error}" if str(error) else f"{url}: {type(error).__name__}"
    if proxy is not None and _is_proxy_failure(url, error):
        shown = proxy.rpartition("@")[2]  # never its password
        return fetch_error(PROXY, f"proxy {shown}: {text}"[:MAX_MESSAGE])
    return fetch_error(_code(error), text[:MAX_MESSAGE])


def _is_proxy_failure(url: str, error: Exception) -> bool:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return error.status not in _UNREACHED_STATUSES
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return False
    if established.get():
        # For plain http, a proxy answers with an error if the server closes the connection. If the
        # proxy itself closes the connection, the proxy has failed.
        hung_up = isinstance(error, aiohttp.ClientConnectionError | ConnectionError)
        return url.startswith("http:") and hung_up and not isinstance(error, TimeoutError)
    network = (aiohttp.ClientConnectionError, aiohttp.ClientResponseError, OSError, TimeoutError)
    return isinstance(error, network)


def _code(error: Exception) -> str:
    """Return our code for an error. Narrow types come first."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return DNS
        case (
            aiohttp.ClientConnectorCertificateError()
            | aiohttp.ClientSSLError()
            | aiohttp.ServerFingerprintMismatch()
            | ssl.SSLError()
        ):
            return TLS
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return CONNECT
        case aiohttp.ConnectionTimeoutError():
            return CONNECT_TIMEOUT
        case aiohttp.ServerTimeoutError():
            return READ_TIMEOUT
        case asyncio.TimeoutError():
            return TOTAL_TIMEOUT
        case aiohttp.ClientPayloadError():  # the connection ended within the body
            return TRUNCATED
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return PROTOCOL
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | ValueError():
            return BAD_URL
        case aiohttp.ClientConnectionError() | OSError():
            return RESET
        case _:
            return ENGINE
