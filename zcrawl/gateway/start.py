"""What a gateway needs of the configuration: which cluster, and where its log goes. Wiring only."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from zcrawl.config import Config, resolve
from zcrawl.gateway.serve import serve
from zcrawl.roles.watching import WatchTarget, in_folder, of_cluster

if TYPE_CHECKING:
    from zcrawl.mesh.ports import MeshLog

STDERR = 2


def target_of(config: Config, data: Path, *, in_cluster: bool) -> WatchTarget:
    return of_cluster(config) if in_cluster else in_folder(data)


async def run_child(
    fd: int, config_file: str, data: str, log_file: str, stop: asyncio.Event
) -> None:
    """Serve on an inherited socket, with the configuration of this file and the environment."""
    from zcrawl.telemetry.logs.files import EventLog

    config = _config(config_file)
    log = EventLog(
        Path(log_file) if log_file else STDERR,
        "gateway",
        as_text=not log_file and config.log.format == "text",
        level=config.log.level,
    )
    target = target_of(config, Path(data), in_cluster=not data)
    await serve_on(socket.socket(fileno=fd), config, target, log, stop)


def _config(file: str) -> Config:
    text = Path(file).read_text() if file else None
    return resolve(text, file, os.environ).config


async def serve_on(
    listener: socket.socket,
    config: Config,
    target: WatchTarget,
    log: MeshLog,
    stop: asyncio.Event,
) -> None:
    listener.setblocking(False)
    await serve(listener, config.gateway, target, log, stop)
