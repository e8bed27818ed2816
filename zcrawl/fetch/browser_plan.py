"""Decides what a page in the browser may do, and what its answers and its failures mean.

Called by `browser.tab` for each request that a page makes and for each answer to its document.
Pure: no browser is needed to try it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from zcrawl.errors import BadUrl
from zcrawl.fetch.policy import MAX_MESSAGE, REDIRECT_STATUSES
from zcrawl.frontier.url import host_name_of, join, origin_of
from zcrawl.model.reasons.failure import (
    BAD_ENCODING,
    BAD_URL,
    BROWSER,
    CONNECT,
    CONNECT_TIMEOUT,
    DNS,
    ENGINE,
    HTTP2,
    PROTOCOL,
    READ_TIMEOUT,
    RESET,
    TLS,
    TRUNCATED,
)
from zcrawl.model.spec import Browser

MOST_RELOADS: Final = 3  # of a page by itself
# What the wire's answer says that is not true of the rendered document any more.
_UNTRUE: Final = frozenset(
    {"content-encoding", "content-length", "content-type", "transfer-encoding"}
)
# The browser writes these itself, or they would spoil what it does by them.
_ITS_OWN: Final = frozenset({"user-agent", "cookie", "host", "accept", "accept-encoding"})
_HTML: Final = ("", "text/html", "application/xhtml+xml")

# Chromium's kinds of requests, by the job file's names for them.
_KINDS: Final = {
    "image": frozenset({"image", "imageset"}),
    "font": frozenset({"font"}),
    "media": frozenset({"media", "texttrack"}),
    "stylesheet": frozenset({"stylesheet"}),
    "script": frozenset({"script"}),
    "xhr": frozenset({"xhr", "fetch", "eventsource", "websocket"}),
    "beacon": frozenset({"ping", "beacon", "cspreport"}),
    "iframe": frozenset({"document"}),
}
# The networks whose requests serve advertising and its measurement, by domain. Not a filter list:
# the few that most pages load, and that no crawl wants.
_AD_DOMAINS = """
    adform.net adnxs.com adroll.com adsafeprotected.com adsrvr.org amazon-adsystem.com
    bidswitch.net bluekai.com casalemedia.com chartbeat.com criteo.com criteo.net crwdcntrl.net
    demdex.net doubleclick.net doubleverify.com everesttech.net google-analytics.com
    googleadservices.com googlesyndication.com googletagmanager.com googletagservices.com
    hotjar.com imrworldwide.com indexww.com krxd.net mathtag.com media.net moatads.com
    newrelic.com nr-data.net omtrdc.net openx.net outbrain.com pubmatic.com quantserve.com
    rlcdn.com rubiconproject.com scorecardresearch.com sharethrough.com smartadserver.com
    taboola.com teads.tv tradedoubler.com turn.com yieldmo.com
"""
AD_DOMAINS: Final = frozenset(_AD_DOMAINS.split())


class Step(enum.Enum):
    """What becomes of the answer to a page's own document."""

    RENDER = "render"  # HTML: let the browser have it
    TAKE = "take"  # a body that is no page: as it came
    LEAVE = "leave"  # a redirect or a failure: its head says all


class NavigationDecision(enum.Enum):
    """What becomes of a page that wants to be somewhere else."""

    FOLLOW = "follow"  # go along
    REPORT = "report"  # it is a redirect: the pipeline decides, as with every redirect
    REFUSE = "refuse"  # stay


class RequestBudget:
    """What one page may still ask for."""

    def __init__(self, orders: Browser) -> None:
        self._blocked = frozenset(kind for name in orders.block for kind in _KINDS.get(name, ()))
        self._ads = "ads" in orders.block
        self._left = orders.max_requests
        self.made = 0
        self.refused = 0

    def allows(self, kind: str, url: str) -> bool:
        """Whether a request of this kind (Chromium's word) may be made; counts it."""
        if kind in self._blocked or self._left <= 0 or (self._ads and is_ad(url)):
            self.refused += 1
            return False
        self._left -= 1
        self.made += 1
        return True


def is_ad(url: str) -> bool:
    """Whether the URL's host is of a network of advertising."""
    if not url.startswith(("http://", "https://")):
        return False
    name = host_name_of(url)
    while name:
        if name in AD_DOMAINS:
            return True
        _, _, name = name.partition(".")
    return False


def on_answer(status: int, headers: Mapping[str, str]) -> Step:
    """`headers` have names in lower case."""
    if not 200 <= status < 300:
        return Step.LEAVE
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    attached = headers.get("content-disposition", "").lower().startswith("attachment")
    return Step.RENDER if kind in _HTML and not attached and status not in (204, 205) else Step.TAKE


