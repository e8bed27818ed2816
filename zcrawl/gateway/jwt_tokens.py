"""JSON Web Tokens: signature, issuer, audience and times are checked; a claim has the role.

Which algorithms count comes from the configuration alone. Each key of the JWKS has the one
algorithm of its type, so a public key never checks an HMAC. `kid` is looked up in a dictionary and
used for nothing else.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import msgspec

from zcrawl.config import GatewayJwtConfig
from zcrawl.errors import ConfigError, UnreachableError
from zcrawl.gateway.problem import ProblemError, problem
from zcrawl.mesh.roles import PRINCIPALS
from zcrawl.model.reasons.cluster import UNAUTHORIZED

ALGORITHMS: Final = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}  # by the type of the key
LEEWAY_S: Final = 30
KEYS_S: Final = 300.0  # how long keys of a URL count
LOOK_S: Final = 10.0  # a file, and a URL after a failure or an unknown kid, are read this often
SECRET_LEAST: Final = 32  # bytes of an HMAC key
MOST_NAME: Final = 100


class JwtTokens:
    def __init__(self, config: GatewayJwtConfig) -> None:
        """ConfigError if the section is incomplete."""
        self._config = config
        known = set(ALGORITHMS.values())
        wrong = [name for name in config.algorithms if name not in known]
        if wrong or not config.algorithms:
            raise ConfigError(
                f"gateway.jwt.algorithms has {', '.join(wrong) or 'nothing'}; "
                f"use some of {', '.join(sorted(known))}"
            )
        if not config.issuer or not config.audience:
            raise ConfigError("gateway.jwt needs issuer and audience, or any token would count")
        self._is_url = config.keys.startswith("https://")
        if "://" in config.keys and not self._is_url:
            raise ConfigError("gateway.jwt.keys must be a file or an https URL")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at = float("-inf")

    async def read(self, token: str) -> tuple[str, str, str]:
        """Return user, role and issuer; ProblemError if the token does not count."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self._config.algorithms:
                raise _refused("its algorithm is not allowed")
            key = await self._key(header.get("kid"), str(algorithm))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[str(algorithm)],
                issuer=self._config.issuer,
                audience=self._config.audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", self._config.user_claim]},
            )
        except jwt.PyJWTError as error:
            raise _refused(str(error)) from None
        return self._user(claims), self._role(claims), self._config.issuer

    def _user(self, claims: dict[str, Any]) -> str:
        user = claims.get(self._config.user_claim)
        if not isinstance(user, str) or not 0 < len(user) <= MOST_NAME or not user.isprintable():
            raise _refused(f"its claim {self._config.user_claim} is no name")
        return user

    def _role(self, claims: dict[str, Any]) -> str:
        claim = claims.get(self._config.role_claim)
        named = claim if isinstance(claim, list) else [claim]
        for role in reversed(PRINCIPALS):
            if role in named:
                return role
        raise _refused(f"its claim {self._config.role_claim} has no role of zcrawl")

    async def _key(self, kid: object, algorithm: str) -> jwt.PyJWK:
        """Return the key of this name, or the only one of the algorithm."""
        now = time.monotonic()
        if now - self._read_at > (KEYS_S if self._is_url else LOOK_S):
            await self._load(now)
        key = self._find(kid, algorithm)
        if key is None and now - self._read_at > LOOK_S:  # the issuer may have a new one
            await self._load(now)
            key = self._find(kid, algorithm)
        if key is None:
            raise _refused("no key of the configuration fits")
        return key

    def _find(self, kid: object, algorithm: str) -> jwt.PyJWK | None:
        if isinstance(kid, str):
            named = self._keys.get(kid)
            fits = named is not None and ALGORITHMS.get(named.key_type or "") == algorithm
            return named if fits else None
        fitting = [
            key for key in self._keys.values() if ALGORITHMS.get(key.key_type or "") == algorithm
        ]
        return fitting[0] if kid is None and len(fitting) == 1 else None

    async def _load(self, now: float) -> None:
        self._read_at = now
        try:
            self._keys = read_keys(await self._text(), secrets=not self._is_url)
        except (OSError, httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            if not self._keys:
                raise UnreachableError(f"the keys for JWT cannot be read: {error}") from None

    async def _text(self) -> bytes:
        if not self._is_url:
            return read_file(self._config.keys)
        async with httpx.AsyncClient(timeout=5.0, follow_redirects=False) as client:
            reply = await client.get(self._config.keys)
            reply.raise_for_status()
            return reply.content


def read_file(name: str) -> bytes:
    return Path(name).read_bytes()


def read_keys(text: bytes, *, secrets: bool) -> dict[str, jwt.PyJWK]:
    """Return the keys of a JWKS by their `kid`. `secrets`: HMAC keys count too."""
    table = msgspec.json.decode(text)
    entries = table.get("keys") if isinstance(table, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is not a JWKS: it has no list `keys`")
    keys: dict[str, jwt.PyJWK] = {}
    for number, entry in enumerate(entries):
        kind = entry.get("kty") if isinstance(entry, dict) else None
        if kind not in ALGORITHMS or (kind == "oct" and not secrets):
            continue
        key = jwt.PyJWK(entry, algorithm=ALGORITHMS[kind])
        if kind == "oct" and len(key.key) < SECRET_LEAST:
            raise ValueError(f"an HMAC key is shorter than {SECRET_LEAST} bytes")
        keys[str(entry.get("kid", f"#{number}"))] = key
    return keys


def _refused(why: str) -> ProblemError:
    return problem(UNAUTHORIZED, f"the token is not valid: {why}")
