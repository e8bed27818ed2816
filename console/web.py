"""`zcrawl console --web`: the same console in a browser, by textual-serve, on loopback only.

Each browser gets a console process of its own. Whoever can reach the port needs the token that is
printed at the start: it is handed over once in the address, then kept in a cookie that scripts
cannot read. Requests under another host name are refused, so that no web page can reach it by
pointing its own name here; the page may load nothing from elsewhere and stand in no other's frame.
"""

from __future__ import annotations

import errno
import hmac
import logging
import secrets
import shlex
import socket
import sys
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.server import Server

from zcrawl.cli import output
from zcrawl.errors import RefusedError
from zcrawl.model.reasons.cluster import ADDRESS_IN_USE, CANNOT_BIND

COOKIE: Final = "zcrawl_console"
HOST: Final = "127.0.0.1"
# textual-serve's page asks for a font from elsewhere (it has that font itself), and its own script
# and styles stand in it.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(arguments: list[str], port: int) -> int:
    """Until Ctrl-C. `arguments` are those of the command that each browser runs."""
    port = _usable(port)
    command = shlex.join([sys.executable, "-m", "zcrawl", *arguments])
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # addresses hold the token
    ConsoleServer(command, port, secrets.token_urlsafe(24)).serve()
    return 0


class ConsoleServer(Server):
    def __init__(self, command: str, port: int, token: str) -> None:
        super().__init__(command, host=HOST, port=port, title="zcrawl console")
        self._token = token

    async def _make_app(self) -> web.Application:
        app: web.Application = await super()._make_app()
        app.middlewares.append(guard(self._token, self.port))
        return app

    async def on_startup(self, app: web.Application) -> None:
        address = f"{self.public_url}/?token={self._token}"
        output.note(f"the console is at {address}   (Ctrl-C ends)")


def guard(token: str, port: int) -> Middleware:
    """Lets in who has the token, under this machine's own name."""
    names = {f"{name}:{port}" for name in (HOST, "localhost")}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin", "")
        if request.host not in names or (origin and origin.partition("://")[2] not in names):
            raise web.HTTPForbidden(text="this console is served to this machine only\n")
        given = request.query.get("token", "")
        if given and hmac.compare_digest(given.encode(), token.encode()):
            answer = web.HTTPFound("/")  # out of the address bar, and of the history
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            raise answer
        kept = request.cookies.get(COOKIE, "")
        if not hmac.compare_digest(kept.encode(), token.encode()):
            raise web.HTTPUnauthorized(text="open the address that the console printed\n")
        response = await handler(request)
        if not response.prepared:  # a socket's answer has gone out already
            response.headers.update(HEADERS)
        return response

    return check


def _usable(port: int) -> int:
    """That port, or with 0 a free one. textual-serve prints where it is before it binds, and says
    in no usable way that it could not."""
    try:
        with socket.create_server((HOST, port)) as probe:
            free: int = probe.getsockname()[1]
    except OSError as error:
        code = ADDRESS_IN_USE if error.errno == errno.EADDRINUSE else CANNOT_BIND
        message = f"cannot listen at {HOST}:{port}: {error.strerror}; --port N takes another"
        raise RefusedError(message, code=code) from error
    return free
