"""What all routes use: requests to the masters, the leader's snapshot and its events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from zcrawl.gateway.principals import Principal
from zcrawl.model.snapshot import PublishedSnapshot


class Happening(msgspec.Struct, frozen=True):
    """An event of the leader, as it was published."""

    name: str
    fields: dict[str, Any]


class Heard(msgspec.Struct, frozen=True):
    """What `watch` yields: a snapshot or an event; the leader that spoke, and its epoch."""

    leader: str
    snapshot: PublishedSnapshot | None = None
    event: Happening | None = None
    missed: int = 0  # messages that a slow reader did not get before this one


@runtime_checkable  # litestar looks
class Services(Protocol):
    """The line to the cluster. `gateway.mesh` implements it; tests replace it."""

    async def ask(
        self, principal: Principal, op: str, args: dict[str, Any], request_id: str = ""
    ) -> dict[str, Any]:
        """Return the answer to a request; RefusedError, UsageError or UnreachableError.

        A request with the same id acts once, and gets the same answer.
        """
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[Heard]]:
        """Yield what the leader publishes from now on. A reader that is too slow misses the
        oldest messages (`Heard.missed`), so memory is bounded."""
        ...

    @property
    def snapshot(self) -> PublishedSnapshot | None:
        """The newest snapshot, or None before the first one."""
        ...

    @property
    def silent_s(self) -> float:
        """Seconds since the leader's last snapshot."""
        ...

    async def principal(self, authorization: str, address: str) -> Principal:
        """Return who sends a request with this header; RefusedError otherwise."""
        ...
