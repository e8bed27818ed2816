"""An engine for a run with identities, credentials, cookies, proxies or a login.

Made by `pipeline` when it adopts such a run, around the worker's own engine; a run without
any of it never comes here. If a proxy fails, the request goes through another one. When all are
down, the page is postponed, and no attempt is counted. If it is not clear whether proxy or server
failed, another proxy is tried, at once or, if that took long, with the page's next attempt. If the
second proxy works, the failure counts against the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from zcrawl.errors import FetchError
from zcrawl.fetch.identity import Identity
from zcrawl.fetch.keyring import RunSecrets
from zcrawl.fetch.policy import RETRY_CLASS_OF
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.fetch.proxies import Busy, Down, ProxyPool, Take
from zcrawl.fetch.wire.cookie_jar import CookieStore
from zcrawl.frontier.url import origin_of
from zcrawl.model.reasons.failure import (
    HTTP2,
    PROTOCOL,
    PROXIES_DOWN,
    PROXY,
    READ_TIMEOUT,
    RESET,
    TOTAL_TIMEOUT,
    TRUNCATED,
)
from zcrawl.model.spec import JobSpec
from zcrawl.worker.pipeline.fetching import rest_of
from zcrawl.worker.pipeline.login import LoginStep

NextHop = Callable[[], Awaitable[None]]
What = tuple[str, bytes] | None  # method and body; None: a plain GET
MOST_PROXIES_TRIED: Final = 5  # for one request
_TOOK_LONG: Final = frozenset((READ_TIMEOUT, TOTAL_TIMEOUT))
# Failures of either the proxy or the server: only another proxy can show which.
_WHOSE: Final = _TOOK_LONG | {TRUNCATED, PROTOCOL, RESET, HTTP2}
_MOST_SUSPECTED: Final = 10_000  # URLs


def kept_cookies(jar: bytes) -> dict[str, bytes]:
    """Return the cookies by host from a run's configuration; none if they cannot be read."""
    try:
        hosts = msgspec.json.decode(jar, type=dict[str, str]) if jar else {}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}  # the servers will set them again
    return {host: cookies.encode() for host, cookies in hosts.items()}


class RunClient:
    """`fetch.ports.Engine` for one run. Raises JobError for a secret that is not set, or not
    released for the proxy that needs it."""

    def __init__(
        self,
        spec: JobSpec,
        engine: Engine,
        secrets: RunSecrets,
        clock: Callable[[], float],
        cookies: Mapping[str, bytes],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._identity = Identity(spec.fetch, secrets)
        self._agent = spec.fetch.user_agent
        # A login without cookies would be forgotten by the next request.
        self.cookies = CookieStore(cookies) if spec.fetch.cookies or spec.login.url else None
        proxies = [secrets.proxy(proxy) for proxy in spec.fetch.proxies]
        fetch = spec.fetch
        self.pool = ProxyPool(proxies, fetch.proxy_rotation, fetch.proxy_limit) if proxies else None
        self._settled = asyncio.Event()  # set when a proxy becomes free
        self._proxy_said = ""  # the error of the last proxy that failed
        self._suspects: dict[str, frozenset[str]] = {}  # URL → proxies through which it failed
        self._login = LoginStep(spec.login, secrets, clock) if spec.login.url else None

    def user_agent(self, origin: str) -> str:
        """The name under which robots.txt is read."""
        return self._identity.user_agent(origin, self._agent)

    def missing_secrets(self, url: str) -> frozenset[str]:
        """Return the secrets that a request for this URL needs and may not get."""
        names = self._identity.missing_secrets(origin_of(url))
        if self._login is not None and self._login.concerns(url):
            names |= self._login.missing_secrets
        return names

    async def prepare(
        self, url: str, headers: Mapping[str, str], limits: HopLimits, next_hop: NextHop
    ) -> None:
        """Log in if needed before the first page of a host; FetchError if that fails."""
        if self._login is not None and self._login.concerns(url):
            await self._login.ensure(self, headers, limits, next_hop)

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> Response:
        return await self._send(url, headers, limits, None)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> Response:
        return await self._send(url, headers, limits, (method, body))

    async def aclose(self) -> None:
        """Close what belongs to this run, not the worker's engine."""

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
        began = self._clock()
        suspects = self._suspects.pop(url, frozenset())
        tried = suspects
        doubt: FetchError | None = None  # the failure of one proxy while another is tried
        while True:
            choice = pool.take(origin, self._clock(), tried)
            match choice:
                case Busy():
                    self._settled.clear()
                    await self._settled.wait()
                case Down(until):
                    raise doubt or _proxies_down(until - self._clock(), self._proxy_said)
                case Take(proxy):
                    good: bool | None = None
                    try:
                        left = limits if doubt is None else rest_of(limits, self._clock() - began)
                        response = await self._ask(
                            url, headers, msgspec.structs.replace(left, proxy=proxy), what
                        )
                        good = True
                        for suspect in suspects:
                            pool.blame(suspect, self._clock())
                        return response
                    except FetchError as error:
                        good = error.code != PROXY
                        if good:
                            good = None if error.code in _WHOSE else True
                            if good or pool.count == 1 or what is not None:
                                raise
                            if doubt is not None or error.code in _TOOK_LONG:
                                self._suspect(url, suspects | {proxy}, pool.count)
                                raise
                            doubt, suspects = error, suspects | {proxy}
                        self._proxy_said, tried = str(error), tried | {proxy}
                        if len(tried) >= MOST_PROXIES_TRIED:
                            raise doubt or _proxies_down(1.0, self._proxy_said) from error
                    finally:
                        pool.settle(proxy, good, self._clock())
                        self._settled.set()

    def _suspect(self, url: str, proxies: frozenset[str], count: int) -> None:
        """Use another proxy for the next attempt of this URL, to see which one failed."""
        if len(proxies) >= count:
            return
        if len(self._suspects) >= _MOST_SUSPECTED:
            self._suspects.clear()
        self._suspects[url] = proxies


def _proxies_down(wait_s: float, last: str) -> FetchError:
    detail = f"; the last error was: {last}" if last else ""
    code = PROXIES_DOWN
    message = f"all proxies are down{detail}"
    wait_s = max(1.0, wait_s)
    return FetchError(message, code=code, retry=RETRY_CLASS_OF[code], retry_after_s=wait_s)
