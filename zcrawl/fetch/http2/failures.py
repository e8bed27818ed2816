"""The one place where the errors of httpx, and of h2 below it, get our names.

Used by `engine`. httpx has one error for a garbled answer and for a server that hangs up, and
on HTTP/2 it calls the server's mistakes our own (LocalProtocolError). Which of them it is decides
whether the page is tried again, and whether the pages that shared its connection are to blame.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Final

import httpx

from zcrawl.errors import FetchError
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.model.reasons.failure import (
    BAD_URL,
    CONNECT,
    CONNECT_TIMEOUT,
    DNS,
    ENGINE,
    HTTP2,
    PROTOCOL,
    READ_TIMEOUT,
    RESET,
    TLS,
    TRUNCATED,
)

HTTP_1_1_REQUIRED: Final = 13
# RFC 9113, section 7
_ERROR_CODES: Final = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT"),
    *("STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR"),
    *("CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
)


def translate(url: str, error: Exception, began: bool = False) -> FetchError:
    """The failure with our name. `began`: the answer's headers had come. Narrow types first."""
    text = f"{url}: {error}" if str(error) else f"{url}: {type(error).__name__}"
    broken = http2_failure(error)
    if broken:
        return fetch_error(HTTP2, f"{url}: {broken}"[:MAX_MESSAGE])
    match error:
        case FetchError() if error.code == HTTP2:  # of the connection, which knows no URL
            code = HTTP2
        case FetchError():
            return error
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            code = CONNECT_TIMEOUT
        case httpx.TimeoutException():
            code = READ_TIMEOUT
        case httpx.ConnectError():
            causes = list(_causes(error))
            if any(isinstance(cause, ssl.SSLError) for cause in causes):
                code = TLS
            elif any(isinstance(cause, socket.gaierror) for cause in causes):
                code = DNS
            else:
                code = CONNECT
        case httpx.RemoteProtocolError() if not hung_up(error):
            code = PROTOCOL
        case httpx.UnsupportedProtocol() | httpx.LocalProtocolError() | httpx.InvalidURL():
            code = BAD_URL
        case httpx.RemoteProtocolError() | httpx.NetworkError() | OSError():
            code = TRUNCATED if began else RESET
        case ExceptionGroup():  # anyio wraps what its connection attempts raise
            return translate(url, error.exceptions[0], began)
        case _:
            code = ENGINE
    return fetch_error(code, text[:MAX_MESSAGE])


def hung_up(error: Exception) -> bool:
    """Whether the server ended the connection without a word of why."""
    if isinstance(error, httpx.RemoteProtocolError):
        # h11 and httpcore have one error for this and for nonsense, which they quote: only how
        # the text begins is theirs.
        return str(error).startswith(("Server disconnected", "peer closed connection"))
    return isinstance(error, httpx.ReadError | httpx.WriteError)


def http2_failure(error: Exception) -> str:
    """How HTTP/2 failed, in words; empty if it is not that which failed."""
    reset, goaway = _code_of(error, "StreamReset"), _code_of(error, "ConnectionTerminated")
    if reset is not None:
        return f"the server reset the HTTP/2 stream ({error_name(reset)})"
    if goaway is not None:
        return f"the server ended the HTTP/2 connection (GOAWAY, {error_name(goaway)})"
    for cause in _causes(error):
        if type(cause).__module__.startswith(("h2.", "hpack.", "hyperframe.")):
            return f"the server broke the rules of HTTP/2 ({type(cause).__name__}: {cause})"
    return ""


def reset_code(error: Exception) -> int | None:
    """The error code with which the server ended the page's own stream."""
    return _code_of(error, "StreamReset")


def ended_connection(error: Exception) -> bool:
    """Whether the whole connection failed, with all pages that shared it."""
    if isinstance(error, FetchError):
        return error.code == HTTP2
    return hung_up(error) or (bool(http2_failure(error)) and reset_code(error) is None)


def wants_http1(error: Exception) -> bool:
    codes = (_code_of(error, "StreamReset"), _code_of(error, "ConnectionTerminated"))
    return HTTP_1_1_REQUIRED in codes


def error_name(code: int) -> str:
    return _ERROR_CODES[code] if 0 <= code < len(_ERROR_CODES) else f"error {code}"


def _code_of(error: BaseException, event_name: str) -> int | None:
    """The code in the event of h2 that httpcore made an error of. By its name: h2 is an extra."""
    for cause in _causes(error):
        event = cause.args[0] if cause.args else None
        if type(event).__name__ == event_name and type(event).__module__ == "h2.events":
            return int(getattr(event, "error_code", None) or 0)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
