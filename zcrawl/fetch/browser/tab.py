"""Visit one page in the browser: load, render, click and scroll, read. Called by `engine`.

Redirects of the document are returned, not followed: the pipeline follows them and applies
robots.txt, pace and scope, as for every engine. The same holds for a page that navigates to another
URL by script or meta refresh. Bodies that are not HTML are returned unchanged.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal

import httpx
from playwright.async_api import BrowserContext, CDPSession, Error, Page, Request, Route

from zcrawl.errors import BadUrl, FetchError
from zcrawl.fetch import browser_plan as plan
from zcrawl.fetch.policy import MAX_MESSAGE, fetch_error
from zcrawl.fetch.ports import HopLimits
from zcrawl.frontier.url import canonicalize, origin_of
from zcrawl.model.reasons.failure import BROWSER, CONNECT, ENGINE, RESET, TOO_LARGE
from zcrawl.model.spec import Browser

IDLE_S: Final = 5.0  # longest wait until the network is idle
CLICK_S: Final = 3.0  # longest wait until a visible element can be clicked
SCROLL_PAUSE_S: Final = 0.1
GROW_S: Final = 2.0  # longest wait at the end of a page for more content
MOST_SHOT_PIXELS: Final = 16_000  # height; Chromium draws no larger picture
_PIECE: Final = 262_144
_STATE: Final[dict[str, Literal["domcontentloaded", "load"]]] = {
    "dom": "domcontentloaded",
    "load": "load",
    "idle": "load",
}
_SCROLL: Final = """() => {
  const root = document.scrollingElement || document.documentElement;
  window.scrollBy(0, window.innerHeight);
  return [Math.ceil(window.scrollY + window.innerHeight), root.scrollHeight];
}"""
_GROWN: Final = "height => (document.scrollingElement || document.body).scrollHeight > height"
_SIZE: Final = """() => {
  const root = document.scrollingElement || document.documentElement;
  window.scrollTo(0, 0);
  return [root.scrollWidth, root.scrollHeight];
}"""

FailureOf = Callable[[str], FetchError | None]


class Tab:
    """One visit of a page. `failure_of` returns why a connection for a URL failed."""

    def __init__(
        self,
        page: Page,
        url: str,
        headers: Mapping[str, str],
        limits: HopLimits,
        settings: Browser,
        failure_of: FailureOf,
    ) -> None:
        self._page = page
        self._url = url
        self._origin = origin_of(url)
        self._headers = plan.own_headers(headers)
        self._limits = limits
        self._settings = settings
        self._failure_of = failure_of
        self._budget = plan.RequestBudget(settings)
        self._frame = ""  # the main frame's id in the protocol
        self._documents = 0  # requested by the main frame
        self._clicked = False
        self._status = 0
        self._answer_headers: list[tuple[str, str]] = []
        # The early end of the visit: an answer that is not rendered, or a crash.
        self._early_end: asyncio.Future[httpx.Response] = asyncio.get_running_loop().create_future()

    async def visit(self, context: BrowserContext) -> httpx.Response:
        """Return the answer; FetchError for every failure of page, server or browser."""
        steps = asyncio.ensure_future(self._steps(context))
        try:
            await asyncio.wait({steps, self._early_end}, return_when=asyncio.FIRST_COMPLETED)
            if self._early_end.done():
                return self._early_end.result()
            return steps.result()
        except Error as error:
            raise self._translate(error) from error
        finally:
            steps.cancel()
            with contextlib.suppress(asyncio.CancelledError, Error, FetchError):
                await steps  # the visit is over, so its result is not needed
            if not self._early_end.cancel():
                self._early_end.exception()  # marks the exception as retrieved

    def _translate(self, error: Error) -> FetchError:
        code = plan.code_of(error.message)
        if code in (CONNECT, RESET, ENGINE):
            failure = self._failure_of(self._url)
            if failure is not None:
                return failure
        first = error.message.partition("\n")[0]
        return fetch_error(code, f"{self._url}: {first}"[:MAX_MESSAGE])

    # ------------------------------------------------------------ the steps

    async def _steps(self, context: BrowserContext) -> httpx.Response:
        page, settings = self._page, self._settings
        page.on("crash", lambda _: self._fail(BROWSER, "the page crashed"))
        page.on("popup", _close)
        await page.route("**/*", self._on_request)
        session = await context.new_cdp_session(page)
        tree = await session.send("Page.getFrameTree")
        self._frame = tree["frameTree"]["frame"]["id"]
        session.on("Fetch.requestPaused", self._handler(session, self._on_paused))
        patterns = [{"resourceType": "Document", "requestStage": "Response"}]
        if self._headers:
            patterns.append({"urlPattern": f"{self._origin}/*", "requestStage": "Request"})
        await session.send("Fetch.enable", {"patterns": patterns})
        try:
            await page.goto(self._url, wait_until=_STATE[settings.wait], timeout=0)
        except Error:
            if self._early_end.done():
                return self._early_end.result()
            raise
        await self._wait_until_idle()
        if settings.wait_for:
            await page.wait_for_selector(settings.wait_for, state="attached", timeout=0)
        for selector in settings.click:
            await self._click(selector)
        if settings.scroll:
            await self._scroll(settings.scroll)
        if settings.wait_s:
            await page.wait_for_timeout(settings.wait_s * 1000)
        return await self._read()

    async def _wait_until_idle(self) -> None:
        """Wait until the network is idle, if the job wants that; some pages never are."""
        if self._settings.wait == "idle":
            with contextlib.suppress(Error):  # timeout: the page is read as it is
                await self._page.wait_for_load_state("networkidle", timeout=IDLE_S * 1000)

    async def _click(self, selector: str) -> None:
        """Click an element. A missing one is ignored, because not every page has a banner."""
        place = self._page.locator(selector).first
        if not await place.is_visible():
            return
        self._clicked = True
        with contextlib.suppress(Error):
            await place.click(timeout=CLICK_S * 1000)
        await self._page.wait_for_load_state("load", timeout=0)
        await self._wait_until_idle()

    async def _scroll(self, screens: int) -> None:
        for _ in range(screens):
            bottom, height = await self._page.evaluate(_SCROLL)
            if bottom < height:
                await self._page.wait_for_timeout(SCROLL_PAUSE_S * 1000)
                continue
            try:  # at the end: some pages load more content now
                await self._page.wait_for_function(_GROWN, arg=height, timeout=GROW_S * 1000)
            except Error:
                break
        await self._wait_until_idle()

    async def _read(self) -> httpx.Response:
        page, settings = self._page, self._settings
        files: dict[str, bytes] = {}
        if settings.screenshot:
            files["screenshot"] = await self._shot(settings.screenshot == "page")
        if settings.pdf:
            files["pdf"] = await page.pdf(print_background=True)
        body = (await page.content()).encode("utf-8", "replace")
        if len(body) > self._limits.max_bytes:
            raise fetch_error(TOO_LARGE, f"{len(body)} bytes, {self._limits.max_bytes} allowed")
        headers = plan.rendered_headers(self._answer_headers)
        extensions: dict[str, Any] = {"rendered": True}
        with contextlib.suppress(BadUrl):  # not a crawlable URL, such as about:blank
            extensions["final_url"] = canonicalize(page.url)
        if files:
            extensions["files"] = files
        return self._response(self._status, headers, body, **extensions)

    async def _shot(self, whole: bool) -> bytes:
        if not whole:
            return await self._page.screenshot(animations="disabled")
        width, height = await self._page.evaluate(_SIZE)
        most = max(width, self._settings.viewport[0])
        area = {"x": 0, "y": 0, "width": most, "height": min(height, MOST_SHOT_PIXELS)}
        return await self._page.screenshot(full_page=True, clip=area, animations="disabled")  # type: ignore[arg-type]

    def _response(
        self, status: int, headers: list[tuple[str, str]], body: bytes, **extensions: Any
    ) -> httpx.Response:
        return httpx.Response(
            status,
            headers=[(k.encode("latin-1", "replace"), v.encode("utf-8")) for k, v in headers],
            content=body,
            request=httpx.Request("GET", self._url),
            extensions=extensions,
        )

    # ------------------------------------------------------------ requests of the page

    async def _on_request(self, route: Route, request: Request) -> None:
        with contextlib.suppress(Error):  # the page is closed already
            if await self._allowed(request):
                await route.continue_()
            else:  # for other reasons than "aborted" Chromium shows an error page
                await route.abort("aborted" if self._is_main(request) else "blockedbyclient")

    async def _allowed(self, request: Request) -> bool:
        if not self._is_main(request):
            return self._budget.allows(request.resource_type, request.url)
        self._documents += 1
        if self._documents == 1:
            return True
        match plan.on_move(self._page.url, request.url, self._documents - 2, self._clicked):
            case plan.NavigationDecision.FOLLOW:
                return True
            case plan.NavigationDecision.REPORT:
                self._end(self._response(302, [("location", request.url)], b""))
                return False
            case plan.NavigationDecision.REFUSE:
                return False

    def _is_main(self, request: Request) -> bool:
        if not request.is_navigation_request():
            return False
        return request.frame == self._page.main_frame

    async def _add_headers(self, session: CDPSession, event: dict[str, Any]) -> None:
        """Add the job's headers to requests to the page's own origin only: they may be credentials.

        Uses the protocol, because playwright would also send them to the targets of redirects."""
        request, paused_request = {"requestId": event["requestId"]}, event["request"]
        if not paused_request["url"].startswith(self._origin + "/"):
            await session.send("Fetch.continueRequest", request)
            return
        kept = {
            k: v for k, v in paused_request["headers"].items() if k.lower() not in self._headers
        }
        pairs = [{"name": k, "value": v} for k, v in {**kept, **self._headers}.items()]
        await session.send("Fetch.continueRequest", {**request, "headers": pairs})

    # ------------------------------------------------------------ answers

    def _handler(
        self,
        session: CDPSession,
        handle: Callable[[CDPSession, dict[str, Any]], Coroutine[Any, Any, None]],
    ) -> Callable[[dict[str, Any]], Awaitable[None]]:
        async def handler(event: dict[str, Any]) -> None:
            try:
                await handle(session, event)
            except FetchError as error:
                if not self._early_end.done():
                    self._early_end.set_exception(error)
            except Error:
                pass  # the page is closed, or Chromium gave this request up: `goto` reports it

        return handler

    async def _on_paused(self, session: CDPSession, event: dict[str, Any]) -> None:
        if "responseStatusCode" in event or "responseErrorReason" in event:
            await self._on_answer(session, event)
        else:
            await self._add_headers(session, event)

    async def _on_answer(self, session: CDPSession, event: dict[str, Any]) -> None:
        """Decide about the answer to a document, before the browser uses it."""
        request = {"requestId": event["requestId"]}
        if event["frameId"] != self._frame or "responseErrorReason" in event:
            await session.send("Fetch.continueResponse", request)
            return
        status = int(event["responseStatusCode"])
        pairs = [(h["name"], h["value"]) for h in event.get("responseHeaders", ())]
        headers = {name.lower(): value for name, value in pairs}
        if self._documents > 1:
            if not plan.on_later_answer(status, headers.get("location", ""), self._origin):
                await session.send("Fetch.failRequest", {**request, "errorReason": "Aborted"})
                return
            self._status, self._answer_headers = status, pairs
            await session.send("Fetch.continueResponse", request)
            return
        self._status, self._answer_headers = status, pairs
        step = plan.on_answer(status, headers)
        if step is plan.Step.RENDER:
            await session.send("Fetch.continueResponse", request)
            return
        body = b""
        if step is plan.Step.TAKE:
            body = await self._body(session, request)
        self._end(self._response(status, plan.taken_headers(pairs), body))
        await session.send("Fetch.failRequest", {**request, "errorReason": "Aborted"})

    async def _body(self, session: CDPSession, request: dict[str, str]) -> bytes:
        """Read the whole body in pieces, so that an endless body is refused."""
        handle = (await session.send("Fetch.takeResponseBodyAsStream", request))["stream"]
        body = bytearray()
        while True:
            piece = await session.send("IO.read", {"handle": handle, "size": _PIECE})
            data = piece["data"]
            body += base64.b64decode(data) if piece.get("base64Encoded") else data.encode()
            if len(body) > self._limits.max_bytes:
                raise fetch_error(TOO_LARGE, f"more than {self._limits.max_bytes} bytes")
            if piece["eof"]:
                return bytes(body)

    def _end(self, response: httpx.Response) -> None:
        if not self._early_end.done():
            self._early_end.set_result(response)

    def _fail(self, code: str, why: str) -> None:
        if not self._early_end.done():
            self._early_end.set_exception(fetch_error(code, f"{self._url}: {why}"))


async def _close(popup: Page) -> None:
    """Close a popup; its context refuses all its requests."""
    with contextlib.suppress(Error):  # it closed by itself
        await popup.close()
