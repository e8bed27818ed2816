"""Prove that aiohttp still calls the address guard, before the first request that needs it.

Called by `wire` once for each engine. Both hooks belong to aiohttp (the resolver, and `send` of the
request class): a version that no longer calls one of them would silently remove a check. So a
server socket on loopback is the forbidden address, and a session with the strict guard tries to
reach it. If that session does not refuse, the engine refuses all requests.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from zcrawl.errors import BlockedAddress, FetchError
from zcrawl.fetch.general.connections import max_bytes, socks
from zcrawl.fetch.general.resolver import GuardedResolver, guard, pinned
from zcrawl.fetch.guard import STRICT
from zcrawl.fetch.policy import fetch_error
from zcrawl.model.reasons.failure import ENGINE

FORBIDDEN: Final = "127.0.0.1"
NAME: Final = "guard-test.invalid"
PATIENCE_S: Final = 5.0  # for a request that should be refused at once


async def prove_guard(new_session: Callable[[GuardedResolver], aiohttp.ClientSession]) -> None:
    """Raise FetchError `engine` unless sessions made by `new_session` are guarded.

    Run it in its own task, because it sets the context of the current request.
    """
    guard.set(STRICT)
    pinned.set(None)
    socks.set(None)
    max_bytes.set(1)
    try:
        server = socket.create_server((FORBIDDEN, 0))
    except OSError as error:
        raise _unproven(f"no server socket on {FORBIDDEN}: {error}") from error
    resolver = GuardedResolver(_Forbidden())
    session = new_session(resolver)
    try:
        server.setblocking(False)
        port = server.getsockname()[1]
        if not await _refuses(session, f"http://{NAME}:{port}/") or _was_connected(server):
            raise _unproven("it connects to a name without asking the resolver")
        # aiohttp does not call the resolver for an address, so this connects, and then the check of
        # the peer must refuse.
        if not await _refuses(session, f"http://{FORBIDDEN}:{port}/") or not _was_connected(server):
            raise _unproven("it sends a request without a check of the peer's address")
    finally:
        await session.close()
        await resolver.close()
        server.close()


async def _refuses(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=PATIENCE_S)):
            return False
    except BlockedAddress:
        return True
    except (aiohttp.ClientError, OSError):  # not refused by the guard
        return False


def _was_connected(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _unproven(why: str) -> FetchError:
    text = (
        f"the address guard does not work with aiohttp {aiohttp.__version__}: {why}. "
        "Requests with a body, a proxy or an archive are refused; install another aiohttp"
    )
    return fetch_error(ENGINE, text)


class _Forbidden(AbstractResolver):
    """A resolver that returns the forbidden address for every name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=FORBIDDEN, port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None: ...
