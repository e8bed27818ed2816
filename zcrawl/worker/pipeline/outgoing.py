"""One request that is more than a plain GET: a spider's, or one that passes middlewares.

Called by the pipeline; a page of a job that uses neither never comes here. If a
middleware raises, only its page fails.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import FetchError, PageSkipped, RetryClass
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.fetch.wire.response import as_httpx
from zcrawl.frontier.extra import Extra, decode, encode, redirect_key, request_key
from zcrawl.frontier.url import CanonicalRules
from zcrawl.mesh.messages import Assignment, ExtractionReport
from zcrawl.model.reasons.failure import MIDDLEWARE_ERROR
from zcrawl.plugins import Drop, Middleware, Outgoing, PageFacts, Skip
from zcrawl.text.raised import raised_text
from zcrawl.worker.results.attempt import Attempt

MOST_REASON: Final = 80
# Headers that must not be sent to another host after a redirect.
_PRIVATE: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_REWRITES: Final = frozenset({301, 302, 303})  # a POST becomes a GET, as in every browser


class Sending:
    def __init__(
        self,
        assignment: Assignment,
        headers: dict[str, str],
        rules: CanonicalRules,
        middlewares: Sequence[tuple[str, Middleware]],
        most_s: float = 30.0,
    ) -> None:
        """`rules` are the run's. `most_s` limits how long a middleware may wait."""
        self._rules = rules
        self._most_s = most_s
        self.extra: Extra = decode(assignment.extra)
        self._assignment = assignment
        self._headers = {**headers, **self.extra.headers}
        self._middlewares = middlewares
        self.out: Outgoing | None = None  # the last request with its answer
        self.answer: Response | None = None

    async def send(
        self, engine: Engine, url: str, limits: HopLimits, condition: Mapping[str, str]
    ) -> Response:
        extra = self.extra
        headers = {**self._headers, **condition}
        out = Outgoing(url, extra.method, headers, extra.body, extra.meta, self._assignment.attempt)
        for name, middleware in self._middlewares:
            await self._called(name, middleware.before_request, out)
        if out.method == "GET" and not out.body:
            response = await engine.get(url, out.headers, limits)
        else:
            response = await engine.send(out.method, url, out.headers, out.body, limits)
        self.out, self.answer = out, response
        for name, middleware in reversed(self._middlewares):
            response = as_httpx(response)
            changed = await self._called(name, middleware.after_response, out, response)
            response = response if changed is None else changed
        return response

    def redirected(self, status: int) -> None:
        """Follow a redirect with the next request of the same fetch."""
        self.extra = _onward(self.extra, status)

    def hand_over(self, attempt: Attempt, status: int) -> Attempt:
        """Keep the request's handler and metadata in a redirect to another host."""
        if attempt.handover is None or self.extra.is_plain:
            return attempt
        url = attempt.handover[0]
        onward = _onward(self.extra, status)
        headers = {k: v for k, v in onward.headers.items() if k.lower() not in _PRIVATE}
        onward = msgspec.structs.replace(onward, headers=headers, redirected=True)
        own_key = request_key(self._assignment.url, decode(self._assignment.extra), self._rules)
        key = redirect_key(url, onward, own_key, self._rules)
        attempt.handover = None
        attempt.requests = [(url, key, self._assignment.prio, encode(onward))]
        return attempt

    async def change_items(self, attempt: Attempt) -> None:
        """Pass the items through the middlewares.

        Dropped items are counted by middleware and reason, like items that break a schema. Their
        contents are not kept, because that may be why they were dropped.
        """
        page = attempt.page
        if not self._middlewares or not attempt.items or page is None:
            return
        facts = PageFacts(
            self._assignment.url,
            page.final_url,
            attempt.status,
            self._assignment.depth,
            page.fetched_at,
        )
        kept = []
        dropped: Counter[str] = Counter()
        for data in attempt.items:
            try:
                kept.append(_encoded(await self._pass_item(msgspec.json.decode(data), facts)))
            except Drop as drop:
                dropped[drop.reason] += 1
        attempt.items = kept
        if dropped:
            before = (attempt.extracted or ExtractionReport()).reasons
            attempt.change_extracted(reasons={**before, **dropped})

    async def _pass_item(self, item: dict[str, Any], facts: PageFacts) -> dict[str, Any]:
        """Return the item after the last middleware. Drop names the middleware that dropped it."""
        for name, middleware in self._middlewares:
            try:
                changed = await self._called(
                    name, middleware.before_item, item, facts, may_drop=True
                )
            except Drop as drop:
                reason = str(drop.reason)[:MOST_REASON]
                raise Drop(f"dropped by middleware {name}: {reason}") from None
            if changed is None:
                raise Drop(f"dropped by middleware {name}")
            item = changed
        return item

    async def _called(self, name: str, call: Any, *arguments: Any, may_drop: bool = False) -> Any:
        try:
            result = call(*arguments)
            if not inspect.isawaitable(result):
                return result
            async with asyncio.timeout(self._most_s):
                return await result
        except Skip as skip:
            raise PageSkipped(f"middleware {name}", code=skip.reason[:MOST_REASON]) from None
        except FetchError:
            raise
        except Drop as drop:
            if may_drop:
                raise
            text = f"{name}: Drop({drop.reason!r}) is for before_item; Skip skips a whole page"
            raise _failed(text) from drop
        except (Exception, SystemExit) as error:  # an exit would be the whole worker's
            raise _failed(f"{name}: {raised_text(error)}") from error


def _onward(extra: Extra, status: int) -> Extra:
    if status in _REWRITES and extra.method not in ("GET", "HEAD"):
        return msgspec.structs.replace(extra, method="GET", body=b"")
    return extra


def _encoded(item: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(item)
    if not data.startswith(b"{"):
        raise _failed("an item must stay a JSON object")
    return data


def _failed(text: str) -> FetchError:
    return FetchError(text, code=MIDDLEWARE_ERROR, retry=RetryClass.PERMANENT)
