"""Who sends a request: a bearer token or a JWT becomes a Principal. Called for every request.

Without any token and without [gateway.jwt], only loopback is served, as the principal `local`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.mesh.roles import KeyRole


class Principal(msgspec.Struct, frozen=True):
    """Who a request is from, as the masters hear it."""

    name: str
    role: str
    rights: tuple[str, ...] = ()
    through: str = ""  # how it proved who it is: `token zc_ab12cd34`, `jwt ISSUER`
    address: str = ""  # of the client


LOCAL_NAME: Final = "local"


def local(address: str) -> Principal:
    """Return the principal of a gateway that only loopback can reach."""
    rights = ("code", "private", "shell")
    return Principal(LOCAL_NAME, KeyRole.OPERATOR, rights, "loopback", address)
