"""Translate the errors of httpx and h2 into our codes.

Used by `engine`. httpx has one error for a garbled answer and for a closed connection, and
on HTTP/2 it reports mistakes of the server as ours (LocalProtocolError). The difference decides
whether a page is retried, and whether the connection or the page has failed.
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
    """Return the failure with our code. `began`: the headers were received."""
    text = f"{url}: {error}" if str(error) else f"{url}: {type(error).__name__}"
    broken = http2_failure(error)
    if broken:
        return fetch_error(HTTP2, f"{url}: {broken}"[:MAX_MESSAGE])
    match error:  # narrow types come first
        case FetchError() if error.code == HTTP2:  # raised by the connection, without the URL
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
        case ExceptionGroup():  # anyio wraps the errors of its connection attempts
            return translate(url, error.exceptions[0], began)
        case _:
            code = ENGINE
    return fetch_error(code, text[:MAX_MESSAGE])


def hung_up(error: Exception) -> bool:
    """Return whether the server closed the connection without a reason."""
    if isinstance(error, httpx.RemoteProtocolError):
        # h11 and httpcore have one error class for this and for garbage, and quote the garbage:
        # only the beginning of the text is certain.
        return str(error).startswith(("Server disconnected", "peer closed connection"))
    return isinstance(error, httpx.ReadError | httpx.WriteError)


def http2_failure(error: Exception) -> str:
    """Describe how HTTP/2 failed; empty if it is another failure."""
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
    """Return the error code with which the server reset the stream of this page."""
    return _code_of(error, "StreamReset")


def ended_connection(error: Exception) -> bool:
    """Return whether the whole connection failed, for all its pages."""
    if isinstance(error, FetchError):
        return error.code == HTTP2
    return hung_up(error) or (bool(http2_failure(error)) and reset_code(error) is None)


def wants_http1(error: Exception) -> bool:
    codes = (_code_of(error, "StreamReset"), _code_of(error, "ConnectionTerminated"))
    return HTTP_1_1_REQUIRED in codes


def error_name(code: int) -> str:
    return _ERROR_CODES[code] if 0 <= code < len(_ERROR_CODES) else f"error {code}"


def _code_of(error: BaseException, event_name: str) -> int | None:
    """Return the code of the h2 event inside an error of httpcore. The type is compared by name,
    because h2 is an optional package."""
    for cause in _causes(error):
        event = cause.args[0] if cause.args else None
        if type(event).__name__ == event_name and type(event).__module__ == "h2.events":
            return int(getattr(event, "error_code", None) or 0)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
