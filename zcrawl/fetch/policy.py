"""Decide what an answer means by its status, Retry-After and Location, and classify failures.

Called by the worker's pipeline (status, redirects) and by the engines (failures), so that all
engines use the same names of failures. `RETRY_CLASS_OF` is the table of failures with their retry
classes. `body` has the limits of bodies. Pure.
"""

from __future__ import annotations

import enum
import math
from datetime import UTC

import msgspec

from zcrawl.errors import BadUrl, FetchError, RetryClass
from zcrawl.frontier.url import CanonicalRules, join, origin_of
from zcrawl.model.reasons.failure import (
    ADDRESS_MOVED,
    BAD_ENCODING,
    BAD_REDIRECT,
    BAD_URL,
    BLOCKED_ADDRESS,
    BROWSER,
    BROWSER_MEMORY,
    CONNECT,
    CONNECT_TIMEOUT,
    DNS,
    ENGINE,
    HTTP2,
    PROTOCOL,
    PROXIES_DOWN,
    PROXY,
    READ_TIMEOUT,
    REDIRECT_LOOP,
    RESET,
    ROBOTS_ELSEWHERE,
    SECRET_NOT_RELEASED,
    TLS,
    TOO_LARGE,
    TOO_MANY_REDIRECTS,
    TOTAL_TIMEOUT,
    TRUNCATED,
    http_status,
)
from zcrawl.text.patterns import lazy_pattern

_TRANSIENT = RetryClass.TRANSIENT
_PERMANENT = RetryClass.PERMANENT

# Every code an engine or a redirect may end with.
RETRY_CLASS_OF: dict[str, RetryClass] = {
    DNS: _TRANSIENT,  # resolvers fail often and briefly; NXDOMAIN costs the few retries
    CONNECT: _TRANSIENT,  # refused, unreachable
    CONNECT_TIMEOUT: _TRANSIENT,
    READ_TIMEOUT: _TRANSIENT,  # silent for too long
    TOTAL_TIMEOUT: _TRANSIENT,  # data came all the time, but not all of it in time
    RESET: _TRANSIENT,  # closed or reset before an answer came
    TRUNCATED: _TRANSIENT,  # less data than announced
    HTTP2: _TRANSIENT,  # an HTTP/2 connection or stream that the server ended or broke
    ENGINE: _TRANSIENT,  # our own failure, e.g. closed while in use; not the fault of the URL
    BROWSER: _TRANSIENT,  # it crashed, was killed or did not start
    BROWSER_MEMORY: _TRANSIENT,  # too much memory, perhaps because of another page
    PROXY: RetryClass.POSTPONED,  # the proxy failed, the page was not requested
    PROXIES_DOWN: RetryClass.POSTPONED,  # no proxy can be used now
    ADDRESS_MOVED: RetryClass.POSTPONED,  # the worker of the host has to be chosen by its address
    ROBOTS_ELSEWHERE: RetryClass.POSTPONED,  # the same, by the host of its robots.txt
    TLS: _PERMANENT,  # certificate or handshake
    TOO_LARGE: _PERMANENT,
    BAD_ENCODING: _PERMANENT,  # a body that does not decompress
    PROTOCOL: _PERMANENT,  # not HTTP, or HTTP beyond all limits
    BAD_URL: _PERMANENT,  # a URL or header that cannot be sent
    BLOCKED_ADDRESS: _PERMANENT,  # refused by the guard
    SECRET_NOT_RELEASED: _PERMANENT,  # the host may not get a secret of the job
    REDIRECT_LOOP: _PERMANENT,
    TOO_MANY_REDIRECTS: _PERMANENT,
    BAD_REDIRECT: _PERMANENT,  # no Location, no URL in it, or no http(s) URL
}

MAX_MESSAGE = 500  # characters; libraries quote whole headers in theirs


def fetch_error(code: str, message: str) -> FetchError:
    """Return the error of a code with its retry class."""
    return FetchError(message, code=code, retry=RETRY_CLASS_OF[code])


