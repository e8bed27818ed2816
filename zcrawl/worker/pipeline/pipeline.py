"""Fetch and parse: from an assignment to the end of its attempt, one task per running fetch.

Called by `driver.loop`. Each request of a fetch goes at the host's pace: the first one with the
permit that came with the start, each further one (a redirect, a page after its robots.txt) with a
permit of its own. The time of `fetch.timeout` is paused while it waits for a permit. Any error ends
the attempt, never the worker. `results.attempt` decides how it ends and what is reported.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

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
from zcrawl.fetch.policy import FollowRedirect, Meaning, RedirectChain, classify_status
from zcrawl.fetch.ports import Engine, Response
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Assignment, Code, RunConfig, Traits
from zcrawl.model.host import RobotsFile
from zcrawl.model.reasons.failure import INTERNAL_ERROR
from zcrawl.model.reasons.skip import ROBOTS, TRAP_SHAPE
from zcrawl.model.reasons.usage import BAD_SPEC
from zcrawl.model.rows import NO_HOST
from zcrawl.model.spec import HTTP
from zcrawl.model.states import Outcome
from zcrawl.parse.directives import agent_token, forbids_following, header_directives
from zcrawl.parse.page import NOTHING_PARSED, is_html, is_json
from zcrawl.runtime.loop import in_full
from zcrawl.worker.extensions.by_run import ExtrasBook
from zcrawl.worker.pipeline import traits as page_traits
from zcrawl.worker.pipeline.engines import EngineBook, EngineOf
from zcrawl.worker.pipeline.fetching import (
    BlobWriter,
    Clock,
    Fetching,
    at_address,
    limiter,
    rest_of,
)
from zcrawl.worker.pipeline.reading import PageReader
from zcrawl.worker.pipeline.robots import RobotsCache
from zcrawl.worker.pipeline.special import SpecialPages
from zcrawl.worker.results import sitemaps
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.items import page_facts
from zcrawl.worker.results.link_filter import SortedLinks
from zcrawl.worker.results.pages import bare_page, page_of
from zcrawl.worker.shared_limits import Keys

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

    from zcrawl.worker.pipeline.calls import HttpCalls
    from zcrawl.worker.pipeline.session import RunClient

LATE_S: Final = 0.01  # a later start after a permit is reported, so that the pace counts from there


class PipelineOwner(Protocol):
    """The receiver of a pipeline's events: the worker loop, or `zcrawl test`."""

    def fetch_ended(self, seq: int, attempt: Attempt) -> None:
        """Take an ended attempt; called once for each `start`, unless it was cancelled."""

    def hop_wanted(self, seq: int, crawl_delay_s: float) -> None:
        """Note that a fetch waits for one more `permit`."""

    def started_late(self, seq: int) -> None:
        """Note that the first request starts only now, long after its permit."""

    def run_lacks(self, run: int, what: str) -> None:
        """Note that this worker lacks a plugin that the run needs."""

    def note(self, name: str, detail: str, *, run: int = 0) -> None:
        """Log an event, about a run or in general."""


class PipelineSettings(msgspec.Struct, frozen=True):
    """What an operator gives to a worker's fetches."""

    blobs: BlobWriter | None = None  # where bodies are kept
    keyring: Keyring | None = None
    rate: float = 0.0  # requests per second; 0: unlimited
    bandwidth: float = 0.0  # bytes per second; 0: unlimited
    closed: Sequence[str] = ()  # files of the worker that no spider may read


