"""Run the gateway in this process: socket, uvicorn, and the line to the masters. Wiring only.

Called by `start`, for `zcrawl gateway` and for the child of `zcrawl up` and `zcrawl master`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from zcrawl.config import GatewayConfig
from zcrawl.errors import ConfigError
from zcrawl.gateway.app import make_app
from zcrawl.gateway.jwt_tokens import JwtTokens
from zcrawl.gateway.limits import Guarded, LimitedProtocol
from zcrawl.gateway.listen import is_public
from zcrawl.gateway.mesh import Mesh
from zcrawl.gateway.principals import Principal, Principals
from zcrawl.mesh.ports import MeshLog
from zcrawl.model.log_event import GATEWAY_LINE
from zcrawl.roles.watching import WatchTarget
from zcrawl.runtime import clock
from zcrawl.runtime.certificate import ServerCertificate
from zcrawl.runtime.loop import supervised

CLOSE_S = 5  # for requests under way when it ends
CERTIFICATE_LOOK_S = 1.0


class MeshServices(Mesh):
    """What the routes use: the line to the masters, and who sends a request."""

    def __init__(self, target: WatchTarget, config: GatewayConfig, log: MeshLog) -> None:
        super().__init__(target, log)
        jwts = JwtTokens(config.jwt) if config.jwt.keys else None
        self._principals = Principals(self.ask_as_gateway, jwts)

    async def principal(self, authorization: str, address: str) -> Principal:
        return await self._principals.find(authorization, address)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command has handlers of its own


class _ToLog(logging.Handler):
    """Give what the libraries log to the log of this process."""

    def __init__(self, log: MeshLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log("gateway_error", self.format(record))


async def serve(
    listener: socket.socket,
    config: GatewayConfig,
    target: WatchTarget,
    log: MeshLog,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set. ConfigError if the address would be open to strangers."""
    clock.raise_file_limit()
    _take_logs(log)
    tls = _certificate(config)
    if is_public(listener) and tls is None and not config.insecure:
        raise ConfigError(
            "gateway.http can be reached by other machines: set gateway.tls_cert and "
            "gateway.tls_key, or gateway.insecure = true behind a proxy that has TLS"
        )
    services = MeshServices(target, config, log)
    async with services:
        LimitedProtocol.connections_most = config.connections
        app = Guarded(make_app(services, config), config)
        server = _Server(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=CLOSE_S,
            )
        )
        following = None
        if tls is not None:
            server.config.load()
            server.config.ssl = tls.context
            following = supervised(_follow(tls, log), "certificate", log)
        gc.freeze()
        stopping = supervised(_stop(server, stop), "stop", log)
        log(GATEWAY_LINE, f"serves http on {shown_address(listener)}")
        try:
            await server.serve(sockets=[listener])
        finally:
            stopping.cancel()
            if following is not None:
                following.cancel()


def _certificate(config: GatewayConfig) -> ServerCertificate | None:
    if not config.tls_cert:
        return None
    if not config.tls_key:
        raise ConfigError("gateway.tls_cert needs gateway.tls_key")
    names = ("gateway.tls_cert", "gateway.tls_key")
    return ServerCertificate(Path(config.tls_cert), Path(config.tls_key), names)


async def _follow(tls: ServerCertificate, log: MeshLog) -> None:
    while True:
        await asyncio.sleep(CERTIFICATE_LOOK_S)
        if tls.poll():
            kept = f"keeps the old certificate: {tls.error}"
            log(GATEWAY_LINE, kept if tls.error else "uses the new certificate")


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def shown_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _take_logs(log: MeshLog) -> None:
    handler = _ToLog(log)
    for name in ("uvicorn", "litestar", "zcrawl.gateway"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)
