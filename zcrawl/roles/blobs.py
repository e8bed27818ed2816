"""Open the place where bodies are stored: a folder or S3, by its name."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from pathlib import Path

from zcrawl.blobs.limited import Blobs, GuardedBlobs
from zcrawl.config import Config
from zcrawl.errors import ConfigError, StoreError
from zcrawl.model.reasons.storage import BODIES_NOT_SHARED
from zcrawl.roles.place import BLOBS
from zcrawl.submit.outputs import is_remote

Note = Callable[[str, str], None]  # name and text of an event
REFUSED = ""  # for a cluster without a place for bodies


def blobs_place(config: Config, data: Path, *, cluster: bool) -> str:
    """Return the folder or URL for bodies. In a cluster on several machines, a folder must be
    declared as shared; otherwise other nodes could not read its bodies. A cluster without a place
    starts, but refuses jobs that store bodies."""
    bodies = config.bodies
    if is_remote(bodies.url):
        return bodies.url
    if "://" in bodies.url:
        raise ConfigError(f"bodies.url: {bodies.url!r}; write a folder, or s3://bucket/prefix")
    if cluster and not bodies.shared and several_hosts(config):
        if not bodies.url:
            return REFUSED
        raise ConfigError(
            "bodies.url is a folder, and this cluster may have several hosts: give bodies.url = "
            "'s3://…', or set bodies.shared = true if the folder is the same one everywhere",
            code=BODIES_NOT_SHARED,
        )
    return bodies.url or str(data / BLOBS)


def several_hosts(config: Config) -> bool:
    """Return whether the configuration names, or is open to, other machines."""
    named = [config.mesh.bind, config.mesh.advertise, config.consul.address]
    hosts = [*named, *config.cluster.masters]
    return any(not _is_here(host) for host in hosts if host)


def _is_here(address: str) -> bool:
    host = address.partition("://")[2] or address
    if host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return ipaddress.ip_address(host.partition("]")[0].strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _Nowhere:
    """The blobs of a cluster on several machines without a place for bodies: all calls fail."""

    def put(self, data: bytes) -> str:
        raise StoreError(
            "bodies have no place that all hosts reach: set bodies.url = 's3://…', or a folder "
            "and bodies.shared = true",
            code=BODIES_NOT_SHARED,
        )

    def get(self, name: str) -> bytes:
        raise StoreError(f"there is no place for bodies, so no {name}", code=BODIES_NOT_SHARED)


def in_loop(note: Note) -> Note:
    """Return a function for other threads that calls `note` in the running loop."""
    loop = asyncio.get_running_loop()

    def pass_on(name: str, detail: str) -> None:
        loop.call_soon_threadsafe(note, name, detail)

    return pass_on


def body_getter(where: str, note: Note) -> Callable[[str], bytes]:
    """Return a function that reads bodies for archives. A lost body is reported to `note`, and the
    archive is written without it."""
    blobs = open_blobs(where)

    def get(name: str) -> bytes:
        try:
            return blobs.get(name)
        except StoreError as error:
            from zcrawl.outputs.warc import is_lost

            if is_lost(error):
                note("output_body_lost", f"an archive is written without a body: {error}")
            raise

    return get


def open_blobs(where: str) -> Blobs:
    """Open the place, with a time limit and a breaker."""
    if where == REFUSED:
        return _Nowhere()
    return GuardedBlobs(where, lambda: _open_place(where))


def _open_place(where: str) -> Blobs:
    if is_remote(where):
        from zcrawl.blobs.s3 import S3Blobs

        return S3Blobs(where)
    from zcrawl.blobs.folder import FileBlobs

    return FileBlobs(Path(where))
