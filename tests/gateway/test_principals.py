"""Who sends a request: tokens by a fake of `authenticate`, and JWT with real keys."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from zcrawl.config import GatewayJwtConfig
from zcrawl.errors import RefusedError
from zcrawl.gateway.jwt_tokens import JwtTokens
from zcrawl.gateway.principals import Principals
from zcrawl.gateway.problem import ProblemError

TOKEN = "zc_ab12cd34_" + "x" * 43
SECRET = b"s" * 40
ISSUER, AUDIENCE = "https://login.example", "zcrawl"


class Masters:
    """Answers `authenticate` as masters with one token do."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.open = False

    async def authenticate(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(args)
        if args["prefix"] == "" and self.open:
            return {"open": True}
        if args["prefix"] != "zc_ab12cd34":
            raise RefusedError("bad token", code="bad_token")
        return {"user": "ann", "role": "submitter", "rights": ["code"]}


async def test_a_token_becomes_its_user_and_never_leaves_as_it_is() -> None:
    """The masters get a digest, once a second, and say who it is."""
    masters = Masters()
    principals = Principals(masters.authenticate, None)
    for _ in range(5):
        principal = await principals.find(f"Bearer {TOKEN}", "192.0.2.1")
    assert (principal.name, principal.role, principal.rights) == ("ann", "submitter", ("code",))
    assert principal.through == "token zc_ab12cd34"
    assert len(masters.requests) == 1
    assert TOKEN not in json.dumps(masters.requests)


@pytest.mark.parametrize(
    "header",
    ["", "Basic YQ==", "Bearer ", "Bearer zc_short_x", f"Bearer {TOKEN.replace('ab', 'zz')}"],
)
async def test_what_is_no_valid_token_is_refused(header: str) -> None:
    """Also from loopback, as soon as a token exists."""
    principals = Principals(Masters().authenticate, None)
    with pytest.raises(ProblemError) as raised:
        await principals.find(header, "127.0.0.1")
    assert raised.value.problem.status == 401


async def test_without_tokens_only_loopback_is_served() -> None:
    """As the user `local` with the role operator."""
    masters = Masters()
    masters.open = True
    principals = Principals(masters.authenticate, None)
    assert (await principals.find("", "127.0.0.1")).role == "operator"
    assert (await principals.find("", "::ffff:127.0.0.1")).name == "local"
    with pytest.raises(ProblemError):
        await principals.find("", "192.0.2.1")


async def test_guesses_are_limited_by_address() -> None:
    """Twenty wrong tokens, then 429."""
    principals = Principals(Masters().authenticate, None)
    statuses = []
    for _ in range(25):
        with pytest.raises(ProblemError) as raised:
            await principals.find("Bearer wrong", "192.0.2.1")
        statuses.append(raised.value.problem.status)
    assert statuses[0] == 401
    assert statuses[-1] == 429


def jwts(folder: Path, **changes: Any) -> JwtTokens:
    key = base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [{"kty": "oct", "kid": "a", "k": key}]}))
    fields = {"keys": str(keys), "issuer": ISSUER, "audience": AUDIENCE, "algorithms": ("HS256",)}
    return JwtTokens(GatewayJwtConfig(**(fields | changes)))


def signed(headers: dict[str, Any] | None = None, **changes: Any) -> str:
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "zcrawl_role": "viewer",
        "exp": time.time() + 60,
    }
    return jwt.encode(claims | changes, SECRET, "HS256", headers={"kid": "a"} | (headers or {}))


async def test_a_jwt_becomes_its_user_and_role(tmp_path: Path) -> None:
    """With 30 s of leeway."""
    tokens = jwts(tmp_path)
    assert await tokens.read(signed()) == ("ann", "viewer", ISSUER)
    assert (await tokens.read(signed(exp=time.time() - 10)))[0] == "ann"
    assert (await tokens.read(signed(zcrawl_role=["x", "operator"])))[1] == "operator"


@pytest.mark.parametrize(
    ("headers", "claims"),
    [
        ({}, {"iss": "https://other.example"}),
        ({}, {"aud": "other"}),
        ({}, {"exp": 1}),
        ({}, {"zcrawl_role": "master"}),
        ({}, {"sub": "a\nb"}),
        ({"kid": "../../etc/passwd"}, {}),
    ],
)
async def test_a_jwt_that_is_not_for_this_cluster_is_refused(
    tmp_path: Path, headers: dict[str, Any], claims: dict[str, Any]
) -> None:
    """Issuer, audience, time, role, name and kid each count."""
    with pytest.raises(ProblemError):
        await jwts(tmp_path).read(signed(headers, **claims))


async def test_algorithms_come_from_the_configuration(tmp_path: Path) -> None:
    """Neither `none`, nor an HMAC where only RS256 is allowed."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60}
    with pytest.raises(ProblemError):
        await jwts(tmp_path).read(jwt.encode(claims, "", "none", headers={"kid": "a"}))
    with pytest.raises(ProblemError):
        await jwts(tmp_path, algorithms=("RS256",)).read(signed())
