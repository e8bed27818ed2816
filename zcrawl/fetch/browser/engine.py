"""The browser engine: pages rendered by the system's Chromium, through `fetch.ports.Engine`.

Created by a worker when a job has `engine = "browser"`, and not loaded before. The first page
starts Chromium, and it is stopped after some time without pages. There is one Chromium per worker,
and one context (cookies, storage, and the gate that guards its connections) per run, host and
settings. `fetch.browser_contexts` decides when a context is reused. robots.txt and logins do not
need a browser and use the plain engine.

If Chromium ends, each open page loses one attempt, and the next page starts Chromium again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx
from playwright.async_api import BrowserContext, Error, Page, Route

from zcrawl.errors import FetchError
from zcrawl.fetch import browser_plan as plan
from zcrawl.fetch.browser.chromium import Chromium, find_chromium
from zcrawl.fetch.browser.gate import BrowserGate
from zcrawl.fetch.browser.tab import Tab
from zcrawl.fetch.browser_contexts import ContextShelf, Slot
from zcrawl.fetch.http2.backend import Resolve, resolve
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.frontier.url import origin_of
from zcrawl.model.reasons.failure import BROWSER, BROWSER_MEMORY, ENGINE, TOTAL_TIMEOUT
from zcrawl.model.spec import Browser
from zcrawl.runtime.loop import in_full

LOOK_EVERY_S: Final = 0.5  # interval of the checks for memory and idle contexts
IDLE_S: Final = 30.0  # Chromium is stopped after this time without pages
CLOSE_S: Final = 3.0  # for one page; if it hangs longer, Chromium is stopped
REST_S: Final = 3.0  # pause after a failed start
MEGABYTE: Final = 1_000_000
MOST_TABS: Final = max(4, min(32, 4 * (os.cpu_count() or 1)))  # at the same time


@dataclasses.dataclass(slots=True)
class _OpenContext:
    context: BrowserContext
    gate: BrowserGate


class BrowserEngine:
    """Fetches pages with Chromium.

    `plain` is the engine for requests that need no browser. `look_up` returns the addresses of a
    name. `note` logs an event for the operator. Raises JobError (`no_browser`) without Chromium."""

    def __init__(
        self,
        plain: Engine,
        clock: Callable[[], float],
        utc: Callable[[], float],
        *,
        look_up: Resolve = resolve,
        note: Callable[[str, str], None] = lambda name, detail: None,
    ) -> None:
        self._note = note
        self._executable = find_chromium()
        self._plain = plain
        self._clock, self._utc = clock, utc
        self._look_up = look_up
        self._shelf = ContextShelf()
        self._contexts: dict[int, _OpenContext] = {}
        self.gates: set[int] = set()  # ports of the open ones
        self._chromium: Chromium | None = None
        self._ended: list[tuple[Chromium, list[_OpenContext]]] = []  # to be cleaned up
        self._keeper: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._making = asyncio.Lock()
        self._tabs = asyncio.Semaphore(MOST_TABS)
        self._open: dict[int, int] = {}  # running visits and the memory that each allows
        self._visits = 0
        self._used_at = 0.0
        self._failed_at: tuple[float, FetchError] | None = None
        self._closed = False

    @property
    def chromium(self) -> Chromium | None:
        return self._chromium

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        settings = limits.browser or Browser()
        if urlsplit(url).path == "/robots.txt":
            return await self._plain.get(url, headers, limits)
        limits.guard.check(url)
        async with self._tabs:
            chromium = await self._running_chromium()
            self._visits += 1
            number = self._visits
            self._open[number] = settings.memory_mb * MEGABYTE
            kills = chromium.memory_kills
            try:
                async with asyncio.timeout(limits.total_s):
                    return await self._visit(chromium, url, headers, limits, settings)
            except TimeoutError as error:
                message = f"{url}: not rendered in {limits.total_s} s"
                raise fetch_error(TOTAL_TIMEOUT, message) from error
            except FetchError as error:
                if error.code == BROWSER and chromium.memory_kills > kills:
                    message = f"{url}: more than {settings.memory_mb} MB"
                    raise fetch_error(BROWSER_MEMORY, message) from error
                raise
            except Error as error:
                code = plan.code_of(error.message)
                message = f"{url}: {error.message.partition(chr(10))[0]}"[:MAX_MESSAGE]
                raise fetch_error(code, message) from error
            finally:
                del self._open[number]
                self._used_at = self._clock()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        return await self._plain.send(method, url, headers, body, limits)

    async def aclose(self) -> None:
        self._closed = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        if self._chromium is not None:
            self._drop_chromium(self._chromium)
        await self._clean_up()

    # ------------------------------------------------------------ one visit

    async def _visit(
        self,
        chromium: Chromium,
        url: str,
        headers: Mapping[str, str],
        limits: HopLimits,
        settings: Browser,
    ) -> httpx.Response:
        slot, open_context = await self._open_context(chromium, url, headers, limits, settings)
        page: Page | None = None
        broken = True
        try:
            cookie = next((v for k, v in headers.items() if k.lower() == "cookie"), "")
            if cookie:
                cookies = plan.cookies_of(cookie, url)
                await open_context.context.add_cookies(cookies)  # type: ignore[arg-type]
            page = await open_context.context.new_page()
            tab = Tab(page, url, headers, limits, settings, self._failures_in(open_context.gate))
            response = await tab.visit(open_context.context)
            if limits.cookies:
                for browser_cookie in await open_context.context.cookies(url):
                    header = plan.set_cookie(browser_cookie, self._utc())
                    response.headers = httpx.Headers(
                        [*response.headers.multi_items(), ("set-cookie", header)]
                    )
            broken = False
            return response
        except FetchError as error:
            broken = error.code == BROWSER
            raise
        finally:
            if page is not None:
                broken = await self._close(chromium, page) or broken
            self._shelf.give_back(slot, self._clock(), broken=broken)

    async def _close(self, chromium: Chromium, page: Page) -> bool:
        """Close a page; return whether that failed. If it hangs, Chromium is stopped."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await page.close()
        except Error:
            return True  # it has ended already, and its context is unusable
        except TimeoutError:
            self._drop_chromium(chromium)
            return True
        return False

    def _failures_in(self, gate: BrowserGate) -> Callable[[str], FetchError | None]:
        def failure_of(url: str) -> FetchError | None:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            return gate.failures.get((parts.hostname or "", port))

        return failure_of

    # ------------------------------------------------------------ contexts

    async def _open_context(
        self,
        chromium: Chromium,
        url: str,
        headers: Mapping[str, str],
        limits: HopLimits,
        settings: Browser,
    ) -> tuple[Slot, _OpenContext]:
        agent = plan.user_agent(headers)
        scope = (limits.run, origin_of(url), limits.guard.policy, limits.proxy, limits.verify_tls)
        key = (*scope, agent, settings.viewport)
        async with self._making:  # the second page of a key waits for the context that the first
            # one creates
            slot = self._shelf.take(key, self._clock())
            if slot is not None:
                open_context = self._contexts[slot.number]
                if slot.running == 1 and not limits.cookies:
                    await self._forget_cookies(slot, open_context)
                return slot, open_context
            open_context = await self._make(chromium, agent, limits, settings)
            if self._chromium is not chromium:
                await open_context.gate.aclose()
                raise fetch_error(BROWSER, f"{url}: Chromium has ended")
            slot = self._shelf.add(key, self._clock())
            self._contexts[slot.number] = open_context
            return slot, open_context

    async def _make(
        self, chromium: Chromium, agent: str, limits: HopLimits, settings: Browser
    ) -> _OpenContext:
        gate = BrowserGate(
            limits.guard,
            limits.connect_s,
            self.gates,
            upstream=limits.proxy,
            look_up=self._look_up,
        )
        await gate.open()
        try:
            context = await chromium.browser.new_context(
                user_agent=agent or None,
                viewport={"width": settings.viewport[0], "height": settings.viewport[1]},
                ignore_https_errors=not limits.verify_tls,
                accept_downloads=False,
                service_workers="block",  # they would answer requests of pages, and outlive them
                proxy={"server": gate.server},
            )
            await context.route("**/*", _refuse)
        except BaseException:
            await gate.aclose()
            raise
        return _OpenContext(context, gate)

    async def _forget_cookies(self, slot: Slot, open_context: _OpenContext) -> None:
        """Clear the cookies, because the job does not keep them between pages."""
        try:
            await open_context.context.clear_cookies()
        except BaseException:
            self._shelf.give_back(slot, self._clock(), broken=True)
            raise

    async def _drop(self, slots: list[Slot]) -> None:
        for slot in slots:
            open_context = self._contexts.pop(slot.number, None)
            if open_context is not None:
                with contextlib.suppress(Error, TimeoutError):  # gone with Chromium
                    async with asyncio.timeout(CLOSE_S):
                        await open_context.context.close()
                await open_context.gate.aclose()

    # ------------------------------------------------------------ Chromium

    async def _running_chromium(self) -> Chromium:
        async with self._starting:
            if self._closed:
                raise fetch_error(ENGINE, "the engine is closed")
            if self._chromium is not None:
                return self._chromium
            if self._failed_at is not None and self._clock() - self._failed_at[0] < REST_S:
                raise self._failed_at[1]
            await self._clean_up()
            chromium = Chromium(self._executable, lambda: self._drop_chromium(chromium))
            try:
                await chromium.start()
            except FetchError as error:
                self._failed_at = self._clock(), error
                raise
            if chromium.unsandboxed:
                self._note("browser_unsandboxed", f"as root, and {chromium.unsandboxed}")
            self._chromium, self._used_at = chromium, self._clock()
            if self._keeper is None or self._keeper.done():
                keep = self._keep()
                self._keeper = asyncio.get_running_loop().create_task(keep, name="browser")
            return chromium

    def _drop_chromium(self, chromium: Chromium) -> None:
        """Drop a Chromium that has ended or must end; the next page starts another."""
        if self._chromium is not chromium:
            return
        self._chromium = None
        self._ended.append((chromium, list(self._contexts.values())))
        self._contexts.clear()
        self._shelf.clear()

    async def _clean_up(self) -> None:
        """Clean up after each Chromium that has ended."""
        while self._ended:
            chromium, open_contexts = self._ended.pop()
            await chromium.stop()
            for open_context in open_contexts:
                await open_context.gate.aclose()

    async def _keep(self) -> None:
        """Watch the memory of Chromium, close idle contexts, and stop it when it is unused."""
        while self._chromium is not None or self._ended:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._check_once()
            except Exception as error:  # for example, Chromium has just ended: the next check
                # handles it
                self._note("browser_keeper_failed", in_full(error))

    async def _check_once(self) -> None:
        now = self._clock()
        await self._drop(self._shelf.expired(now))
        chromium = self._chromium
        if chromium is not None and self._open:
            chromium.end_large_renderers(max(self._open.values()))
        elif chromium is not None and now - self._used_at >= IDLE_S:
            self._drop_chromium(chromium)
        await self._clean_up()


async def _refuse(route: Route) -> None:
    """Refuse the requests of popups."""
    with contextlib.suppress(Error):  # it is closed already
        await route.abort("blockedbyclient")