def on_later_answer(status: int, location: str, origin: str) -> bool:
    """Whether a document that came after a click may be shown: one that leads away may not."""
    if status not in REDIRECT_STATUSES:
        return True
    try:
        return origin_of(join(origin + "/", location)) == origin
    except BadUrl:
        return False


def on_move(here: str, target: str, reloads: int, clicked: bool) -> NavigationDecision:
    """The page's main frame is about to leave `here` for `target`."""
    if target.partition("#")[0] == here.partition("#")[0]:
        return NavigationDecision.FOLLOW if reloads < MOST_RELOADS else NavigationDecision.REFUSE
    if not clicked:
        return NavigationDecision.REPORT
    same = target.startswith(("http://", "https://")) and origin_of(target) == origin_of(here)
    return NavigationDecision.FOLLOW if same else NavigationDecision.REFUSE


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Of the job's headers, those that the browser is told to send to the page's own origin."""
    return {k.lower(): v for k, v in headers.items() if k.lower() not in _ITS_OWN}


def user_agent(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "user-agent"), "")


def rendered_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The document's headers as they are true of its rendered text."""
    kept = [(name, value) for name, value in headers if name.lower() not in _UNTRUE]
    return [*kept, ("content-type", "text/html; charset=utf-8")]


def taken_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers of a body that the browser has decompressed."""
    untrue = _UNTRUE - {"content-type"}
    return [(name, value) for name, value in headers if name.lower() not in untrue]


# ---------------------------------------------------------------- cookies


def cookies_of(header: str, url: str) -> list[dict[str, str]]:
    """A Cookie header as the browser's own cookies for that URL."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [{"name": name, "value": value, "url": url} for name, equals, value in pairs if equals]


def set_cookie(cookie: Mapping[str, Any], utc: float) -> str:
    """A cookie of the browser as the header that set it: engines tell cookies by headers."""
    parts = [f"{cookie['name']}={cookie['value']}", f"Path={cookie.get('path') or '/'}"]
    domain = str(cookie.get("domain") or "")
    if domain.startswith("."):  # else it is of the host alone
        parts.append(f"Domain={domain[1:]}")
    expires = float(cookie.get("expires") or -1)
    if expires > 0:
        parts.append(f"Max-Age={max(0, int(expires - utc))}")
    if cookie.get("secure"):
        parts.append("Secure")
    return "; ".join(parts)


# ---------------------------------------------------------------- failures

# Chromium's names (net::ERR_...), the first that is found; what is behind them gets ours.
_CODES: Final = (
    ("ERR_NAME_NOT_RESOLVED", DNS),
    ("ERR_CONNECTION_REFUSED", CONNECT),
    ("ERR_SOCKS_CONNECTION", CONNECT),
    ("ERR_PROXY_CONNECTION_FAILED", CONNECT),
    ("ERR_ADDRESS_UNREACHABLE", CONNECT),
    ("ERR_INTERNET_DISCONNECTED", CONNECT),
    ("ERR_CONNECTION_TIMED_OUT", CONNECT_TIMEOUT),
    ("ERR_TIMED_OUT", READ_TIMEOUT),
    ("ERR_CONTENT_LENGTH_MISMATCH", TRUNCATED),
    ("ERR_INCOMPLETE_CHUNKED_ENCODING", TRUNCATED),
    ("ERR_CONTENT_DECODING", BAD_ENCODING),
    ("ERR_CERT_", TLS),
    ("ERR_SSL_", TLS),
    ("ERR_BAD_SSL", TLS),
    ("ERR_INVALID_HTTP_RESPONSE", PROTOCOL),
    ("ERR_INVALID_CHUNKED_ENCODING", PROTOCOL),
    ("ERR_RESPONSE_HEADERS", PROTOCOL),
    ("ERR_HTTP2_", HTTP2),
    ("ERR_HTTP_1_1_REQUIRED", HTTP2),
    ("ERR_UNSAFE_PORT", BAD_URL),
    ("ERR_INVALID_URL", BAD_URL),
    ("ERR_EMPTY_RESPONSE", RESET),
    ("ERR_CONNECTION_", RESET),
    ("ERR_NETWORK_CHANGED", RESET),
    ("crashed", BROWSER),
    ("has been closed", BROWSER),
    ("Connection closed", BROWSER),
    ("Browser closed", BROWSER),
)


def code_of(text: str) -> str:
    """The code of a failure that the browser tells in words."""
    return next((code for word, code in _CODES if word in text), ENGINE)


def start_failure(text: str) -> str:
    """The one line that says why Chromium did not start, of the many that playwright tells."""
    lines = text.splitlines() or [""]
    error_lines = [line for line in lines if "FATAL" in line or "error while loading" in line]
    return (error_lines or lines)[0].strip()[:MAX_MESSAGE]
