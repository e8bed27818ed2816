"""Resolve the host names that a user typed, to decide which private addresses they open.

Used by the embedded master and by `zcrawl test`, which are on the operator's own machine, but not
by masters of a cluster. `fetch.guard` decides. Look-ups run in daemon threads, all within one time
limit; a name that is not resolved by then opens nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from zcrawl.errors import BadUrl
from zcrawl.fetch.guard import as_address, entries_for
from zcrawl.frontier.url import canonicalize, netloc_of
from zcrawl.mesh.messages import ClientRequest
from zcrawl.runtime.threads import in_daemon_thread

LOOK_UP_S: Final = 5.0  # for all names of a submission
AT_ONCE: Final = 32
MOST_TYPED: Final = 1_000  # URLs

LookUp = Callable[[str], Awaitable[list[str]]]


async def look_up(name: str) -> list[str]:
    """Return the addresses of a name by the system's resolver; empty if there are none."""

    def ask() -> list[str]:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return list(dict.fromkeys(str(info[4][0]) for info in answers))

    return await in_daemon_thread(ask, "zcrawl-look-up")


class Vouching:
    """Find the private hosts that typed URLs open; names that open nothing are logged."""

    def __init__(self, log: Callable[[str, str], None], look_up: LookUp = look_up) -> None:
        self._log = log
        self._look_up = look_up

    async def prepare(self, request: ClientRequest) -> ClientRequest:
        """Return the submission with `opened`; a value from the client is replaced."""
        typed = request.args.get("vouched")
        urls = [url for url in typed if isinstance(url, str)] if isinstance(typed, list) else []
        args: dict[str, Any] = {**request.args, "opened": await self.opened_by(urls)}
        return msgspec.structs.replace(request, args=args)

    async def opened_by(self, urls: Iterable[str]) -> list[str]:
        """Return the entries of `fetch.private_hosts` for these URLs."""
        netlocs: dict[str, None] = {}
        for url in list(urls)[:MOST_TYPED]:
            try:
                netlocs[netloc_of(canonicalize(url))] = None
            except BadUrl:
                continue  # it is refused as a seed, by its name
        names = {netloc.rpartition(":")[0] for netloc in netlocs}
        addresses = await self._addresses(name for name in names if as_address(name) is None)
        opened: list[str] = []
        for netloc in netlocs:
            name = netloc.rpartition(":")[0]
            host_addresses = addresses.get(name, [])
            entries = entries_for(netloc, host_addresses)
            opened += entries
            if not entries and any(entries_for(netloc, [address]) for address in host_addresses):
                self._tell(
                    netloc, f"has public and private addresses ({', '.join(host_addresses)})"
                )
            elif not host_addresses and as_address(name) is None:
                self._tell(netloc, f"has no address, or none was found in {LOOK_UP_S:.0f} s")
        return opened

    def _tell(self, netloc: str, why: str) -> None:
        self._log(
            "not_vouched",
            f"{netloc} {why}: its private addresses stay closed; to crawl them, add it to "
            "fetch.private_hosts or use --allow-private",
        )

    async def _addresses(self, names: Iterable[str]) -> dict[str, list[str]]:
        free = asyncio.Semaphore(AT_ONCE)
        addresses: dict[str, list[str]] = {}

        async def ask(name: str) -> None:
            async with free:
                addresses[name] = await self._look_up(name.rstrip("."))

        tasks = [asyncio.ensure_future(ask(name)) for name in names]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LOOK_UP_S)
            for task in late:
                task.cancel()
        return addresses
