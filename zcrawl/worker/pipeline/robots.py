"""Cache the robots.txt of each origin: fetched once while it is fresh.

Called by `pipeline` before a page is fetched. Pages that need the same
file wait together. A fetched file is reported with the next result of its host, stored, and sent to
the next owner of the host with its grant (`learn`), so that it is not fetched again after a restart
or by another worker.

If robots.txt answers 5xx or 429, it is tried again with growing pauses, in which nothing of the
origin is fetched. After `robots_patience` it counts as "disallow everything" for ten minutes.
Redirects are followed, also to other origins (RFC 9309), but only by a page that also keeps the
pace of that origin. Until then the redirect is reported and the page is postponed
(`frontier.robots_place`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from zcrawl.errors import BlockedAddress, FetchError, RetryClass
from zcrawl.fetch.headers import header_of
from zcrawl.fetch.policy import REDIRECT_STATUSES, RedirectChain, fetch_error
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.robots import MAX_ROBOTS_BYTES, RobotsRules, robots_url
from zcrawl.frontier.robots_place import MAX_REDIRECTS, RobotsWay, is_way, unpack_way
from zcrawl.frontier.url import DEFAULT, origin_of
from zcrawl.model.host import RobotsFile
from zcrawl.model.reasons.failure import (
    ADDRESS_MOVED,
    BAD_ENCODING,
    BLOCKED_ADDRESS,
    ENGINE,
    PROTOCOL,
    PROXIES_DOWN,
    ROBOTS_ELSEWHERE,
    TOO_LARGE,
)
from zcrawl.model.reasons.skip import ROBOTS_UNAVAILABLE

RULES_KEPT_S: Final = 3_600.0
DISALLOW_KEPT_S: Final = 600.0  # after the patience for a failing robots.txt was over
FIRST_WAIT_S: Final = 2.0
MOST_WAIT_S: Final = 30.0
FAILURE_KEPT_S: Final = 2.0  # of a host that did not answer at all
MOST_ORIGINS: Final = 10_000
WAY_KEPT_S: Final = 600.0  # a redirect to another origin; then start again at the first URL
MAX_BYTES: Final = 10_000_000  # 500 KiB of it are read as rules
MOST_SHARED_BYTES: Final = 65_536  # compressed; a longer one is fetched by each owner
PARSED_IN_LOOP: Final = 16_384  # bytes; a file that is written to be slow takes 1 us for each
NOT_THE_PAGES_FATE: Final = frozenset((TOO_LARGE, BAD_ENCODING, PROTOCOL, ENGINE))
# What failed one run, by its own guard or proxies, need not fail another: not shared, not kept.
_OF_THE_RUN: Final = frozenset((BLOCKED_ADDRESS, PROXIES_DOWN, ADDRESS_MOVED, ROBOTS_ELSEWHERE))


class _Answer(msgspec.Struct, frozen=True):
    status: int  # 0: nothing that could be read
    body: bytes

    @property
    def tells_nothing(self) -> bool:
        return self.status == 429 or self.status >= 500 or self.status < 200


class _Entry(msgspec.Struct):
    answer: asyncio.Future[_Answer]
    until: float = float("inf")
    failing_since: float | None = None
    tries: int = 0  # failed tries in a row
    given_up: bool = False
    rules: dict[str, asyncio.Future[RobotsRules]] = msgspec.field(default_factory=dict)


class RobotsCache:
    def __init__(self, now: Callable[[], float]) -> None:
        self.unreported: dict[str, RobotsFile] = {}  # origin → what was fetched here
        self._now = now
        self._entries: dict[str, _Entry] = {}
        self._ways: dict[str, tuple[float, RobotsWay]] = {}  # origin → fresh until, its way

    def learn(self, origin: str, file: RobotsFile) -> None:
        """Keep a robots.txt that another worker fetched and that came with the host's grant."""
        entry = self._entries.get(origin)
        if entry is not None and (not entry.answer.done() or entry.until > self._now()):
            return
        if is_way(file):
            if (way := unpack_way(file)) is not None:
                self._ways[origin] = (self._now() + file.lasts_s, way)
            return
        try:
            body = zlib.decompressobj().decompress(file.body, MAX_ROBOTS_BYTES + 1)
        except zlib.error:
            return  # it is fetched again
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        future.set_result(_Answer(file.status, body))
        self._make_room()
        self._entries[origin] = _Entry(future, self._now() + file.lasts_s)
        self._entries[origin].given_up = future.result().tells_nothing

    async def cached_rules(self, origin: str, user_agent: str) -> RobotsRules | None:
        """Return the rules if robots.txt is in memory."""
        entry = self._fresh(origin)
        return None if entry is None else await _rules(entry, user_agent)

    def _fresh(self, origin: str) -> _Entry | None:
        entry = self._entries.get(origin)
        if entry is None or not entry.answer.done() or entry.until <= self._now():
            return None
        return None if entry.answer.exception() is not None else entry

    def wait_s(self, origin: str) -> float | None:
        """Return how long to wait for an unavailable robots.txt; None: no longer."""
        entry = self._entries.get(origin)
        if entry is None:
            return 0.0
        return None if entry.given_up else max(0.0, entry.until - self._now())

    async def get(
        self,
        origin: str,
        user_agent: str,
        engine: Engine,
        limits: HopLimits,
        next_hop: Callable[[], Awaitable[None]],
        patience_s: float,
        may_visit: Callable[[str], bool],
    ) -> RobotsRules:
        """Return the rules; FetchError when the host does not answer.

        `next_hop` waits for the host's pace; the first request uses the permit of the page.
        `may_visit` returns whether the page also keeps the pace of another origin.
        """
        before = self._entries.get(origin)
        if before is not None and (not before.answer.done() or before.until > self._now()):
            try:
                await asyncio.shield(before.answer)
                return await _rules(before, user_agent)
            except FetchError as error:
                if error.code not in _OF_THE_RUN:
                    raise
        self._make_room()
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        entry = self._entries[origin] = _Entry(future)
        if before is not None and not before.given_up:
            entry.failing_since, entry.tries = before.failing_since, before.tries
        try:
            answer = await self._fetch(origin, user_agent, engine, limits, next_hop, may_visit)
        except BaseException as error:
            # Cancelled or failed: waiting pages get an error, and the next page tries again.
            failure = (
                error
                if isinstance(error, FetchError)
                else FetchError(
                    "the robots.txt request was cut off",
                    code=ROBOTS_UNAVAILABLE,
                    retry=RetryClass.TRANSIENT,
                )
            )
            own = isinstance(error, FetchError) and error.code in _OF_THE_RUN
            kept_s = 0.0 if own else FAILURE_KEPT_S
            entry.until = self._now() + kept_s
            future.set_exception(failure)
            future.exception()  # mark as retrieved, because maybe no page waits
            raise
        self._keep(origin, entry, answer, patience_s)
        future.set_result(answer)
        return await _rules(entry, user_agent)

    def _keep(self, origin: str, entry: _Entry, answer: _Answer, patience_s: float) -> None:
        now = self._now()
        kept_s = RULES_KEPT_S
        if answer.tells_nothing:
            entry.failing_since = now if entry.failing_since is None else entry.failing_since
            patience_ends = entry.failing_since + patience_s
            entry.given_up = now >= patience_ends
            wait_s = min(MOST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(entry.tries, 10))
            entry.tries += 1
            kept_s = min(wait_s, max(0.1, patience_ends - now))
            if entry.given_up:
                kept_s = DISALLOW_KEPT_S
        else:
            entry.failing_since, entry.tries = None, 0
        entry.until = now + kept_s
        body = zlib.compress(answer.body[:MAX_ROBOTS_BYTES])
        if (entry.given_up or not answer.tells_nothing) and len(body) <= MOST_SHARED_BYTES:
            self.unreported[origin] = RobotsFile(answer.status, body, kept_s)

    async def _fetch(
        self,
        origin: str,
        user_agent: str,
        engine: Engine,
        limits: HopLimits,
        next_hop: Callable[[], Awaitable[None]],
        may_visit: Callable[[str], bool],
    ) -> _Answer:
        until, known_way = self._ways.pop(origin, (0.0, None))
        way = [robots_url(origin)]
        if known_way is not None and until > self._now():
            way = [*known_way.urls]
        chain = RedirectChain(way[0], MAX_REDIRECTS, DEFAULT)
        limits = msgspec.structs.replace(limits, max_bytes=MAX_BYTES)
        while len(way) <= MAX_REDIRECTS + 1:
            url, place = way[-1], origin_of(way[-1])
            if place != origin and (entry := self._fresh(place)) and url == robots_url(place):
                return entry.answer.result()
            try:
                if place != origin and not may_visit(place):
                    limits.guard.check(url)
                    self._report_way(origin, RobotsWay(tuple(way)))
                    raise fetch_error(ROBOTS_ELSEWHERE, f"{way[0]} leads to {url}")
                response = await engine.get(url, {"User-Agent": user_agent}, limits)
            except BlockedAddress:
                if url == robots_url(origin):
                    raise
                break  # its target is out of bounds: no rules
            except FetchError as error:
                if error.code in NOT_THE_PAGES_FATE:
                    return _Answer(0, b"")
                raise
            if response.status_code not in REDIRECT_STATUSES:
                return _Answer(response.status_code, response.content)
            try:
                step = chain.next_hop(url, header_of(response, b"location"))
            except FetchError:  # a loop, too many redirects or a bad target: no rules
                break
            if step.url in way:
                break
            way.append(step.url)
            if origin_of(step.url) == origin or may_visit(origin_of(step.url)):
                await next_hop()
        return _Answer(404, b"")

    def _report_way(self, origin: str, way: RobotsWay) -> None:
        """Report a redirect to another origin; the leader must know it before it is followed."""
        if len(self._ways) >= MOST_ORIGINS:
            self._ways.clear()
        self._ways[origin] = (self._now() + WAY_KEPT_S, way)
        self.unreported[origin] = way.pack(WAY_KEPT_S)

    def _make_room(self) -> None:
        if len(self._entries) < MOST_ORIGINS:
            return
        now = self._now()
        keep = {k: e for k, e in self._entries.items() if not e.answer.done() or e.until > now}
        if len(keep) >= MOST_ORIGINS:  # all fresh: forget the older half
            keep = dict(list(keep.items())[len(keep) // 2 :])
        self._entries = keep


async def _rules(entry: _Entry, user_agent: str) -> RobotsRules:
    """Parse the file once for each user agent; a long one in a thread, so that the loop goes on."""
    rules = entry.rules.get(user_agent)
    if rules is None:
        answer, loop = entry.answer.result(), asyncio.get_running_loop()
        arguments = answer.status, answer.body, user_agent
        if len(answer.body) > PARSED_IN_LOOP:
            rules = loop.run_in_executor(None, RobotsRules.parse, *arguments)
        else:
            rules = loop.create_future()
            rules.set_result(RobotsRules.parse(*arguments))
        entry.rules[user_agent] = rules
    return await asyncio.shield(rules)
