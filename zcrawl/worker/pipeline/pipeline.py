"""Fetch and parse: from an assignment to its Result, one task per running fetch.

Called by `driver.loop`. Each request of a fetch goes at the host's pace: the first one with the
permit that came with the start, each further one (a redirect, a page after its robots.txt) with a
permit of its own. The clock of `fetch.timeout` stands still while a permit is waited for. Whatever
goes wrong becomes a Result; nothing that a page does ends the worker.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import (
    FetchError,
    JobError,
    PageSkipped,
    ParseError,
    PluginError,
    RetryClass,
    ZcrawlError,
)
from zcrawl.fetch.headers import header_of, headers_of
from zcrawl.fetch.keyring import Keyring
from zcrawl.fetch.policy import Follow, Meaning, RedirectChain, classify_status
from zcrawl.fetch.ports import Engine, Response
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Assignment, Code, Result, RunConfig, Traits
from zcrawl.model.host import RobotsFile
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.model.reasons.skip import ROBOTS, TRAP_SHAPE
from zcrawl.model.reasons.usage import BAD_SPEC
from zcrawl.model.states import Outcome
from zcrawl.parse.directives import agent_token, forbids_following, header_directives
from zcrawl.parse.page import NOTHING_PARSED, is_html, is_json
from zcrawl.runtime.loop import in_full
from zcrawl.worker.extensions.by_run import ExtrasBook
from zcrawl.worker.pipeline import traits as page_traits
from zcrawl.worker.pipeline.engines import EngineBook, EngineOf
from zcrawl.worker.pipeline.fetching import (
    Blobs,
    Clock,
    Fetching,
    OnEnd,
    OnError,
    OnHop,
    OnLacks,
    OnLate,
    at_address,
    limiter,
    rest_of,
)
from zcrawl.worker.pipeline.reading import PageReader
from zcrawl.worker.pipeline.robots import RobotsCache
from zcrawl.worker.pipeline.special import SpecialPages
from zcrawl.worker.results import outcome, readings, sitemaps
from zcrawl.worker.results.items import page_facts
from zcrawl.worker.results.link_filter import SortedLinks
from zcrawl.worker.results.outcome import RunContext
from zcrawl.worker.shared_limits import Keys

if TYPE_CHECKING:
    from zcrawl.worker.pipeline.outgoing import Sending
    from zcrawl.worker.pipeline.session import Session

LATE_S: Final = 0.01  # between a permit and its request: told, so that the pace counts from there


class Pipeline:
    """`start`, `permit` and `cancel` are called by the worker loop; `on_end` is its answer."""

    def __init__(
        self,
        engines: EngineOf,
        clock: Clock,
        utc: Clock,
        *,
        on_end: OnEnd,
        on_hop: OnHop,
        on_late: OnLate,
        on_error: OnError,
        on_lacks: OnLacks | None = None,
        blobs: Blobs | None = None,
        keyring: Keyring | None = None,
        rate: float = 0.0,
        bandwidth: float = 0.0,
        closed: Sequence[str] = (),
    ) -> None:
        self._engines = EngineBook(engines, on_error)
        self._clock, self._utc = clock, utc
        self._on_end, self._on_hop, self._on_error = on_end, on_hop, on_error
        self._on_late, self._on_lacks = on_late, on_lacks
        self._blobs = blobs
        self._robots = RobotsCache(clock)
        self._reader = PageReader()
        self._special = SpecialPages(clock, utc, self._reader)
        self._runs: dict[int, RunContext] = {}
        self._sessions: dict[int, Session] = {}  # of runs that have one
        self._extras = ExtrasBook(closed, on_error)
        self._refused: dict[int, tuple[str, str]] = {}  # runs that cannot be worked on: why
        self._keyring = keyring
        self._fetches: dict[int, Fetching] = {}
        self._starts = limiter(1, 1 / rate) if rate > 0 else None
        self._bytes = limiter(bandwidth, 1.0) if bandwidth > 0 else None

    # ------------------------------------------------------------ what the worker loop calls

    def adopt(self, config: RunConfig) -> None:
        try:
            former = self._runs.get(config.run)
            context = self._runs[config.run] = RunContext(config, self._keyring, former)
            engine = self._engines.adopt(config.run, context.spec)
            if context.spec.needs_session and config.run not in self._sessions:
                from zcrawl.worker.pipeline.session import Session, kept_cookies

                cookies = kept_cookies(config.cookies)
                session = Session(context.spec, engine, context.secrets, self._clock, cookies)
                self._sessions[config.run] = session
            self._extras.adopt(config.run, context.spec)
        except (JobError, PluginError) as error:  # its requests will fail with that code
            self._refuse_run(config.run, error.code, str(error))
            if error.code == PluginError.MISSING and self._on_lacks is not None:
                self._on_lacks(config.run, str(error))  # unless somebody else has it
        except Exception as error:  # a bug, ours or a plugin's: it concerns this run only
            self._refuse_run(config.run, INTERNAL_ERROR, in_full(error))

    def _refuse_run(self, run: int, code: str, detail: str) -> None:
        self._runs.pop(run, None)
        self._refused[run] = (code, detail.rpartition("\n")[2])  # of a traceback the error
        self._on_error(code, f"run {run}: {detail}")

    def adopt_code(self, code: Code) -> None:
        self._extras.adopt_code(code)

    def forget(self, run: int) -> None:
        for known in (self._runs, self._sessions, self._refused):
            known.pop(run, None)
        self._extras.forget(run)
        self._engines.forget(run)

    def learn_robots(self, origin: str, file: RobotsFile) -> None:
        self._robots.learn(origin, file)

    def start(self, one: Assignment, address: str | None = None, groups: Keys = ()) -> None:
        fetch = Fetching(one, permitted_at=self._clock(), address=address, groups=groups)
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
        await self._extras.close()
        await self._engines.close()
        await self._reader.close()

    # ------------------------------------------------------------ one fetch

    async def _run(self, fetch: Fetching) -> None:
        """Whatever happens in an attempt, its end is a Result: a request without one would keep its
        slot and its lease as long as this process lives."""
        one = fetch.one
        try:
            result = self._with_news(fetch, await self._outcome(fetch))
        except Exception as error:
            result = self._broken(one, error)
        except asyncio.CancelledError as error:
            if self._fetches.get(one.seq) is not fetch:
                raise  # `cancel` or `close`: nobody waits for its result
            result = self._broken(one, error)  # something that it waited for was cancelled
        if self._fetches.pop(one.seq, None) is fetch:
            self._on_end(one.seq, result)

    async def _outcome(self, fetch: Fetching) -> Result:
        one = fetch.one
        try:
            return fetch.told(await self._attempt(fetch))
        except FetchError as error:
            return fetch.told(outcome.failed_with(one, error, fetch.crawl_delay_s))
        except PageSkipped as error:
            return outcome.skipped(one, error.code, detail=str(error))
        except ZcrawlError as error:  # e.g. the disk for kept bodies is full
            self._on_error(error.code, f"run {one.run}: {error}")
            return outcome.failed(one, error.code, RetryClass.TRANSIENT, detail=str(error))

    def _with_news(self, fetch: Fetching, result: Result) -> Result:
        """The result with what the attempt has learnt beside its page."""
        one = fetch.one
        session = self._sessions.get(one.run)
        if session is not None and session.cookies is not None:
            result = outcome.with_cookies(result, session.cookies.changes(one.url))
        if self._fetches.get(one.seq) is not fetch:
            return result  # nobody waits for it, so another result has to bring the rest
        if fetch.sitemaps and result.outcome is not Outcome.FAILED:
            context = self._runs.get(one.run)
            if context is not None:
                result = sitemaps.with_sitemaps(result, context, fetch.sitemaps, one.url)
        if self._robots.unreported:
            robots = self._robots.unreported.pop(origin_of(one.url), None)
            result = msgspec.structs.replace(result, robots=robots)
        return result

    def _broken(self, one: Assignment, error: BaseException) -> Result:
        """A bug, ours or a library's. It is tried again, because it may be the moment's; after the
        job's retries the URL ends dead with this name, and the log has the story."""
        self._on_error(INTERNAL_ERROR, f"run {one.run}: {one.url}: {in_full(error)}")
        detail = f"{type(error).__name__}: {error}"
        return outcome.failed(one, INTERNAL_ERROR, RetryClass.TRANSIENT, detail=detail)

    async def _attempt(self, fetch: Fetching) -> Result:
        one = fetch.one
        context = self._runs.get(one.run)
        if context is None:
            return readings.of_refused_run(one, *self._refused.get(one.run, (BAD_SPEC, "")))
        if context.is_endless(one):
            return outcome.skipped(one, TRAP_SHAPE)
        extras = self._extras.get(one.run)
        sending = None if extras is None else extras.sending(one, context)
        if extras is not None and extras.takes(one):
            return await extras.start(one, context, self._utc)
        session = self._sessions.get(one.run)
        context.require_secrets(one, session.unreleased if session else None, self._on_error)
        base = context.headers_for(one.url)  # all requests of a fetch stay on one host
        engine = at_address(fetch, session or self._engines.of_run[one.run])
        if self._clock() - fetch.permitted_at > LATE_S:  # busy, or loading its engine
            self._on_late(one.seq)
        if context.spec.politeness.robots:
            refusal = await self._ask_robots(fetch, context, engine)
            if refusal is not None:
                return refusal
        if session is not None:
            hop = functools.partial(self._next_hop, fetch)
            await session.prepare(one.url, base, context.limits, hop)
        began = self._clock()
        fetch.waited_s = 0.0
        whole, url = sitemaps.limits_of(one, context.limits), one.url
        limits = whole
        chain: RedirectChain | None = None
        condition = page_traits.NO_CONDITION
        if one.known:
            fetch.known = page_traits.decoded(one.known)
            condition = page_traits.condition_of(fetch.known, context, sending)
        fetch.recording = self._reader.recording(one, context, self._blobs)
        while True:
            if self._starts is not None:
                await self._wait_for(fetch, self._starts.acquire())
            if sending is None:
                headers = {**base, **condition} if condition else base
                response = await engine.get(url, headers, limits)
            else:
                response = await sending.send(engine, url, limits, condition)
            if self._bytes is not None:
                size = min(float(len(response.content)), self._bytes.max_rate)
                await self._wait_for(fetch, self._bytes.acquire(size))
            if fetch.recording is not None:
                await fetch.recording.add(url, response, sending, self._utc())
            status = response.status_code
            verdict = classify_status(status)
            if verdict.meaning is Meaning.DONE:
                final = response.extensions.get("final_url", url)  # a browser's page may change it
                page = await self._page(fetch, context, final, response, began, sending)
                return page if chain is None else outcome.landed(page, one, context, url)
            if verdict.meaning is Meaning.FAILED:
                if status == page_traits.NOT_MODIFIED and condition and fetch.known is not None:
                    traits = page_traits.confirmed(fetch.known, response)
                    return self._unchanged(fetch, url, response, traits, began)
                wait = outcome.wait_asked_for(header_of(response, b"retry-after"), self._utc())
                return readings.refused(one, verdict, status, wait, fetch.crawl_delay_s)
            chain = chain or RedirectChain(one.url, context.spec.fetch.max_redirects, context.rules)
            step = chain.next_hop(url, header_of(response, b"location"))
            if not isinstance(step, Follow):
                moved = outcome.redirected(one, context, step.url, status, fetch.crawl_delay_s)
                moved = sitemaps.moved(one, moved)
                return moved if sending is None else sending.handed_over(moved, status)
            url, condition = step.url, page_traits.NO_CONDITION
            if sending is not None:
                sending.redirected(status)
            if context.spec.politeness.robots and not self._allows(one.run, context, url):
                return outcome.skipped(one, ROBOTS, status=status, detail=f"redirected to {url}")
            await self._next_hop(fetch)
            limits = rest_of(whole, self._clock() - began - fetch.waited_s)

    async def _page(
        self,
        fetch: Fetching,
        context: RunContext,
        url: str,
        response: Response,
        began: float,
        sending: Sending | None,
    ) -> Result:
        one, body = fetch.one, response.content
        fetched_at, took_s = self._utc(), self._clock() - began - fetch.waited_s
        content_type = header_of(response, b"content-type") or ""
        if sitemaps.is_sitemap(one):
            return await self._special.sitemap(context, one, url, response)
        delay, traits = fetch.crawl_delay_s, None
        if context.remembers:
            traits = page_traits.traits_of(one, fetch.known, url, response)
            if traits.unchanged:
                return self._unchanged(fetch, url, response, traits, began)
        asks = header_directives(headers_of(response, b"x-robots-tag"), context.token)
        parsed = NOTHING_PARSED
        links = SortedLinks()
        status = response.status_code
        facts = None
        extras = self._extras.get(one.run)
        reader = None if extras is None else extras.reader(url, content_type)
        if reader is None and context.plan is not None:
            main = await self._reader.main_content(context.plan, one, url, content_type, body)
            facts = page_facts(one, url, status, content_type, len(body), fetched_at, main)
        html = is_html(content_type, body)
        if reader is None and (html or (facts is not None and is_json(content_type))):
            try:
                parsed = await self._reader.parse(context, body, content_type, url, facts)
            except ParseError as error:
                return readings.unreadable(one, error, status, delay)
            shape = context.links.learn(one.url, one.parent, body) if html else None
            if shape is not None:
                self._on_error(TRAP_SHAPE, f"run {one.run}: no new text in pages of {shape}")
            if not (asks and context.obeys_nofollow and forbids_following(asks)):
                paging = () if parsed.extracted is None else parsed.extracted.paging
                args = (parsed.links, one.depth + 1, one.url, fetched_at, paging)
                links = await self._reader.sort_links(context, *args)
        unkept = await self._special.unkept(
            one, context, url, parsed, asks, delay, lambda u: self._probe(fetch, u)
        )
        if unkept is not None:
            unkept = msgspec.structs.replace(unkept, status=status)
            return outcome.with_links(unkept, links, parsed.extracted)
        kept = None
        if context.spec.output.keep_html and self._blobs is not None:
            kept = await self._reader.in_thread(self._blobs.put, body)
        files: dict[str, str] = {}
        if "files" in response.extensions and self._blobs is not None:  # a browser's
            files = await self._reader.keep_all(self._blobs.put, response.extensions["files"])
        page = readings.page_of(url, parsed, content_type, body, fetched_at, took_s, kept, files)
        found, rejected, prints = parsed.extracted, parsed.rejected, parsed.fingerprint
        if reader is not None:
            result = await reader(one, context, page, response, delay, sending)
            if context.compares and html:
                prints = await self._reader.fingerprint(context, body, content_type, url)
        else:
            result = readings.read(one, context, page, status, links, delay, rejected, found)
        result = result if sending is None else await sending.items(result)
        return page_traits.with_traits(result, traits, prints)

    def _unchanged(
        self, fetch: Fetching, url: str, response: Response, traits: Traits, began: float
    ) -> Result:
        took_s, utc = self._clock() - began - fetch.waited_s, self._utc()
        page = readings.bare_page(url, len(response.content), utc, took_s)
        status, delay = response.status_code, fetch.crawl_delay_s
        return readings.unchanged(fetch.one, page, status, traits, delay)

    async def _probe(self, fetch: Fetching, url: str) -> str | None:
        """The title with which a host answers a URL, if with a page."""
        one, context = fetch.one, self._runs.get(fetch.one.run)
        if context is None or not self._allows(one.run, context, url):
            return None
        await self._next_hop(fetch)
        engine = self._sessions.get(one.run) or self._engines.of_run[one.run]
        answer = await at_address(fetch, engine).get(url, context.headers_for(url), context.limits)
        kind = header_of(answer, b"content-type") or ""
        if answer.status_code != 200 or not is_html(kind, answer.content):
            return None
        return (await self._reader.parse(context, answer.content, kind, url, None)).title

    # ------------------------------------------------------------ robots.txt

    async def _ask_robots(
        self, fetch: Fetching, context: RunContext, engine: Engine
    ) -> Result | None:
        """None: go on. Who had to wait needs a new permit: many waited, and the old ones would
        all be used at once."""
        one = fetch.one
        origin = origin_of(one.url)
        agent = self._agent(one.run, context, origin)
        rules = self._robots.known(origin, agent)
        asked = rules is None
        if rules is None:
            rules = await self._robots.get(
                origin,
                agent,
                engine,
                context.limits,
                lambda: self._next_hop(fetch),
                context.spec.politeness.robots_patience,
                fetch.is_paced_at,
            )
        fetch.crawl_delay_s = rules.crawl_delay_s or 0.0
        if context.spec.sitemaps.robots and origin not in context.told_sitemaps:
            fetch.sitemaps = rules.sitemaps
        if rules.retry_later:
            return outcome.no_rules(one, self._robots.wait_s(origin))
        if not rules.allows(one.url):
            detail = f"robots.txt forbids it for '{agent_token(agent)}'"
            return outcome.skipped(one, ROBOTS, crawl_delay_s=fetch.crawl_delay_s, detail=detail)
        if asked:
            await self._next_hop(fetch)
        return None

    def _agent(self, run: int, context: RunContext, origin: str) -> str:
        session = self._sessions.get(run)
        agent = context.spec.fetch.user_agent
        return agent if session is None else session.user_agent(origin)

    def _allows(self, run: int, context: RunContext, url: str) -> bool:
        origin = origin_of(url)
        rules = self._robots.known(origin, self._agent(run, context, origin))
        return rules is None or rules.allows(url)

    # ------------------------------------------------------------ waiting

    async def _next_hop(self, fetch: Fetching) -> None:
        """Wait for the host's pace before one more request."""
        fetch.permit = asyncio.get_running_loop().create_future()
        self._on_hop(fetch.one.seq, fetch.crawl_delay_s)
        await self._wait_for(fetch, fetch.permit)
        fetch.permit = None

    async def _wait_for(self, fetch: Fetching, waiting: Awaitable[object]) -> None:
        before = self._clock()
        await waiting
        fetch.waited_s += self._clock() - before
