"""One running fetch: its attempt, what it waits for, the limits that are left; caps on starts.

Used by `pipeline`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.frontier.robots_place import robots_group
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Traits
from zcrawl.model.reasons.failure import TOTAL_TIMEOUT
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.shared_limits import Keys

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

    from zcrawl.worker.pipeline.capture import Recording
    from zcrawl.worker.pipeline.outgoing import Sending

LEAST_HOP_S: Final = 0.001

Clock = Callable[[], float]


class BlobWriter(Protocol):
    """Where bodies are kept; `blobs.folder` in a folder. May block: called in a thread."""

    def put(self, data: bytes) -> str: ...


class Fetching(msgspec.Struct):
    """One running fetch."""

    attempt: Attempt
    permitted_at: float
    task: asyncio.Task[None] | None = None
    permit: asyncio.Future[None] | None = None
    waited_s: float = 0.0  # for permits and rules: not counted against the timeout
    began: float = 0.0  # the clock of its timeout
    sending: Sending | None = None  # None: a plain GET
    recording: Recording | None = None  # of a run that captures
    sitemaps: tuple[str, ...] = ()  # that robots.txt names and nobody has reported yet
    address: str | None = None  # the only one to connect to; empty: to be found out
    groups: Keys = ()  # whose pace it was started at, beside its host's
    stored_traits: Traits | None = None  # what an earlier run knows of its page

    def is_paced_at(self, origin: str) -> bool:
        """Whether its requests may go there too, for a robots.txt that is there."""
        return robots_group(origin) in self.groups

    def used_s(self, now: float) -> float:
        """What counts against the timeout of its run."""
        return now - self.began - self.waited_s


class AtAddress:
    """An engine that finds its host at one address only: of jobs that limit addresses. Other
    hosts (a redirected robots.txt) are asked where they are."""

    def __init__(self, engine: Engine, url: str, address: str) -> None:
        self._engine, self._origin, self._address = engine, origin_of(url), address

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        return await self._engine.get(url, headers, self._at(url, limits))

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        return await self._engine.send(method, url, headers, body, self._at(url, limits))

    async def aclose(self) -> None:
        """The worker's engine is not this fetch's to close."""

    def _at(self, url: str, limits: HopLimits) -> HopLimits:
        if origin_of(url) != self._origin:
            return limits
        return msgspec.structs.replace(limits, address=self._address)


def at_address(fetch: Fetching, engine: Engine) -> Engine:
    if fetch.address is None:
        return engine
    return AtAddress(engine, fetch.attempt.assignment.url, fetch.address)


def rest_of(limits: HopLimits, used_s: float) -> HopLimits:
    """What is left for one more hop. FetchError: nothing."""
    rest = limits.total_s - used_s
    if rest <= LEAST_HOP_S:
        raise fetch_error(TOTAL_TIMEOUT, f"not done in {limits.total_s} s, redirects included")
    return msgspec.structs.replace(
        limits,
        total_s=rest,
        connect_s=min(limits.connect_s, rest),
        read_s=min(limits.read_s, rest),
    )


def limiter(most: float, per_s: float) -> AsyncLimiter:
    from aiolimiter import AsyncLimiter  # 14 ms of a start, and few workers have a cap

    return AsyncLimiter(most, per_s)
