"""Say of each connection to another service whether it is encrypted. Called by `doctor`.

A connection that stays on this machine needs no encryption. One that leaves it is well if it is
encrypted and the other side is verified; anything less is a warning with the keys to set.
"""

from __future__ import annotations

import dataclasses
from typing import Final
from urllib.parse import urlsplit

from zcrawl.config import Config
from zcrawl.errors import ZcrawlError
from zcrawl.mesh.address import TcpAddress

LOCAL: Final = "stays on this machine"


@dataclasses.dataclass(frozen=True)
class ConnectionLine:
    """One connection: to what, whether that is well, what is used, what to change."""

    name: str
    well: bool
    detail: str
    advice: str = ""


def connection_lines(config: Config) -> list[ConnectionLine]:
    """Return a line for each connection that this configuration makes or accepts."""
    lines = []
    if config.is_cluster:
        lines.append(_mesh(config))
    if config.consul.address:
        lines.append(_consul(config))
    return lines + [_database(url) for url in config.database.urls]


def _is_local(host: str) -> bool:
    return TcpAddress(host, 0).is_loopback


def _mesh(config: Config) -> ConnectionLine:
    mesh = config.mesh
    if mesh.key_file:
        return ConnectionLine(
            "mesh", True, "encrypted, and both sides are verified by keys (CURVE)"
        )
    masters = [urlsplit(master).hostname or "" for master in config.cluster.masters]
    if all(_is_local(host) for host in (mesh.advertise or mesh.bind, *masters)):
        return ConnectionLine("mesh", True, f"not encrypted, {LOCAL} ({mesh.bind})")
    advice = "make keys: zcrawl keys new; docs/security.md"
    return ConnectionLine("mesh", False, "not encrypted, and every peer may do everything", advice)


def _consul(config: Config) -> ConnectionLine:
    from zcrawl.roles.cluster import consul_settings

    try:
        settings = consul_settings(config)
    except ZcrawlError as error:
        return ConnectionLine("consul", False, str(error), "correct it: no node starts with it")
    parts = urlsplit(settings.address if "//" in settings.address else f"//{settings.address}")
    if parts.scheme == "https":
        ours = ", with our certificate" if settings.cert_file else ""
        return ConnectionLine(
            "consul", True, f"{settings.address}: TLS, the agent is verified{ours}"
        )
    if _is_local(parts.hostname or ""):
        return ConnectionLine("consul", True, f"{settings.address}: not encrypted, {LOCAL}")
    token = " and the token is sent in the clear" if settings.token else ""
    advice = "write https://HOST:8501 in consul.address, and consul.ca_file"
    return ConnectionLine("consul", False, f"{settings.address}: not encrypted{token}", advice)


def _database(text: str) -> ConnectionLine:
    from zcrawl.store.sql.dialects.mysql import tls_in_use
    from zcrawl.store.urls import parse_url

    name = "database server"
    try:
        url = parse_url(text)
        used = tls_in_use(url)
    except ZcrawlError as error:
        return ConnectionLine(name, False, str(error), "docs/mysql.md")
    local = url.socket is not None or _is_local(url.host)
    if used and url.ssl_mode in ("verify_ca", "verify_identity"):
        ours = ", with our certificate" if url.ssl_cert else ""
        return ConnectionLine(name, True, f"{url.shown}: {used}, the server is verified{ours}")
    detail = f"{url.shown}: {used or 'not encrypted'}, the server is not verified"
    if local:
        return ConnectionLine(name, True, f"{detail}; {LOCAL}")
    return ConnectionLine(name, False, detail, "add ?ssl_ca=FILE to the address in database.urls")
