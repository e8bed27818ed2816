"""Fetch and parse: from an assignment to its Result, one task per running fetch.

Called by `worker_loop`. Each request of a fetch goes at the host's pace: the first one with the
permit that came with the start, each further one (a redirect, a page after its robots.txt) with a
permit of its own. The clock of `fetch.timeout` stands still while a permit is waited for. Whatever
goes wrong becomes a Result; nothing that a page does ends the worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import httpx

from zcrawl.errors import FetchError, JobError, ParseError, RetryClass, ZcrawlError
from zcrawl.fetch.policy import Follow, Meaning, RedirectChain, classify_status, fetch_error
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Assignment, Page, Result, RunConfig
from zcrawl.parse.json_page import is_json
from zcrawl.parse.page import is_html
from zcrawl.worker import outcome
from zcrawl.worker.outcome import RunContext
from zcrawl.worker.pages import as_message, capture_of, page_facts
from zcrawl.worker.reading_loop import PageReader
from zcrawl.worker.robots_loop import RobotsCache
from zcrawl.worker.session_loop import Session, kept_cookies, needs_session

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

LEAST_HOP_S: Final = 0.001
_NETWORK: Final = ("dns", "connect", "connect_timeout", "tls", "reset")
# Failures of robots.txt that the page would meet too: told by their own names.
_SAME_FOR_PAGE: Final = frozenset(
    (*_NETWORK, "read_timeout", "total_timeout", "blocked_address", "proxies_down")
)


class Blobs(Protocol):
    """Where bodies are kept; `store.blobs_file` in a folder. May block: called in a thread."""

    def put(self, data: bytes) -> str: ...


Clock = Callable[[], float]
OnEnd = Callable[[int, Result], None]
OnHop = Callable[[int], None]
OnError = Callable[[str, str], None]


@dataclasses.dataclass(slots=True)
class _Fetch:
    """One running fetch."""

    one: Assignment
    task: asyncio.Task[None] | None = None
    permit: asyncio.Future[None] | None = None
    waited_s: float = 0.0  # for permits and rules: not counted against the timeout
    crawl_delay_s: float = 0.0


class Pipeline:
    """`start`, `permit` and `cancel` are called by the worker loop; `on_end` is its answer."""

    def __init__(
        self,
        engines: Callable[[str], Engine],
        clock: Clock,
        utc: Clock,
        *,
        on_end: OnEnd,
        on_hop: OnHop,
        on_error: OnError,
        blobs: Blobs | None = None,
        environ: Mapping[str, str] | None = None,
        rate: float = 0.0,
        bandwidth: float = 0.0,
    ) -> None:
        self._engines = engines
        self._clock, self._utc = clock, utc
        self._on_end, self._on_hop, self._on_error = on_end, on_hop, on_error
        self._blobs = blobs
        self._robots = RobotsCache(clock)
        self._runs: dict[int, RunContext] = {}
        self._sessions: dict[int, Session] = {}  # of runs that have one
        self._refused: dict[int, str] = {}  # runs that cannot be worked on: why
        self._environ = environ or {}
        self._reader = PageReader()
        self._fetches: dict[int, _Fetch] = {}
        self._starts = _limiter(1, 1 / rate) if rate > 0 else None
        self._bytes = _limiter(bandwidth, 1.0) if bandwidth > 0 else None

    # ------------------------------------------------------------ what the worker loop calls

    def adopt(self, config: RunConfig) -> None:
        try:
            context = self._runs[config.run] = RunContext(config, self._environ)
            if needs_session(context.spec) and config.run not in self._sessions:
                engine = self._engines(context.spec.fetch.engine)
                session = Session(
                    context.spec, engine, self._environ, self._clock, kept_cookies(config.cookies)
                )
                self._sessions[config.run] = session
        except JobError as error:  # its requests will fail with that code
            self._runs.pop(config.run, None)
            self._refused[config.run] = error.code
            self._on_error(error.code, str(error))

    def forget(self, run: int) -> None:
        for known in (self._runs, self._sessions, self._refused):
            known.pop(run, None)

    def start(self, one: Assignment) -> None:
        fetch = _Fetch(one)
        self._fetches[one.seq] = fetch
        fetch.task = asyncio.get_running_loop().create_task(self._run(fetch))

    def permit(self, seq: int) -> None:
        fetch = self._fetches.get(seq)
        if fetch is not None and fetch.permit is not None and not fetch.permit.done():
            fetch.permit.set_result(None)

    def cancel(self, seq: int) -> None:
        fetch = self._fetches.pop(seq, None)
        if fetch is not None and fetch.task is not None:
            fetch.task.cancel()

    async def close(self) -> None:
        tasks = [fetch.task for fetch in self._fetches.values() if fetch.task is not None]
        self._fetches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reader.close()

    # ------------------------------------------------------------ one fetch

    async def _run(self, fetch: _Fetch) -> None:
        one = fetch.one
        try:
            result = await self._attempt(fetch)
        except FetchError as error:
            result = outcome.failed_with(one, error, fetch.crawl_delay_s)
        except ZcrawlError as error:  # e.g. the disk for kept bodies is full
            transient = RetryClass.TRANSIENT
            result = outcome.failed(one, error.code, transient, detail=str(error))
            self._on_error(error.code, str(error))
        except Exception as error:
            # A bug, ours or a library's. Tried again, for it may be the moment's; after the
            # job's retries the URL ends dead with this name, and the log has the story.
            detail = f"{type(error).__name__}: {error}"
            result = outcome.failed(one, "internal_error", RetryClass.TRANSIENT, detail=detail)
            self._on_error("internal_error", f"{one.url}: {detail}")
        session = self._sessions.get(one.run)
        if session is not None and session.cookies is not None:
            result = outcome.with_cookies(result, session.cookies.changes(one.url))
        if self._fetches.pop(one.seq, None) is fetch:
            self._on_end(one.seq, result)

    async def _attempt(self, fetch: _Fetch) -> Result:
        one = fetch.one
        context = self._runs.get(one.run)
        if context is None:
            reason = self._refused.get(one.run, "bad_spec")
            return outcome.failed(one, reason, RetryClass.TRANSIENT)
        session = self._sessions.get(one.run)
        engine = session or self._engines(context.spec.fetch.engine)
        if context.spec.politeness.robots:
            refusal = await self._ask_robots(fetch, context, engine)
            if refusal is not None:
                return refusal
        if session is not None:
            hop = functools.partial(self._next_hop, fetch)
            await session.prepare(one.url, context.headers, context.limits, hop)
        began = self._clock()
        fetch.waited_s = 0.0
        limits, url = context.limits, one.url
        chain: RedirectChain | None = None
        while True:
            if self._starts is not None:
                await self._wait_for(fetch, self._starts.acquire())
            response = await engine.get(url, context.headers, limits)
            if self._bytes is not None:
                size = min(float(len(response.content)), self._bytes.max_rate)
                await self._wait_for(fetch, self._bytes.acquire(size))
            status = response.status_code
            verdict = classify_status(status)
            if verdict.meaning is Meaning.DONE:
                return await self._page(fetch, context, url, response, began)
            if verdict.meaning is Meaning.FAILED:
                return outcome.failed(
                    one,
                    verdict.reason,
                    verdict.retry,
                    status=status,
                    retry_after_s=outcome.wait_asked_for(
                        response.headers.get("retry-after"), self._utc()
                    ),
                    crawl_delay_s=fetch.crawl_delay_s,
                )
            chain = chain or RedirectChain(one.url, context.spec.fetch.max_redirects, context.rules)
            step = chain.next_hop(url, response.headers.get("location"))
            if not isinstance(step, Follow):
                return outcome.redirected(one, context, step.url, status, fetch.crawl_delay_s)
            url = step.url
            if context.spec.politeness.robots and not self._allows(one.run, context, url):
                return outcome.skipped(one, "robots", status=status, detail=f"redirected to {url}")
            await self._next_hop(fetch)
            limits = self._rest(context.limits, self._clock() - began - fetch.waited_s)

    async def _page(
        self,
        fetch: _Fetch,
        context: RunContext,
        url: str,
        response: httpx.Response,
        began: float,
    ) -> Result:
        one, body = fetch.one, response.content
        fetched_at, took_s = self._utc(), self._clock() - began - fetch.waited_s
        content_type = header_of(response, b"content-type") or ""
        title, links, rejected, found = None, [], {}, None
        status = response.status_code
        facts = None
        if context.plan is not None:
            main = await self._reader.main_content(context.plan, one, url, content_type, body)
            facts = page_facts(one, url, status, content_type, len(body), fetched_at, main)
        if is_html(content_type, body) or (facts is not None and is_json(content_type)):
            try:
                parsed = await self._reader.parse(context, body, content_type, url, facts)
            except ParseError as error:
                return outcome.skipped(
                    one,
                    error.code,
                    status=status,
                    crawl_delay_s=fetch.crawl_delay_s,
                    detail=str(error),
                )
            title, rejected, found = parsed.title, parsed.rejected, parsed.extracted
            links = context.inside(parsed.links, one.depth + 1, one.url)
        kept = None
        keeps = context.spec.output.keep_html or context.captures
        if keeps and self._blobs is not None:
            kept = await self._reader.in_thread(self._blobs.put, body)
        page = Page(
            final_url=url,
            title=title,
            content_type=outcome.clean(content_type)[: outcome.MAX_CONTENT_TYPE],
            size=len(body),
            fetched_at=fetched_at,
            elapsed_ms=took_s * 1000,
            body=kept,
        )
        delay = fetch.crawl_delay_s
        seen = capture_of(one, page, response, context.headers) if context.captures else None
        if context.plan is None and seen is None:
            return outcome.done(one, page, status, links, delay, rejected)
        items, labels = (found.items, found.labels) if found is not None else ([], {})
        if context.plan is None:
            items = [outcome.default_item(one, page, status)]
        told = as_message(found, seen)
        return outcome.done_with(one, page, status, items, links, delay, rejected, labels, told)

    # ------------------------------------------------------------ robots.txt

    async def _ask_robots(
        self, fetch: _Fetch, context: RunContext, engine: Engine
    ) -> Result | None:
        """None: go on. Who had to wait needs a new permit: many waited, and the old ones would
        all be used at once."""
        one = fetch.one
        origin = origin_of(one.url)
        agent = self._agent(one.run, context, origin)
        rules = self._robots.known(origin, agent)
        if rules is None:
            try:
                rules = await self._robots.get(
                    origin, agent, engine, context.limits, lambda: self._next_hop(fetch)
                )
            except FetchError as error:
                if error.code in _SAME_FOR_PAGE:
                    raise
                return self._no_rules(one, str(error))
            fetch.crawl_delay_s = rules.crawl_delay_s or 0.0
            if rules.allows(one.url):
                await self._next_hop(fetch)
                return None
        fetch.crawl_delay_s = rules.crawl_delay_s or 0.0
        if rules.retry_later:
            return self._no_rules(one, "robots.txt was not to be had")
        if not rules.allows(one.url):
            return outcome.skipped(one, "robots", crawl_delay_s=fetch.crawl_delay_s)
        return None

    def _no_rules(self, one: Assignment, detail: str) -> Result:
        return outcome.failed(one, "robots_unavailable", RetryClass.TRANSIENT, detail=detail)

    def _agent(self, run: int, context: RunContext, origin: str) -> str:
        session = self._sessions.get(run)
        agent = context.spec.fetch.user_agent
        return agent if session is None else session.user_agent(origin)

    def _allows(self, run: int, context: RunContext, url: str) -> bool:
        origin = origin_of(url)
        rules = self._robots.known(origin, self._agent(run, context, origin))
        return rules is None or rules.allows(url)

    # ------------------------------------------------------------ waiting

    async def _next_hop(self, fetch: _Fetch) -> None:
        """Wait for the host's pace before one more request."""
        fetch.permit = asyncio.get_running_loop().create_future()
        self._on_hop(fetch.one.seq)
        await self._wait_for(fetch, fetch.permit)
        fetch.permit = None

    async def _wait_for(self, fetch: _Fetch, waiting: Awaitable[object]) -> None:
        before = self._clock()
        await waiting
        fetch.waited_s += self._clock() - before

    def _rest(self, limits: HopLimits, used_s: float) -> HopLimits:
        rest = limits.total_s - used_s
        if rest <= LEAST_HOP_S:
            raise fetch_error(
                "total_timeout", f"not done in {limits.total_s} s, redirects included"
            )
        return dataclasses.replace(
            limits,
            total_s=rest,
            connect_s=min(limits.connect_s, rest),
            read_s=min(limits.read_s, rest),
        )


def _limiter(most: float, per_s: float) -> AsyncLimiter:
    from aiolimiter import AsyncLimiter  # 14 ms of a start, and few workers have a cap

    return AsyncLimiter(most, per_s)


def header_of(response: httpx.Response, name: bytes) -> str | None:
    """The first header of that name, as sent: httpx would read all headers to find one, which
    costs more than the rest of the answer."""
    sent = response.extensions.get("wire_headers")
    for key, value in response.headers.raw if sent is None else sent:
        if key.lower() == name:
            return value.decode("latin-1")
    return None
