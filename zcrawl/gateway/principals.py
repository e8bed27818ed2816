"""Who sends a request: a bearer token or a JWT becomes a Principal. Called for every request.

Without any token and without [gateway.jwt], only loopback is served, as the principal `local`. What
the masters say about a token counts for at most `KEPT_S`, so a revoked one is cut off soon after.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.gateway.jwt_tokens import JwtTokens
from zcrawl.gateway.problem import ProblemError, problem
from zcrawl.mesh.border import Allowance, Buckets
from zcrawl.mesh.roles import PRINCIPALS, KeyRole
from zcrawl.model.reasons.cluster import TOO_MANY_REQUESTS, UNAUTHORIZED, UNKNOWN_OP
from zcrawl.text.patterns import lazy_pattern

Authenticate = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

LOCAL_NAME: Final = "local"
KEPT_S: Final = 1.0
MOST_KEPT: Final = 10_000
_TOKEN: Final = lazy_pattern(r"(zc_[A-Za-z0-9]{8})_[A-Za-z0-9_-]{43}")
_MOST_HEADER: Final = 8_192
_GUESSES: Final = Allowance(5, 20)  # wrong tokens of one address


class Principal(msgspec.Struct, frozen=True):
    """Who a request is from, as the masters hear it."""

    name: str
    role: str
    rights: tuple[str, ...] = ()
    through: str = ""  # how it proved who it is: `token zc_ab12cd34`, `jwt ISSUER`
    address: str = ""  # of the client


class Principals:
    def __init__(self, authenticate: Authenticate, jwts: JwtTokens | None) -> None:
        """`authenticate` sends a request of the gateway's own to the masters."""
        self._authenticate, self._jwts = authenticate, jwts
        self._kept: dict[tuple[str, str], tuple[float, asyncio.Future[dict[str, Any]]]] = {}
        self._guesses = Buckets()

    async def find(self, authorization: str, address: str) -> Principal:
        """Return who sends a request with this header; ProblemError otherwise."""
        if not authorization:
            if self._jwts is None and is_loopback(address) and await self._is_open():
                return local(address)
            raise problem(UNAUTHORIZED, "the request has no Authorization header")
        scheme, _, credential = authorization.partition(" ")
        credential = credential.strip()
        if scheme.lower() != "bearer" or not credential or len(credential) > _MOST_HEADER:
            raise problem(UNAUTHORIZED, "Authorization must be `Bearer TOKEN`")
        try:
            return await self._bearer(credential, address)
        except ProblemError as error:
            guessed = error.problem.status == 401
            if guessed and not self._guesses.take(address, _GUESSES, time.monotonic()):
                raise problem(
                    TOO_MANY_REQUESTS, "too many wrong tokens from this address"
                ) from None
            raise

    async def _bearer(self, credential: str, address: str) -> Principal:
        match = _TOKEN.fullmatch(credential)
        if match is not None:
            return await self._by_token(match.group(1), credential, address)
        if self._jwts is not None and credential.count(".") == 2:
            user, role, issuer = await self._jwts.read(credential)
            return Principal(user, role, (), f"jwt {issuer}", address)
        raise _wrong()

    async def _by_token(self, prefix: str, token: str, address: str) -> Principal:
        digest = hashlib.blake2b(token.encode(), digest_size=32).hexdigest()
        try:
            data = await self._ask(prefix, digest)
        except RefusedError:
            raise _wrong() from None
        role = str(data["role"])
        if role not in PRINCIPALS or not data.get("user"):
            raise _wrong()
        rights = tuple(str(right) for right in data.get("rights") or ())
        return Principal(str(data["user"]), role, rights, f"token {prefix}", address)

    async def _is_open(self) -> bool:
        """Return whether the cluster has no tokens yet."""
        try:
            return bool((await self._ask("", "")).get("open"))
        except RefusedError as error:
            return error.code == UNKNOWN_OP  # masters that have no tokens at all

    async def _ask(self, prefix: str, digest: str) -> dict[str, Any]:
        now, key = time.monotonic(), (prefix, digest)
        until, asking = self._kept.get(key, (0.0, None))
        if asking is None or now >= until:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            args = {"prefix": prefix, "digest": digest}
            asking = asyncio.ensure_future(self._authenticate("authenticate", args))
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._kept[key] = (now + KEPT_S, asking)
        return await asyncio.shield(asking)


def local(address: str) -> Principal:
    """Return the principal of a gateway that only loopback can reach."""
    rights = ("code", "private", "shell")
    return Principal(LOCAL_NAME, KeyRole.OPERATOR, rights, "loopback", address)


def is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def _wrong() -> ProblemError:
    return problem(UNAUTHORIZED, "the token is not valid: unknown, revoked or expired")
