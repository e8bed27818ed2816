"""The login step: fetch the page with the form, fill it in, send it, look whether it worked.

Called by `session` before the first page of the form's host, once per worker and run. Every
request of it waits for the host's pace like any other. Who comes while a login is under way waits
for its end; one that failed is tried again after a minute at the earliest.

The host of a login is a web site like any other: its pages are parsed only if `parse.cost` accepts
them, and decoded by `parse.charset`, because Python's own codecs include some that take quadratic
time or raise errors (`charset=punycode`, `charset=hex`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlencode

from zcrawl.errors import BadUrl, FetchError, RetryClass, TooManySteps
from zcrawl.fetch.headers import header_of
from zcrawl.fetch.keyring import RunSecrets, not_released
from zcrawl.fetch.policy import REDIRECT_STATUSES
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.frontier.url import canonicalize, join, origin_of
from zcrawl.model.reasons.failure import LOGIN_FAILED
from zcrawl.model.spec import Login
from zcrawl.parse.charset import decode
from zcrawl.parse.cost import ParsePlace, TooCostly, judge
from zcrawl.parse.forms import MAX_FORM_BYTES, HtmlForm, find_form
from zcrawl.text.expressions import compile_pattern

MAX_HOPS: Final = 5
FAILURE_KEPT_S: Final = 60.0
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


NextHop = Callable[[], Awaitable[None]]


class LoginStep:
    def __init__(self, login: Login, secrets: RunSecrets, clock: Callable[[], float]) -> None:
        self._url = canonicalize(login.url)
        self._origin = origin_of(self._url)
        sealed = secrets.sealed("", *login.fields.values())
        self.missing_secrets = sealed.missing_secrets(
            self._url
        )  # secrets that keep it from being sent
        # All requests of a login stay on this origin, so what may go to its URL may go to all.
        values = sealed.values_for(self._url) or ()
        self._fields = dict(zip(login.fields, values, strict=False))
        self._success = compile_pattern(login.success, "login.success") if login.success else None
        self._clock = clock
        self._lock = asyncio.Lock()
        self._done = False
        self._failed: FetchError | None = None
        self._failed_at = 0.0

    def concerns(self, url: str) -> bool:
        return not self._done and origin_of(url) == self._origin

    async def ensure(
        self, engine: Engine, headers: Mapping[str, str], limits: HopLimits, next_hop: NextHop
    ) -> None:
        """Logged in, when this returns; FetchError login_failed, or what the network did."""
        async with self._lock:
            if self._done:
                return
            if self._failed is not None and self._clock() - self._failed_at < FAILURE_KEPT_S:
                raise self._failed
            try:
                await self._log_in(engine, headers, limits, next_hop)
            except BadUrl as error:
                self._failed, self._failed_at = _failed(str(error)), self._clock()
                raise self._failed from None
            except FetchError as error:
                self._failed, self._failed_at = error, self._clock()
                raise
            self._done = True

    async def _log_in(
        self, engine: Engine, headers: Mapping[str, str], limits: HopLimits, next_hop: NextHop
    ) -> None:
        if self.missing_secrets:
            raise not_released(self.missing_secrets, self._url)
        # The first request goes on the permit of the page that waits for all this.
        url, response = await self._follow(engine, self._url, headers, limits, next_hop)
        form = await self._form(url, response)
        if form is None:
            names = ", ".join(self._fields)
            raise _failed(
                f"{url} has no form with the fields {names} (status {response.status_code})"
            )
        target = join(url, form.action) if form.action else url
        if origin_of(target) != self._origin:
            raise _failed(f"the form at {url} sends elsewhere: {target}")
        body = urlencode({**form.hidden, **self._fields}).encode()
        await next_hop()
        response = await engine.send("POST", target, {**headers, **FORM}, body, limits)
        if response.status_code in REDIRECT_STATUSES and response.headers.get("location"):
            onward = join(target, response.headers["location"])
            await next_hop()
            target, response = await self._follow(engine, onward, headers, limits, next_hop)
        if response.status_code >= 400:
            raise _failed(f"{target} answered with status {response.status_code}")
        if self._success is not None and not self._is_success(response):
            raise _failed(f"{target} does not have what login.success looks for")
        await next_hop()  # for the page itself

    async def _form(self, url: str, response: Response) -> HtmlForm | None:
        """Return the form of the page; FetchError if the page would take too long to parse."""
        markup = response.content[:MAX_FORM_BYTES]
        try:
            place = judge(markup, fingerprint=False, selectors=None).place
        except TooCostly as reason:
            raise _failed(f"{url} would take too long to parse: {reason}") from None
        if place is ParsePlace.THREAD:
            return await asyncio.to_thread(find_form, markup, self._fields)
        return find_form(markup, self._fields)

    def _is_success(self, response: Response) -> bool:
        assert self._success is not None
        content_type = header_of(response, b"content-type") or ""
        try:
            return self._success.found_in(decode(response.content, content_type)[0])
        except TooManySteps as error:
            raise _failed(f"login.success: {error}") from None

    async def _follow(
        self,
        engine: Engine,
        url: str,
        headers: Mapping[str, str],
        limits: HopLimits,
        next_hop: NextHop,
    ) -> tuple[str, Response]:
        for _ in range(MAX_HOPS):
            response = await engine.get(url, headers, limits)
            location = response.headers.get("location")
            if response.status_code not in REDIRECT_STATUSES or not location:
                return url, response
            url = join(url, location)
            if origin_of(url) != self._origin:
                raise _failed(f"the login leads to another host: {url}")
            await next_hop()
        raise _failed(f"more than {MAX_HOPS} redirects")


def _failed(message: str) -> FetchError:
    return FetchError(
        f"login: {message}",
        code=LOGIN_FAILED,
        retry=RetryClass.TRANSIENT,
        retry_after_s=FAILURE_KEPT_S,
    )
