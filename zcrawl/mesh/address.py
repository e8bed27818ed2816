"""Parse endpoints: transport, host, and whether other machines can reach it. Pure.

Called before a socket is bound or connected. libzmq accepts port 99999 and silently binds
another one, so ports are checked here.
"""

from __future__ import annotations

import ipaddress

import msgspec

from zcrawl.errors import ConfigError
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.reasons.cluster import BAD_ENDPOINT
from zcrawl.text.patterns import lazy_pattern

ANY_PORT = "*"
_TCP = lazy_pattern(r"tcp://(?P<host>\[[^\[\]/\s]+\]|[^\[\]:/\s]+):(?P<port>\*|[0-9]{1,5})")
_WILDCARDS = ("*", "0.0.0.0", "::")


class TcpAddress(msgspec.Struct, frozen=True):
    """`tcp://HOST:PORT`; an IPv6 host is kept without its brackets. Port 0: take a free one."""

    host: str
    port: int

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    @property
    def is_wildcard(self) -> bool:
        return self.host in _WILDCARDS

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach it for certain."""
        if self.host.lower() == "localhost":
            return True
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback

    def __str__(self) -> str:
        host = f"[{self.host}]" if self.is_ipv6 else self.host
        return f"tcp://{host}:{self.port or ANY_PORT}"


def parse_endpoint(text: str) -> TcpAddress | None:
    """Parse a TCP endpoint; None for a local one (ipc, inproc)."""
    if text.startswith(("ipc://", "inproc://")) and not text.endswith("://"):
        return None
    match = _TCP.fullmatch(text)
    port = 0 if match is None or match["port"] == ANY_PORT else int(match["port"])
    if match is None or port > 65_535 or not _is_host(match["host"]):
        raise ConfigError(
            f"{text!r} is not an endpoint; write tcp://HOST:PORT with a port up to 65535 "
            "(* takes a free one), tcp://[IPV6]:PORT, or ipc://PATH",
            code=BAD_ENDPOINT,
        )
    return TcpAddress(match["host"].strip("[]"), port)


def _is_host(host: str) -> bool:
    """Return whether a host is valid; in brackets only an IPv6 address is."""
    if not host.startswith("["):
        return True
    try:
        ipaddress.IPv6Address(host.strip("[]"))
    except ValueError:
        return False
    return True


def advertised(bound: Endpoints, host: str) -> Endpoints:
    """Return where others reach a master that is bound to all addresses of its machine."""

    def reachable(text: str) -> str:
        address = parse_endpoint(text)
        if address is None or not address.is_wildcard:
            return text
        endpoint = str(TcpAddress(host.strip("[]"), address.port))
        try:
            parse_endpoint(endpoint)
        except ConfigError as error:
            raise ConfigError(
                f"mesh.advertise: {host!r} is not a host; write a name or an address, without port",
                code=BAD_ENDPOINT,
            ) from error
        return endpoint

    return Endpoints(
        bound.master, reachable(bound.control), reachable(bound.reports), reachable(bound.events)
    )
