"""Return only allowed addresses to aiohttp, through its public resolver hook.

`wire` sets the context of the current request (`guard`, `pinned`), and aiohttp calls
`GuardedResolver` before each connection to a name. It does not call it for a literal address:
`wire` checks those with `allowed`. `self_test` proves that aiohttp calls the resolver.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from collections.abc import Iterable
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from zcrawl.fetch.guard import STRICT, Guard, as_address
from zcrawl.frontier.domains import only_at

REMEMBERED_S: Final = 60.0  # how long the result of a look-up is used
_MAX_NAMES: Final = 10_000

# The guard of the current request.
guard: contextvars.ContextVar[Guard] = contextvars.ContextVar("zcrawl_guard", default=STRICT)
# The only address that the current request may use; empty: not known yet.
pinned: contextvars.ContextVar[str | None] = contextvars.ContextVar("zcrawl_pinned", default=None)


def allowed(host: str, port: int, addresses: Iterable[str]) -> list[str]:
    """Return the addresses of `host:port` that the current request may use.

    Raises BlockedAddress when the guard refuses all of them, AddressMoved when the pinned one is
    not among them.
    """
    good = guard.get().pick(host, port, addresses)
    address = pinned.get()
    return good if address is None else only_at(address, host, good)


class GuardedResolver(AbstractResolver):
    """Looks names up with `inner`, and returns only addresses that the current request may use.

    Results are cached here and not by aiohttp, which would give the addresses of one run to the
    next run. The caller closes `inner`; default: the resolver of the system.
    """

    def __init__(self, inner: AbstractResolver | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._inner = inner or DefaultResolver()
        self._owns_inner = inner is None
        self._remembered: dict[tuple[str, int], tuple[float, list[ResolveResult]]] = {}  # until
        self._under_way: dict[tuple[str, int], asyncio.Future[list[ResolveResult]]] = {}
        self._resolved = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results = await self._look_up(host, port, family)
        good = set(allowed(host, port, [result["host"] for result in results]))
        results = [result for result in results if result["host"] in good]
        if not results:
            raise OSError(None, f"{host} has no address")
        self._resolved += 1
        first = self._resolved % len(results)  # connections are spread over them
        return results[first:] + results[:first]

    async def check_all(self, host: str, port: int) -> None:
        """Raise BlockedAddress if any address of the name is refused, because a proxy that connects
        by name may use any of them."""
        policy = guard.get()
        for result in await self._look_up(host, port, socket.AF_UNSPEC):
            policy.pick(host, port, [result["host"]])

    async def close(self) -> None:
        for look_up in list(self._under_way.values()):
            look_up.cancel()
        if self._owns_inner:
            await self._inner.close()

    async def _look_up(
        self, host: str, port: int, family: socket.AddressFamily
    ) -> list[ResolveResult]:
        if as_address(host) is not None:
            return [_literal(host, port)]
        key = (host, port)
        remembered = self._remembered.get(key)
        if remembered is not None and remembered[0] > self._loop.time():
            return remembered[1]
        look_up = self._under_way.get(key)
        if look_up is None:  # concurrent requests for a name share one look-up
            look_up = asyncio.ensure_future(self._inner.resolve(host, port, family))
            self._under_way[key] = look_up
            look_up.add_done_callback(lambda done: self._remember(key, done))
        return await asyncio.shield(look_up)

    def _remember(self, key: tuple[str, int], look_up: asyncio.Future[list[ResolveResult]]) -> None:
        del self._under_way[key]
        # A failure is not cached.
        if not look_up.cancelled() and look_up.exception() is None and look_up.result():
            if len(self._remembered) >= _MAX_NAMES:
                self._remembered.clear()
            self._remembered[key] = (self._loop.time() + REMEMBERED_S, look_up.result())


def _literal(address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=address, host=address, port=port, family=family, proto=0, flags=0)
