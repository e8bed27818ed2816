"""Decide what a page in the browser may do, and what its answers and failures mean.

Called by `browser.tab` for each request that a page makes and for each answer to its document.
Pure: tests need no browser.
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
# Headers of the server's answer that are not true for the rendered document.
_UNTRUE: Final = frozenset(
    {"content-encoding", "content-length", "content-type", "transfer-encoding"}
)
# The browser writes these itself; other values would break its own logic.
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
# Domains of advertising and tracking networks. Not a complete filter list: only the few that most
# pages load and that no crawl needs.
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
    """What to do with the answer to a page's own document."""

    RENDER = "render"  # HTML: the browser renders it
    TAKE = "take"  # a body that is not HTML: return it unchanged
    LEAVE = "leave"  # a redirect or a failure: status and headers are enough


class NavigationDecision(enum.Enum):
    """What to do when a page navigates to another URL."""

    FOLLOW = "follow"  # let the browser navigate
    REPORT = "report"  # return it as a redirect: the pipeline decides, as with every redirect
    REFUSE = "refuse"  # block the navigation


class RequestBudget:
    """The requests that one page may still make."""

    def __init__(self, orders: Browser) -> None:
        self._blocked = frozenset(kind for name in orders.block for kind in _KINDS.get(name, ()))
        self._ads = "ads" in orders.block
        self._left = orders.max_requests
        self.made = 0
        self.refused = 0

    def allows(self, kind: str, url: str) -> bool:
        """Return whether a request of this kind (Chromium's name) may be made, and count it."""
        if kind in self._blocked or self._left <= 0 or (self._ads and is_ad(url)):
            self.refused += 1
            return False
        self._left -= 1
        self.made += 1
        return True


def is_ad(url: str) -> bool:
    """Return whether the URL's host belongs to an advertising network."""
    if not url.startswith(("http://", "https://")):
        return False
    name = host_name_of(url)
    while name:
        if name in AD_DOMAINS:
            return True
        _, _, name = name.partition(".")
    return False


def on_answer(status: int, headers: Mapping[str, str]) -> Step:
    """Decide what to do with an answer. `headers` have names in lower case."""
    if not 200 <= status < 300:
        return Step.LEAVE
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    attached = headers.get("content-disposition", "").lower().startswith("attachment")
    return Step.RENDER if kind in _HTML and not attached and status not in (204, 205) else Step.TAKE


def on_later_answer(status: int, location: str, origin: str) -> bool:
    """Return whether a document after a click may be shown; redirects to other origins may not."""
    if status not in REDIRECT_STATUSES:
        return True
    try:
        return origin_of(join(origin + "/", location)) == origin
    except BadUrl:
        return False


def on_move(here: str, target: str, reloads: int, clicked: bool) -> NavigationDecision:
    """Decide about a navigation of the main frame from `here` to `target`."""
    if target.partition("#")[0] == here.partition("#")[0]:
        return NavigationDecision.FOLLOW if reloads < MOST_RELOADS else NavigationDecision.REFUSE
    if not clicked:
        return NavigationDecision.REPORT
    same = target.startswith(("http://", "https://")) and origin_of(target) == origin_of(here)
    return NavigationDecision.FOLLOW if same else NavigationDecision.REFUSE


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the job's headers that the browser should send to the page's own origin."""
    return {k.lower(): v for k, v in headers.items() if k.lower() not in _ITS_OWN}


def user_agent(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "user-agent"), "")


def rendered_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the document's headers, adapted to its rendered text."""
    kept = [(name, value) for name, value in headers if name.lower() not in _UNTRUE]
    return [*kept, ("content-type", "text/html; charset=utf-8")]


def taken_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of a body that the browser has decompressed."""
    untrue = _UNTRUE - {"content-type"}
    return [(name, value) for name, value in headers if name.lower() not in untrue]


# ---------------------------------------------------------------- cookies


def cookies_of(header: str, url: str) -> list[dict[str, str]]:
    """Convert a Cookie header into cookies of the browser for that URL."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [{"name": name, "value": value, "url": url} for name, equals, value in pairs if equals]


def set_cookie(cookie: Mapping[str, Any], utc: float) -> str:
    """Convert a cookie of the browser into a Set-Cookie header, because engines report cookies
    so."""
    parts = [f"{cookie['name']}={cookie['value']}", f"Path={cookie.get('path') or '/'}"]
    domain = str(cookie.get("domain") or "")
    if domain.startswith("."):  # otherwise for this host only
        parts.append(f"Domain={domain[1:]}")
    expires = float(cookie.get("expires") or -1)
    if expires > 0:
        parts.append(f"Max-Age={max(0, int(expires - utc))}")
    if cookie.get("secure"):
        parts.append("Secure")
    return "; ".join(parts)


# ---------------------------------------------------------------- failures

# Chromium's error names (net::ERR_...) and our codes; the first match counts.
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
    """Return our code for a failure text of the browser."""
    return next((code for word, code in _CODES if word in text), ENGINE)


def start_failure(text: str) -> str:
    """Return the line of playwright's message that says why Chromium did not start."""
    lines = text.splitlines() or [""]
    error_lines = [line for line in lines if "FATAL" in line or "error while loading" in line]
    return (error_lines or lines)[0].strip()[:MAX_MESSAGE]
