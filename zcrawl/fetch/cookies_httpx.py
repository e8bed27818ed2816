"""A run's cookies: taken from answers, sent with requests, and made into bytes to be kept.

Used by `worker.session_loop` for runs with `fetch.cookies` or a login. The rules of cookies
(domains, paths, expiry) are the standard library's, through `httpx.Cookies`. What changed travels
to the leader with the page's result, by host, and comes back with the run's configuration, so that
a restarted worker is still logged in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.cookiejar import Cookie
from typing import Any, Final

import httpx
import msgspec

from zcrawl.fetch.ports import Response

MAX_COOKIES: Final = 100  # of one host
MAX_BYTES: Final = 16_384  # of one host's cookies as kept
MAX_SENT: Final = 8_000  # bytes of one host's names and values; common servers take 8 KB of header
_FIELDS: Final = ("name", "value", "domain", "path", "secure", "expires")
_EXPIRES = re.compile(r";\s*expires\s*=\s*([^;]*)", re.IGNORECASE)
_MONTH = re.compile(r"\w{3}, \d\d (\w{3}) ")
_MONTHS: Final = frozenset(
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
)
_Kept = list[tuple[str, str | None, str, str, bool, int | None]]


class CookieStore:
    """`kept` are cookies by host as `changes` gave them; what is unreadable is left out."""

    def __init__(self, kept: Mapping[str, bytes]) -> None:
        self._cookies = httpx.Cookies()
        self._known: dict[str, bytes] = {}
        for host, data in kept.items():
            self.load(host, data)

    def load(self, host: str, data: bytes) -> None:
        try:
            rows = msgspec.json.decode(data, type=_Kept)
        except msgspec.MsgspecError:
            return  # written by another version: the server will set them again
        self._known[host] = data
        for row in rows[:MAX_COOKIES]:
            cookie = _cookie(**dict(zip(_FIELDS, row, strict=True)))
            if _sendable(cookie):
                self._cookies.jar.set_cookie(cookie)

    def header(self, url: str) -> str:
        """The Cookie header of a request; empty if there is nothing to send."""
        request = httpx.Request("GET", url)
        self._cookies.set_cookie_header(request)
        return str(request.headers.get("cookie", ""))

    def take(self, url: str, response: Response) -> None:
        """Keep what an answer sets."""
        if "set-cookie" in response.headers:
            request = httpx.Request("GET", url)
            for header in response.headers.get_list("set-cookie"):
                text = _EXPIRES.sub(_readable, header).encode(response.headers.encoding)
                alone = httpx.Response(200, headers=[(b"set-cookie", text)], request=request)
                self._cookies.extract_cookies(alone)
            self._trim(request.url.host)

    def _trim(self, host: str) -> None:
        """Servers refuse headers that are too long, so a host that sets ever more cookies would
        shut its crawler out. The first ones stay, for a login's is among them. What cannot be sent
        in a header is not kept."""
        count = size = 0
        for one in [one for one in self._cookies.jar if _belongs(one, host)]:
            length = len(one.name) + len(one.value or "") + len("=; ")
            if not _sendable(one) or count >= MAX_COOKIES or size + length > MAX_SENT:
                self._cookies.jar.clear(one.domain, one.path, one.name)
            else:
                count, size = count + 1, size + length

    def changes(self, url: str) -> tuple[str, bytes] | None:
        """The host of `url` and its cookies, if they changed since this was last asked."""
        host = httpx.URL(url).host
        own = [one for one in self._cookies.jar if _belongs(one, host)]
        if not own and host not in self._known:
            return None
        rows = sorted(tuple(getattr(one, field) for field in _FIELDS) for one in own)
        data = msgspec.json.encode(rows[:MAX_COOKIES])
        if data == self._known.get(host) or len(data) > MAX_BYTES:
            return None
        self._known[host] = data
        return host, data


def _readable(expires: re.Match[str]) -> str:
    """For a date with a month that there is not the library raises and drops the whole answer's
    cookies. Such a one lasts as long as one without a date, as in browsers."""
    month = _MONTH.match(expires[1])
    return expires[0] if month is None or month[1].lower() in _MONTHS else ""


def _sendable(cookie: Cookie) -> bool:
    text = cookie.name + (cookie.value or "")
    return text.isascii() and text.isprintable()


def _belongs(cookie: Cookie, host: str) -> bool:
    domain = cookie.domain.lstrip(".").removesuffix(".local")
    return host == domain or host.endswith("." + domain)


def _cookie(**fields: Any) -> Cookie:
    domain: str = fields["domain"]
    dotted = domain.startswith(".")
    return Cookie(
        version=0,
        port=None,
        port_specified=False,
        domain_specified=dotted,
        domain_initial_dot=dotted,
        path_specified=True,
        discard=fields["expires"] is None,
        comment=None,
        comment_url=None,
        rest={},
        **fields,
    )
