"""Servers whose first line is no status line, or not yet one.

Imported by `server`, so that they stand in the same table as the other behaviours.
"""

from __future__ import annotations

from tests.web.behaviours import Exchange, behaviour

NO_HTTP = {
    "word": b"garbage",
    "lines": b"garbage\r\nmore of it\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "smtp": b"220 mail.example ESMTP\r\n",
    "tls-alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "html": b"<html><body>no headers</body></html>\n",
    "lower-case": b"http/1.1 200 OK\r\n\r\n",
    "no-version": b"HTTP 200 OK\r\n\r\n",
    "odd-version": b"HTTP/x.1 200 OK\r\n\r\n",
    "no-number": b"HTTP/1.1 abc OK\r\n",
    "no-status": b"HTTP/1.1\r\n\r\n",
    "two-digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "four-digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "disconnected": b"Server disconnected\r\n\r\n",
    "zeros": bytes(100),
}
UNFINISHED = {
    "nothing": b"",
    "version": b"HTTP/1.",
    "status": b"HTTP/1.1 200",
    "header": b"HTTP/1.1 200 OK\r\nContent-",
}


LOW = {
    "077": b"HTTP/1.1 077 Low\r\nContent-Length: 2\r\n\r\nhi",
    "099": b"HTTP/1.1 099 Low\r\n\r\nhi",
}


@behaviour
async def says(x: Exchange) -> bool:
    """/says/NAME/closes or /says/NAME/waits: then it hangs up, or says no more."""
    name, _, then = x.rest.partition("/")
    await x.raw({**NO_HTTP, **UNFINISHED, **LOW}[name])
    if then == "waits":
        await x.reader.read()  # until the client leaves
    return False
