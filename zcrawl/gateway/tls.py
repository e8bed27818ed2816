"""The certificate of the gateway, read again when its files change."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import uvicorn

from zcrawl.config import GatewayConfig
from zcrawl.errors import ConfigError
from zcrawl.mesh.ports import MeshLog
from zcrawl.model.log_event import GATEWAY_LINE
from zcrawl.runtime.loop import supervised

LOOK_S = 1.0


class TlsFiles:
    def __init__(self, config: GatewayConfig, log: MeshLog) -> None:
        """ConfigError if certificate and key cannot be used."""
        self._cert, self._key, self._log = config.tls_cert, config.tls_key, log
        if not config.tls_key:
            raise ConfigError("gateway.tls_cert needs gateway.tls_key")
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self._cert, self._key
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"gateway.tls_cert: cannot be used: {error}") from None
        self._seen = self._times()
        self._task: asyncio.Task[None] | None = None

    def follow(self, server: uvicorn.Config) -> None:
        """Use changed files for new connections of this server."""
        assert server.ssl is not None
        server.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        self._task = supervised(self._follow(server.ssl), "certificate", self._log)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, context: ssl.SSLContext) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            times = self._times()
            if times == self._seen:
                continue
            self._seen = times
            try:
                context.load_cert_chain(self._cert, self._key)
                self._log(GATEWAY_LINE, "uses the new certificate")
            except (OSError, ssl.SSLError) as error:  # the other file may be written in a moment
                self._log(GATEWAY_LINE, f"keeps the old certificate: {error}")

    def _times(self) -> tuple[int, ...]:
        try:
            return tuple(Path(file).stat().st_mtime_ns for file in (self._cert, self._key))
        except OSError:
            return ()
