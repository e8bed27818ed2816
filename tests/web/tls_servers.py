"""Servers for what only TLS has: one that wants a certificate, one that speaks HTTP/2."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from tests.servers.certificates import Certificates

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _listen(serve: Serve, context: ssl.SSLContext) -> AsyncIterator[str]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


def _context(made: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server_cert, made.server_key)
    return context


def members_only(made: Certificates) -> contextlib.AbstractAsyncContextManager[str]:
    """Answers with the name in the client's certificate, and talks to nobody without one."""
    context = _context(made)
    context.load_verify_locations(made.ca)
    context.verify_mode = ssl.CERT_REQUIRED

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        subject = writer.get_extra_info("peercert")["subject"]
        name = dict(pair for part in subject for pair in part)["commonName"].encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(name), name))
        await writer.drain()

    return _listen(serve, context)


def http2_only(made: Certificates) -> contextlib.AbstractAsyncContextManager[str]:
    """Speaks HTTP/2 to those who offer it; to others `HTTP/1.1`, in which it says so."""
    context = _context(made)
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n1.1")
            await writer.drain()
            return
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(65_536):
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    headers = [(":status", "200"), ("content-type", "text/plain")]
                    connection.send_headers(event.stream_id, headers)
                    connection.send_data(event.stream_id, b"two", end_stream=True)
            writer.write(connection.data_to_send())
            await writer.drain()

    return _listen(serve, context)