MAX_HEAD_BYTES = 131_072  # of everything before a body; real cookies need 8 KB and more


def head_too_large() -> FetchError:
    return fetch_error(PROTOCOL, f"more than {MAX_HEAD_BYTES} bytes of headers")


# ---------------------------------------------------------------- status and Retry-After


class Meaning(enum.Enum):
    DONE = "done"  # the answer has the page
    REDIRECT = "redirect"  # RedirectChain decides
    FAILED = "failed"  # see `retry` and `reason`


class StatusVerdict(msgspec.Struct, frozen=True):
    """The meaning of a status. `retry` and `reason` are set when the request failed."""

    meaning: Meaning
    reason: str = ""
    retry: RetryClass | None = None


REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_THROTTLED_STATUSES = frozenset({429, 503})
_TRANSIENT_STATUSES = frozenset({408, 425})
_DONE = StatusVerdict(Meaning.DONE)
_REDIRECT = StatusVerdict(Meaning.REDIRECT)


def classify_status(status: int) -> StatusVerdict:
    """Return the meaning of a status. 3xx without a target (300, 304) is a failure."""
    if 200 <= status < 300:
        return _DONE
    if status in REDIRECT_STATUSES:
        return _REDIRECT
    if status in _THROTTLED_STATUSES:
        retry = RetryClass.THROTTLED
    elif status in _TRANSIENT_STATUSES or 500 <= status < 600:
        retry = RetryClass.TRANSIENT
    else:
        retry = RetryClass.PERMANENT
    return StatusVerdict(Meaning.FAILED, http_status(status), retry)


MAX_RETRY_AFTER_S = 3600.0
_SECONDS = lazy_pattern(r"[0-9]+(?:\.[0-9]*)?")


def parse_retry_after(value: str, now_utc: float) -> float | None:
    """Parse both forms of Retry-After as seconds within [0, 3600]; None if it is not valid.

    `now_utc` is the Unix time that a date is compared with.
    """
    value = value.strip()
    if _SECONDS.fullmatch(value):
        seconds = float(value)
    else:
        try:
            from email.utils import parsedate_to_datetime  # 10 ms of a start

            date = parsedate_to_datetime(value)
            # "-0000" and a missing zone give a naive date; HTTP dates are always UTC.
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_utc
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    if math.isnan(seconds):
        return None
    return min(MAX_RETRY_AFTER_S, max(0.0, seconds))


# ---------------------------------------------------------------- redirects


class FollowRedirect(msgspec.Struct, frozen=True):
    """A redirect within the origin: the same worker continues."""

    url: str


class HandOver(msgspec.Struct, frozen=True):
    """A redirect to another origin, which has its own pace: it becomes a new request."""

    url: str


class RedirectChain:
    """The redirects of one request. Call `next_hop` after each redirect."""

    def __init__(self, start_url: str, max_redirects: int, rules: CanonicalRules) -> None:
        self._rules = rules
        self._max_redirects = max_redirects
        self._seen = {start_url}

    @property
    def hops(self) -> int:
        return len(self._seen) - 1

    def next_hop(self, current_url: str, location: str | None) -> FollowRedirect | HandOver:
        """Return the target of a redirect from `current_url`; FetchError if it cannot be
        followed."""
        if location is None or not location.strip():
            raise fetch_error(BAD_REDIRECT, f"redirect without a Location from {current_url}")
        try:
            url = join(current_url, location, self._rules)
        except BadUrl as error:
            raise fetch_error(BAD_REDIRECT, f"redirect to {location[:200]!r}: {error}") from error
        if origin_of(url) != origin_of(current_url):
            return HandOver(url)
        if url in self._seen:
            raise fetch_error(REDIRECT_LOOP, f"redirect back to {url}")
        if self.hops >= self._max_redirects:
            raise fetch_error(
                TOO_MANY_REDIRECTS, f"more than {self._max_redirects} redirects, next: {url}"
            )
        self._seen.add(url)
        return FollowRedirect(url)
