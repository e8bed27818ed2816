"""The robots.txt of each origin, as this worker knows it: fetched once an hour, once at a time.

Called by `pipeline_loop` before a page is fetched. Who waits for an answer waits together. Rules
that could not be had are asked for again soon; until then nothing of the origin is fetched.
Redirects are followed, also to other origins, as RFC 9309 wants: rules that a site moved are
rules, and that request to another host happens once an hour.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final

from zcrawl.errors import BlockedAddress, FetchError, RetryClass
from zcrawl.fetch.policy import REDIRECT_STATUSES, HandOver, RedirectChain
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.robots import RobotsRules, robots_url
from zcrawl.frontier.url import DEFAULT

RULES_KEPT_S: Final = 3_600.0
FAILURE_KEPT_S: Final = 2.0
MOST_ORIGINS: Final = 10_000
MAX_REDIRECTS: Final = 5
MAX_BYTES: Final = 2_000_000  # 500 KB of it are read as rules
# What failed one run, by its own guard or proxies, need not fail another: not shared, not kept.
_OF_THE_RUN: Final = frozenset(("blocked_address", "proxies_down"))


@dataclasses.dataclass(slots=True)
class _Entry:
    answer: asyncio.Future[RobotsRules]
    until: float


class RobotsCache:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: dict[tuple[str, str], _Entry] = {}

    def known(self, origin: str, user_agent: str) -> RobotsRules | None:
        """The rules, if nobody has to wait for them."""
        entry = self._entries.get((origin, user_agent))
        if entry is None or not entry.answer.done() or entry.until <= self._now():
            return None
        return None if entry.answer.exception() is not None else entry.answer.result()

    async def get(
        self,
        origin: str,
        user_agent: str,
        engine: Engine,
        limits: HopLimits,
        next_hop: Callable[[], Awaitable[None]],
    ) -> RobotsRules:
        """The rules; FetchError when nobody answers. `next_hop` waits for the host's pace; the
        first request goes without, on the permit of the page that asks."""
        key = (origin, user_agent)
        entry = self._entries.get(key)
        if entry is not None and (not entry.answer.done() or entry.until > self._now()):
            try:
                return await asyncio.shield(entry.answer)
            except FetchError as error:
                if error.code not in _OF_THE_RUN:
                    raise
        if len(self._entries) >= MOST_ORIGINS:
            self._drop_old()
        future: asyncio.Future[RobotsRules] = asyncio.get_running_loop().create_future()
        entry = self._entries[key] = _Entry(future, float("inf"))
        try:
            rules = await self._fetch(origin, user_agent, engine, limits, next_hop)
        except BaseException as error:
            # Cancelled or failed: the others who wait get an error, and the next one asks again.
            failure = (
                error
                if isinstance(error, FetchError)
                else FetchError(
                    "the robots.txt request was cut off",
                    code="robots_unavailable",
                    retry=RetryClass.TRANSIENT,
                )
            )
            own = isinstance(error, FetchError) and error.code in _OF_THE_RUN
            kept_s = 0.0 if own else FAILURE_KEPT_S
            entry.until = self._now() + kept_s
            future.set_exception(failure)
            future.exception()  # retrieved: nobody else may be waiting
            raise
        entry.until = self._now() + (FAILURE_KEPT_S if rules.retry_later else RULES_KEPT_S)
        future.set_result(rules)
        return rules

    async def _fetch(
        self,
        origin: str,
        user_agent: str,
        engine: Engine,
        limits: HopLimits,
        next_hop: Callable[[], Awaitable[None]],
    ) -> RobotsRules:
        url = robots_url(origin)
        chain = RedirectChain(url, MAX_REDIRECTS, DEFAULT)
        limits = dataclasses.replace(limits, max_bytes=MAX_BYTES)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                response = await engine.get(url, {"User-Agent": user_agent}, limits)
            except BlockedAddress:
                if url == robots_url(origin):
                    raise
                break  # rules that lie where nobody may look are no rules
            if response.status_code not in REDIRECT_STATUSES:
                return RobotsRules.parse(response.status_code, response.content, user_agent)
            try:
                step = chain.next_hop(url, response.headers.get("location"))
            except FetchError:  # a loop, too many, or to nowhere: there are no rules
                break
            url = step.url
            if not isinstance(step, HandOver):
                await next_hop()
        return RobotsRules.parse(404, b"", user_agent)

    def _drop_old(self) -> None:
        now = self._now()
        keep = {k: e for k, e in self._entries.items() if not e.answer.done() or e.until > now}
        if len(keep) >= MOST_ORIGINS:  # all fresh: forget the older half
            keep = dict(list(keep.items())[len(keep) // 2 :])
        self._entries = keep
