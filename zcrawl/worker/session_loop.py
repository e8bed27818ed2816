"""An engine for one run that has more to it than plain requests: identities, credentials,
cookies, proxies, a login.

Made by `pipeline_loop` when it adopts such a run, around the worker's own engine; a run without
any of it never comes here. A proxy's failure is no failure of the page: the request goes through
another one, and when all are down the page is postponed, with that reason and no attempt counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from zcrawl.errors import FetchError
from zcrawl.fetch.cookies_httpx import CookieStore
from zcrawl.fetch.identity import Identity
from zcrawl.fetch.policy import RETRY_CLASS_OF
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.fetch.proxies import Busy, Down, ProxyPool, Take
from zcrawl.fetch.secrets import expand
from zcrawl.frontier.url import origin_of
from zcrawl.submit.spec import JobSpec
from zcrawl.worker.login_loop import LoginStep

NextHop = Callable[[], Awaitable[None]]
What = tuple[str, bytes] | None  # method and body; None: a plain GET
MOST_PROXIES_TRIED: Final = 5  # for one request


def kept_cookies(jar: bytes) -> dict[str, bytes]:
    """The cookies by host that came with a run's configuration; none if they cannot be read."""
    try:
        hosts = msgspec.json.decode(jar, type=dict[str, str]) if jar else {}
    except msgspec.MsgspecError:
        return {}  # the servers will set them again
    return {host: cookies.encode() for host, cookies in hosts.items()}


class Session:
    """`fetch.ports.Engine` for one run. Raises JobError for a secret that is not set."""

    def __init__(
        self,
        spec: JobSpec,
        engine: Engine,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        cookies: Mapping[str, bytes],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._identity = Identity(spec.fetch, environ)
        self._agent = spec.fetch.user_agent
        # A login without cookies would be forgotten by the next request.
        self.cookies = CookieStore(cookies) if spec.fetch.cookies or spec.login.url else None
        proxies = [expand(proxy, environ) for proxy in spec.fetch.proxies]
        fetch = spec.fetch
        self.pool = ProxyPool(proxies, fetch.proxy_rotation, fetch.proxy_limit) if proxies else None
        self._settled = asyncio.Event()  # a proxy has become free, for those who wait
        self._login = LoginStep(spec.login, environ, clock) if spec.login.url else None

    def user_agent(self, origin: str) -> str:
        """As whom robots.txt is read."""
        return self._identity.user_agent(origin, self._agent)

    async def prepare(
        self, url: str, headers: Mapping[str, str], limits: HopLimits, next_hop: NextHop
    ) -> None:
        """Whatever has to happen before the first page of its host; FetchError if it fails."""
        if self._login is not None and self._login.concerns(url):
            await self._login.ensure(self, headers, limits, next_hop)

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        return await self._send(url, headers, limits, None)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        return await self._send(url, headers, limits, (method, body))

    async def aclose(self) -> None:
        """The worker's engine is not this run's to close."""

    async def _send(
        self, url: str, headers: Mapping[str, str], limits: HopLimits, what: What
    ) -> Response:
        origin = origin_of(url)
        headers = {**headers, **self._identity.headers(origin)}
        if self.cookies is not None:
            cookie = self.cookies.header(url)
            if cookie:
                headers["Cookie"] = cookie
        if self.pool is None:
            response = await self._ask(url, headers, limits, what)
        else:
            response = await self._through_a_proxy(self.pool, origin, url, headers, limits, what)
        if self.cookies is not None:
            self.cookies.take(url, response)
        return response

    async def _ask(
        self, url: str, headers: Mapping[str, str], limits: HopLimits, what: What
    ) -> Response:
        if what is None:
            return await self._engine.get(url, headers, limits)
        method, body = what
        return await self._engine.send(method, url, headers, body, limits)

    async def _through_a_proxy(
        self,
        pool: ProxyPool,
        origin: str,
        url: str,
        headers: Mapping[str, str],
        limits: HopLimits,
        what: What,
    ) -> Response:
        tried: frozenset[str] = frozenset()
        last = ""
        while True:
            choice = pool.take(origin, self._clock(), tried)
            match choice:
                case Busy():
                    self._settled.clear()
                    await self._settled.wait()
                case Down(until):
                    raise _proxies_down(until - self._clock(), last)
                case Take(proxy):
                    good: bool | None = None
                    try:
                        response = await self._ask(
                            url, headers, msgspec.structs.replace(limits, proxy=proxy), what
                        )
                        good = True
                        return response
                    except FetchError as error:
                        good = error.code != "proxy"
                        if good:
                            raise
                        last, tried = str(error), tried | {proxy}
                        if len(tried) >= MOST_PROXIES_TRIED:
                            raise _proxies_down(1.0, last) from error
                    finally:
                        pool.settle(proxy, good, self._clock())
                        self._settled.set()


def _proxies_down(wait_s: float, last: str) -> FetchError:
    detail = f"; the last one said: {last}" if last else ""
    code = "proxies_down"
    message = f"no proxy can be used now{detail}"
    wait_s = max(1.0, wait_s)
    return FetchError(message, code=code, retry=RETRY_CLASS_OF[code], retry_after_s=wait_s)