class Pipeline:
    """`start`, `permit` and `cancel` are called by the owner; `fetch_ended` is the answer."""

    def __init__(
        self,
        owner: PipelineOwner,
        engines: EngineOf,
        clock: Clock,
        utc: Clock,
        settings: PipelineSettings | None = None,
    ) -> None:
        settings = settings or PipelineSettings()
        self._owner = owner
        self._engines = EngineBook(engines, owner.note)
        self._clock, self._utc = clock, utc
        self._blobs = settings.blobs
        self._robots = RobotsCache(clock)
        self._reader = PageReader()
        self._special = SpecialPages(clock, utc, self._reader)
        self._runs: dict[int, RunContext] = {}
        self._sessions: dict[int, RunClient] = {}  # of runs that have one
        self._calls: dict[int, HttpCalls] = {}  # of runs of kind http
        self._extras = ExtrasBook(settings.closed, owner.note, settings.blobs)
        self._refused: dict[int, tuple[str, str]] = {}  # runs that cannot be worked on: why
        self._keyring = settings.keyring
        self._fetches: dict[int, Fetching] = {}
        self._limits = (0.0, 0.0)
        self._starts: AsyncLimiter | None = None
        self._bytes: AsyncLimiter | None = None
        self.limit(settings.rate, settings.bandwidth)

    # ------------------------------------------------------------ what the worker loop calls

    def adopt(self, config: RunConfig) -> None:
        try:
            former = self._runs.get(config.run)
            context = self._runs[config.run] = RunContext(config, self._keyring, former)
            engine = self._engines.adopt(config.run, context.spec)
            if context.spec.needs_session and config.run not in self._sessions:
                from zcrawl.worker.pipeline.session import RunClient, kept_cookies

                cookies = kept_cookies(config.cookies)
                session = RunClient(context.spec, engine, context.secrets, self._clock, cookies)
                self._sessions[config.run] = session
            if context.spec.kind == HTTP:
                from zcrawl.worker.pipeline.calls import HttpCalls

                self._calls[config.run] = HttpCalls(context, self._blobs)
            self._extras.adopt(config.run, context)
        except (JobError, PluginError) as error:  # its requests will fail with that code
            self._refuse_run(config.run, error.code, str(error))
            if error.code == PluginError.MISSING:
                self._owner.run_lacks(config.run, str(error))  # another worker may have it
        except Exception as error:  # a bug of zcrawl or a plugin: only this run fails
            self._refuse_run(config.run, INTERNAL_ERROR, in_full(error))

    def _refuse_run(self, run: int, code: str, detail: str) -> None:
        self._runs.pop(run, None)
        self._refused[run] = (code, detail.rpartition("\n")[2])  # of a traceback the error
        self._owner.note(code, detail, run=run)

    def adopt_code(self, code: Code) -> None:
        self._extras.adopt_code(code)

    def forget(self, run: int) -> None:
        for by_run in (self._runs, self._sessions, self._calls, self._refused):
            by_run.pop(run, None)
        self._extras.forget(run)
        self._engines.forget(run)

    def learn_robots(self, origin: str, file: RobotsFile) -> None:
        self._robots.learn(origin, file)

    def limit(self, rate: float, bandwidth: float) -> None:
        """Set requests and bytes per second of this worker; 0: no limit. What already waits for the
        old limit goes on by it."""
        if (rate, bandwidth) == self._limits:
            return
        old_rate, old_bandwidth = self._limits
        self._limits = (rate, bandwidth)
        if rate != old_rate:
            self._starts = limiter(1, 1 / rate) if rate > 0 else None
        if bandwidth != old_bandwidth:
            self._bytes = limiter(bandwidth, 1.0) if bandwidth > 0 else None

    def start(self, assignment: Assignment, address: str | None = None, groups: Keys = ()) -> None:
        permitted_at = self._clock()
        fetch = Fetching(Attempt(assignment), permitted_at, address=address, groups=groups)
        self._fetches[assignment.seq] = fetch
        fetch.task = asyncio.get_running_loop().create_task(self._run(fetch))

    def permit(self, seq: int) -> None:
        fetch = self._fetches.get(seq)
        if fetch is not None and fetch.permit is not None and not fetch.permit.done():
            fetch.permit.set_result(None)

    def cancel(self, seq: int) -> None:
        fetch = self._fetches.pop(seq, None)
        if fetch is not None and fetch.task is not None:
            fetch.task.cancel()

    def leave(self) -> None:
        """End soon what may take long, because this worker leaves: commands of jobs."""
        self._extras.leave()

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
        """Run an attempt and make sure that it ends: without a Result its slot and lease would
        stay."""
        attempt, seq = fetch.attempt, fetch.attempt.assignment.seq
        try:
            await self._end(fetch)
            self._add_news(fetch)
            if attempt.outcome is None:
                raise RuntimeError("the attempt has no end")
        except Exception as error:
            self._broken(attempt, error)
        except asyncio.CancelledError as error:
            if self._fetches.get(seq) is not fetch:
                raise  # `cancel` or `close`: no result is needed
            self._broken(attempt, error)  # something that it waited for was cancelled
        if self._fetches.pop(seq, None) is fetch:
            self._owner.fetch_ended(seq, attempt)

    async def _end(self, fetch: Fetching) -> None:
        attempt = fetch.attempt
        try:
            await self._attempt(fetch)
        except FetchError as error:
            attempt.failed_with(error)
        except PageSkipped as error:
            attempt.skipped(error.code, detail=str(error))
            return
        except ZcrawlError as error:  # e.g. the disk for kept bodies is full
            self._owner.note(error.code, str(error), run=attempt.assignment.run)
            attempt.failed(error.code, RetryClass.TRANSIENT, detail=str(error))
            return
        if fetch.recording is not None:
            fetch.recording.add_to(attempt)

    def _add_news(self, fetch: Fetching) -> None:
        """Add what the attempt learned besides its page."""
        attempt, assignment = fetch.attempt, fetch.attempt.assignment
        if assignment.host == NO_HOST:
            return
        session = self._sessions.get(assignment.run)
        if session is not None and session.cookies is not None:
            attempt.cookies = session.cookies.changes(assignment.url)
        if self._fetches.get(assignment.seq) is not fetch:
            return  # cancelled: another result must report it
        if fetch.sitemaps and attempt.outcome is not Outcome.FAILED:
            context = self._runs.get(assignment.run)
            if context is not None:
                sitemaps.add_named(attempt, context, fetch.sitemaps)
        if self._robots.unreported:
            attempt.robots = self._robots.unreported.pop(origin_of(assignment.url), None)

    def _broken(self, attempt: Attempt, error: BaseException) -> None:
        """End an attempt at a bug of zcrawl or a library.

        It is tried again, because the cause may pass. After the job's retries the URL ends dead
        with this reason, and the log has the traceback.
        """
        assignment = attempt.assignment
        text = f"{assignment.url}: {in_full(error)}"
        self._owner.note(INTERNAL_ERROR, text, run=assignment.run)
        detail = f"{type(error).__name__}: {error}"
        attempt.failed(INTERNAL_ERROR, RetryClass.TRANSIENT, detail=detail)

    async def _attempt(self, fetch: Fetching) -> Attempt:
        """Fetch, hop by hop. Each way through here returns the attempt with its end."""
        attempt, assignment = fetch.attempt, fetch.attempt.assignment
        context = attempt.context = self._runs.get(assignment.run)
        if context is None:
            return attempt.run_refused(*self._refused.get(assignment.run, (BAD_SPEC, "")))
        if context.is_endless(assignment):
            return attempt.skipped(TRAP_SHAPE)
        extras = self._extras.get(assignment.run)
        sending = None if extras is None else extras.sending(assignment, context)
        if extras is not None and extras.takes(assignment):
            return await extras.start(attempt, self._utc)
        session = self._sessions.get(assignment.run)
        missing_secrets = session.missing_secrets if session else None
        context.require_secrets(assignment, missing_secrets, self._owner.note)
        calls = self._calls.get(assignment.run)
        if calls is not None:
            return await self._call(fetch, calls)
        base = context.headers_for(assignment.url)  # all requests of a fetch stay on one host
        engine = at_address(fetch, session or self._engines.of_run[assignment.run])
        if self._clock() - fetch.permitted_at > LATE_S:  # busy, or loading its engine
            self._owner.started_late(assignment.seq)
        if context.spec.politeness.robots and not await self._ask_robots(fetch, context, engine):
            return attempt
        if session is not None:
            hop = functools.partial(self._next_hop, fetch)
            await session.prepare(assignment.url, base, context.limits, hop)
        fetch.began, fetch.waited_s, fetch.sending = self._clock(), 0.0, sending
        whole, url = sitemaps.limits_of(assignment, context.limits), assignment.url
        limits = whole
        chain: RedirectChain | None = None
        condition = page_traits.NO_CONDITION
        if assignment.known:
            fetch.stored_traits = page_traits.decoded(assignment.known)
            condition = page_traits.condition_of(fetch.stored_traits, context, sending)
        fetch.recording = self._reader.recording(assignment, context, self._blobs)
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
                await self._page(fetch, context, final, response)
                return attempt if chain is None else attempt.add_redirects(url)
            if verdict.meaning is Meaning.FAILED:
                if (
                    status == page_traits.NOT_MODIFIED
                    and condition
                    and fetch.stored_traits is not None
                ):
                    traits = page_traits.confirmed(fetch.stored_traits, response)
                    return self._unchanged(fetch, url, response, traits)
                wait = header_of(response, b"retry-after")
                return attempt.refused(verdict, status, wait, self._utc())
            rules, most = context.rules, context.spec.fetch.max_redirects
            chain = chain or RedirectChain(assignment.url, most, rules)
            step = chain.next_hop(url, header_of(response, b"location"))
            if not isinstance(step, FollowRedirect):
                sitemaps.moved(attempt.redirected(step.url, status))
                return attempt if sending is None else sending.hand_over(attempt, status)
            url, condition = step.url, page_traits.NO_CONDITION
            if sending is not None:
                sending.redirected(status)
            obeys = context.spec.politeness.robots
            if obeys and not await self._allows(assignment.run, context, url):
                return attempt.skipped(ROBOTS, status=status, detail=f"redirected to {url}")
            await self._next_hop(fetch)
            limits = rest_of(whole, fetch.used_s(self._clock()))

    async def _call(self, fetch: Fetching, calls: HttpCalls) -> Attempt:
        """Make the call of an HTTP task, at the host's pace; robots.txt is not for it."""
        from zcrawl.worker.pipeline.calls import Pauses

        assignment = fetch.attempt.assignment
        run, own_engine = assignment.run, self._engines.of_run[assignment.run]
        engine = at_address(fetch, self._sessions.get(run) or own_engine)
        if self._clock() - fetch.permitted_at > LATE_S:
            self._owner.started_late(assignment.seq)
        fetch.began, fetch.waited_s = self._clock(), 0.0

        async def before_start() -> None:
            if self._starts is not None:
                await self._wait_for(fetch, self._starts.acquire())

        async def after_answer(response: Response) -> None:
            if self._bytes is not None:
                size = min(float(len(response.content)), self._bytes.max_rate)
                await self._wait_for(fetch, self._bytes.acquire(size))

        next_hop = functools.partial(self._next_hop, fetch)
        pauses = Pauses(next_hop, before_start, after_answer)
        return await calls.do(fetch, engine, pauses, self._clock, self._utc)

    async def _page(
        self, fetch: Fetching, context: RunContext, url: str, response: Response
    ) -> Attempt:
        attempt, assignment, body = fetch.attempt, fetch.attempt.assignment, response.content
        fetched_at, took_s = self._utc(), fetch.used_s(self._clock())
        content_type = header_of(response, b"content-type") or ""
        if assignment.is_sitemap:
            return await self._special.sitemap(attempt, url, response)
        traits = None
        if context.remembers:
            traits = page_traits.traits_of(assignment, fetch.stored_traits, url, response)
            if traits.unchanged:
                return self._unchanged(fetch, url, response, traits)
        directives = header_directives(headers_of(response, b"x-robots-tag"), context.token)
        parsed = NOTHING_PARSED
        links = SortedLinks()
        status = response.status_code
        facts = None
        extras = self._extras.get(assignment.run)
        reader = None if extras is None else extras.reader(url, content_type)
        if reader is None and context.plan is not None:
            main = await self._reader.main_content(
                context.plan, assignment, url, content_type, body
            )
            facts = page_facts(assignment, url, status, content_type, len(body), fetched_at, main)
        html = is_html(content_type, body)
        if reader is None and (html or (facts is not None and is_json(content_type))):
            try:
                parsed = await self._reader.parse(context, body, content_type, url, facts)
            except ParseError as error:
                return attempt.skipped(error.code, status=status, detail=str(error))
            own_url, depth = assignment.url, assignment.depth + 1
            shape = context.links.learn(own_url, assignment.parent, body) if html else None
            if shape is not None:
                text = f"no new text in pages of {shape}"
                self._owner.note(TRAP_SHAPE, text, run=assignment.run)
            if not (directives and context.obeys_nofollow and forbids_following(directives)):
                paging = () if parsed.extracted is None else parsed.extracted.paging
                args = (parsed.links, depth, own_url, fetched_at, paging)
                links = await self._reader.sort_links(context, *args)
        probe = functools.partial(self._probe, fetch)
        if await self._special.skip_unkept(attempt, url, parsed, directives, status, probe):
            return attempt.add_links(links, parsed.extracted)
        kept = None
        if context.spec.output.keep_html and self._blobs is not None:
            kept = await self._reader.in_thread(self._blobs.put, body)
        files: dict[str, str] = {}
        if "files" in response.extensions and self._blobs is not None:  # a browser's
            files = await self._reader.keep_all(self._blobs.put, response.extensions["files"])
        page = page_of(url, parsed, content_type, body, fetched_at, took_s, kept, files)
        fingerprint = parsed.fingerprint
        if reader is not None:
            await reader(attempt, page, response, fetch.sending)
            if context.compares and html:
                fingerprint = await self._reader.fingerprint(context, body, content_type, url)
        else:
            attempt.read(page, status, links, parsed)
        if fetch.sending is not None:
            await fetch.sending.change_items(attempt)
        return attempt.add_traits(traits, fingerprint)

    def _unchanged(self, fetch: Fetching, url: str, response: Response, traits: Traits) -> Attempt:
        took_s, utc = fetch.used_s(self._clock()), self._utc()
        page = bare_page(url, len(response.content), utc, took_s)
        return fetch.attempt.unchanged(page, response.status_code, traits)

    async def _probe(self, fetch: Fetching, url: str) -> str | None:
        """Return the title of the page at a URL of the host, if there is a page."""
        run = fetch.attempt.assignment.run
        context = self._runs.get(run)
        if context is None or not await self._allows(run, context, url):
            return None
        await self._next_hop(fetch)
        engine = self._sessions.get(run) or self._engines.of_run[run]
        answer = await at_address(fetch, engine).get(url, context.headers_for(url), context.limits)
        kind = header_of(answer, b"content-type") or ""
        if answer.status_code != 200 or not is_html(kind, answer.content):
            return None
        return (await self._reader.parse(context, answer.content, kind, url, None)).title

    # ------------------------------------------------------------ robots.txt

    async def _ask_robots(self, fetch: Fetching, context: RunContext, engine: Engine) -> bool:
        """Check robots.txt; return whether to go on, otherwise the attempt has ended.

        A page that waited needs a new permit, because many may have waited and all would start at
        once.
        """
        attempt, assignment = fetch.attempt, fetch.attempt.assignment
        origin = origin_of(assignment.url)
        agent = self._agent(assignment.run, context, origin)
        rules = await self._robots.cached_rules(origin, agent)
        waited = rules is None
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
        attempt.crawl_delay_s = rules.crawl_delay_s or 0.0
        if context.spec.sitemaps.robots and origin not in context.reported_sitemaps:
            fetch.sitemaps = rules.sitemaps
        if rules.retry_later:
            attempt.without_robots(self._robots.wait_s(origin))
            return False
        if not rules.allows(assignment.url):
            attempt.skipped(ROBOTS, detail=f"robots.txt forbids it for '{agent_token(agent)}'")
            return False
        if waited:
            await self._next_hop(fetch)
        return True

    def _agent(self, run: int, context: RunContext, origin: str) -> str:
        session = self._sessions.get(run)
        agent = context.spec.fetch.user_agent
        return agent if session is None else session.user_agent(origin)

    async def _allows(self, run: int, context: RunContext, url: str) -> bool:
        origin = origin_of(url)
        rules = await self._robots.cached_rules(origin, self._agent(run, context, origin))
        return rules is None or rules.allows(url)

    # ------------------------------------------------------------ waiting

    async def _next_hop(self, fetch: Fetching) -> None:
        """Wait for the host's pace before one more request."""
        fetch.permit = asyncio.get_running_loop().create_future()
        self._owner.hop_wanted(fetch.attempt.assignment.seq, fetch.attempt.crawl_delay_s)
        await self._wait_for(fetch, fetch.permit)
        fetch.permit = None

    async def _wait_for(self, fetch: Fetching, waiting: Awaitable[object]) -> None:
        before = self._clock()
        await waiting
        fetch.waited_s += self._clock() - before
