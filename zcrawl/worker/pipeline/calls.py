"""The calls of a job of kind http: one request, its redirects, and what is expected of the answer.

Made by `pipeline` when it adopts a run of such a job; for all other runs this module is not even
loaded. A call goes through the same engine, address guard and pace as a page, but not through
robots.txt, which is for crawlers. `results.http_answers` decides what an answer means.

A redirect within the origin is followed here, at the pace of the host. A redirect to another origin
becomes a request of its own, because that host has a pace and perhaps an owner of its own. It
carries the method and where it comes from, but no secret and no body: the worker that gets it takes
them from the job, as far as they are released for the new host.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from zcrawl.errors import FetchError, StoreError
from zcrawl.fetch.headers import header_of
from zcrawl.fetch.keyring import HeaderSecrets, not_released
from zcrawl.fetch.policy import (
    REDIRECT_STATUSES,
    FollowRedirect,
    RedirectChain,
    fetch_error,
    parse_retry_after,
)
from zcrawl.fetch.ports import Engine, HopLimits, Response
from zcrawl.frontier.extra import Extra, decode, encode, redirect_key, request_key
from zcrawl.mesh.messages import PageRecord
from zcrawl.model.reasons.failure import REDIRECT_LOOP, TOO_MANY_REDIRECTS
from zcrawl.model.spec import HTTP
from zcrawl.parse.extract.item_schema import compile_check
from zcrawl.text.redact import Redactor
from zcrawl.worker.pipeline.fetching import BlobWriter, Fetching, rest_of
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.http_answers import (
    MOST_INLINE,
    Expectations,
    Unmet,
    failure_of,
    item_of,
    onward,
)
from zcrawl.worker.results.items import apply_item_schema

JSON: Final = "application/json"
THREAD_BYTES: Final = 65_536  # a longer body is looked at in a thread
# Headers that must not be sent to another host after a redirect.
_PRIVATE: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_FROM: Final = "from"  # in the metadata of a redirected request: the URLs before it
_BODY: Final = "body"  # and whether the body is sent again

Wait = Callable[[], Awaitable[None]]


class Pauses(msgspec.Struct, frozen=True):
    """What a call waits for: the host's pace before a redirect, the worker's own limits."""

    next_hop: Wait
    before_start: Wait
    after_answer: Callable[[Response], Awaitable[None]]


class HttpCalls:
    """The calls of one run. JobError for a secret that is not set."""

    def __init__(self, context: RunContext, blobs: BlobWriter | None) -> None:
        spec, secrets = context.spec, context.secrets
        self._context, self._blobs = context, blobs
        self._task = task = spec.http
        most_s = spec.attempt_s
        self._limits = msgspec.structs.replace(
            context.limits,
            total_s=most_s,
            connect_s=min(spec.fetch.connect_timeout, most_s),
            read_s=min(spec.fetch.read_timeout, most_s),
        )
        self._expectations = Expectations(task.expect)
        self._check = compile_check(spec.schema, "schema") if spec.schema else None
        self._headers = HeaderSecrets(task.headers, secrets)
        self._body = secrets.sealed("{}", task.body)
        auth = task.auth
        self._auth = (
            secrets.sealed("{}", auth.bearer)
            if auth.bearer
            else secrets.sealed("{}:{}", auth.user, auth.password)
        )
        logins = [(auth.user, auth.password), *((a.user, a.password) for a in spec.fetch.auth)]
        self._redactor = secrets.redactor(
            _texts(msgspec.to_builtins((task, spec.fetch))),
            [f"{user}:{password}" for user, password in logins if password],
        )

    async def do(
        self,
        fetch: Fetching,
        engine: Engine,
        pauses: Pauses,
        clock: Callable[[], float],
        utc: Callable[[], float],
    ) -> Attempt:
        """Make the call; return the attempt with its end. FetchError: it failed."""
        try:
            return await self._do(fetch, engine, pauses, clock, utc)
        except FetchError as error:  # libraries quote what they could not send
            clean = self._redactor.text(str(error))
            if clean == str(error):
                raise
            raise FetchError(
                clean, code=error.code, retry=error.retry, retry_after_s=error.retry_after_s
            ) from None

    async def _do(
        self,
        fetch: Fetching,
        engine: Engine,
        pauses: Pauses,
        clock: Callable[[], float],
        utc: Callable[[], float],
    ) -> Attempt:
        attempt, assignment = fetch.attempt, fetch.attempt.assignment
        extra = decode(assignment.extra)
        earlier = _urls_before(extra)
        method = extra.method if earlier else self._task.method
        with_body = bool(extra.meta.get(_BODY)) if earlier else True
        url, limits = assignment.url, self._limits
        most = max(0, self._context.spec.fetch.max_redirects - len(earlier))
        chain = RedirectChain(url, most, self._context.rules)
        while True:
            await pauses.before_start()
            began = clock()
            response = await self._sent(engine, method, url, with_body, bool(earlier), limits)
            took_ms = (clock() - began) * 1000
            await pauses.after_answer(response)
            status = response.status_code
            if status not in REDIRECT_STATUSES or self._expectations.has_status(status):
                requested_url = earlier[0] if earlier else assignment.url
                answer = HttpAnswer(requested_url, url, method, response, took_ms, utc())
                return await self._end(attempt, answer, fetch.used_s(clock()))
            step = chain.next_hop(url, header_of(response, b"location"))
            method, again = onward(method, status)
            with_body = with_body and again
            if not isinstance(step, FollowRedirect):
                urls = [*earlier, assignment.url]
                return self._hand_over(attempt, step.url, status, method, with_body, urls, most)
            url = step.url
            await pauses.next_hop()
            limits = rest_of(self._limits, fetch.used_s(clock()))

    # ------------------------------------------------------------ the request

    async def _sent(
        self,
        engine: Engine,
        method: str,
        url: str,
        with_body: bool,
        redirected: bool,
        limits: HopLimits,
    ) -> Response:
        headers, body = self._request(url, with_body, redirected)
        if method == "GET" and not body:
            return await engine.get(url, headers, limits)
        return await engine.send(method, url, headers, body, limits)

    def _request(self, url: str, with_body: bool, redirected: bool) -> tuple[dict[str, str], bytes]:
        """Return headers and body for a URL; FetchError if it needs a secret that its host may not
        get. After a redirect to another host, headers with such secrets are left out; a body with
        one is never sent in part."""
        missing: frozenset[str] = frozenset()
        if with_body:
            missing = self._body.missing_secrets(url)
        if not redirected:
            missing |= self._headers.missing_secrets(url) | self._auth.missing_secrets(url)
        if missing:
            raise not_released(missing, url)
        own = dict(self._headers.for_url(url))
        if redirected:
            own = {
                name: value
                for name, value in own.items()
                if name.lower() not in _PRIVATE or "${" in self._task.headers.get(name, "")
            }
        if not with_body:
            own = {name: v for name, v in own.items() if not name.lower().startswith("content-")}
        lower = {name.lower() for name in own}
        base = self._context.headers_for(url)
        headers = {name: value for name, value in base.items() if name.lower() not in lower} | own
        auth = self._task.auth
        if (auth.bearer or auth.user) and not self._auth.missing_secrets(url):
            headers["Authorization"] = self._authorization(url)
        body = (self._body.text_for(url) or "") if with_body else ""
        return headers, body.encode()

    def _authorization(self, url: str) -> str:
        text = self._auth.text_for(url) or ""
        if self._task.auth.bearer:
            return f"Bearer {text}"
        return "Basic " + base64.b64encode(text.encode()).decode()

    # ------------------------------------------------------------ how it ends

    def _hand_over(
        self,
        attempt: Attempt,
        target: str,
        status: int,
        method: str,
        with_body: bool,
        urls: list[str],
        most: int,
    ) -> Attempt:
        """End with a request for the target in place of this one."""
        if target in urls:
            raise fetch_error(REDIRECT_LOOP, f"redirect back to {target}")
        if most < 1:
            raise fetch_error(TOO_MANY_REDIRECTS, f"too many redirects, next: {target}")
        attempt.redirected(target, status)
        if attempt.handover is None:
            return attempt  # not in the scope of the job
        rules, assignment = self._context.rules, attempt.assignment
        meta = {_FROM: urls, _BODY: with_body}
        extra = Extra(method=method, meta=meta, redirected=True)
        own_key = request_key(assignment.url, decode(assignment.extra), rules)
        key = redirect_key(target, extra, own_key, rules)
        attempt.handover = None
        attempt.requests = [(target, key, assignment.prio, encode(extra))]
        return attempt

    async def _end(self, attempt: Attempt, answer: HttpAnswer, used_s: float) -> Attempt:
        response = answer.response
        status, body = response.status_code, response.content
        headers = _headers_of(response)
        unmet = await self._unmet(status, headers, body, answer.took_ms)
        blob = error = ""
        if len(body) > MOST_INLINE:
            blob, error = await kept_blob(self._blobs, body, self._redactor)
        item = item_of(
            requested_url=answer.requested_url,
            url=attempt.assignment.url,
            final_url=answer.url,
            method=answer.method,
            status=status,
            headers=headers,
            body=body,
            elapsed_ms=answer.took_ms,
            attempt=attempt.assignment.attempt,
            unmet=unmet,
            redactor=self._redactor,
            blob=blob,
            blob_error=error,
        )
        if unmet and self._task.expect.fail:
            wait = header_of(response, b"retry-after")
            wait_s = None if wait is None else parse_retry_after(wait, answer.utc)
            failure = failure_of(unmet, status, wait_s)
            attempt.failed(
                self._redactor.text(failure.code),
                failure.retry,
                status=status,
                retry_after_s=failure.retry_after_s,
                detail=self._redactor.text(str(failure)),
            )
            attempt.change_extracted(failure=item)
            return attempt
        page = PageRecord(
            final_url=answer.url,
            title=None,
            content_type=JSON,
            size=len(body),
            fetched_at=answer.utc,
            elapsed_ms=used_s * 1000,
            body=blob or None,
        )
        return apply_item_schema(self._check, attempt.done(page, status, [item]), HTTP)

    async def _unmet(
        self, status: int, headers: list[tuple[str, str]], body: bytes, took_ms: float
    ) -> list[Unmet]:
        if self._expectations.reads_json and len(body) > THREAD_BYTES:
            return await asyncio.to_thread(self._expectations.unmet, status, headers, body, took_ms)
        return self._expectations.unmet(status, headers, body, took_ms)


class HttpAnswer(msgspec.Struct, frozen=True):
    requested_url: str
    url: str
    method: str
    response: Any
    took_ms: float
    utc: float


async def kept_blob(
    blobs: BlobWriter | None, data: bytes, redactor: Redactor, *, is_cut: bool = False
) -> tuple[str, str]:
    """Store data without its secrets; return the name of the blob, or why it could not be stored.

    A task is not done again because its output could not be kept: it may have changed something."""
    if blobs is None:
        return "", "there is no place for bodies here"
    put = blobs.put
    try:
        return await asyncio.to_thread(lambda: put(redactor.piece(data, cut_after=is_cut))), ""
    except StoreError as error:
        return "", f"{error.code}: {error}"


def _urls_before(extra: Extra) -> list[str]:
    """Return the URLs whose redirects led to this request; empty for a first request."""
    urls = extra.meta.get(_FROM) if extra.redirected else None
    return [url for url in urls if isinstance(url, str)] if isinstance(urls, list) else []


def _headers_of(response: Response) -> list[tuple[str, str]]:
    wire = response.extensions.get("wire_headers")
    pairs = response.headers.raw if wire is None else wire
    return [(_text(name), _text(value)) for name, value in pairs]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _texts(value: Any) -> list[str]:
    """Return all texts in a value of lists and tables."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return []
