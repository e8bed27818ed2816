"""Keep the cookies of a run: store those of answers, send them with requests, serialise them.

Used by `worker.pipeline.session` for runs with `fetch.cookies` or a login. `fetch.cookies` decides
which cookies a server may set and which server gets them. Changes are sent to the leader with the
page's result, by host, and come back with the run's configuration, so that a restarted worker is
still logged in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from zcrawl.fetch.cookies import Cookie, CookiePlace, Jar
from zcrawl.fetch.ports import Response
from zcrawl.frontier.url import host_name_of

MAX_COOKIES: Final = 100  # of one host
MAX_HEADERS: Final = 200  # Set-Cookie of one answer; 9,000 of them took a worker 7 s
MAX_BYTES: Final = 16_384  # of one host's serialised cookies
MAX_SENT: Final = 8_000  # bytes of one host's names and values; common servers take 8 KB of header
# Name, value, domain (with a dot before it: also for the hosts below), path, secure, expires.
_Kept = list[tuple[str, str, str, str, bool, float | None]]


class CookieStore:
    """The cookies of a run. `kept`: cookies by host, as `changes` returned them; unreadable ones
    are left out."""

    def __init__(self, kept: Mapping[str, bytes], utc: Callable[[], float] = time.time) -> None:
        self._jar = Jar()
        self._utc = utc
        self._saved: dict[str, bytes] = {}
        for host, data in kept.items():
            self.load(host, data)

    def load(self, host: str, data: bytes) -> None:
        try:
            rows = msgspec.json.decode(data, type=_Kept)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # written by another version: the server will set them again
        self._saved[host] = data
        for name, value, domain, path, secure, expires in rows[:MAX_COOKIES]:
            host_only = not domain.startswith(".")
            own = domain.removeprefix(".")
            cookie = Cookie(name, value, own, host_only, path, secure, expires)
            if cookie.is_of(host) and _sendable(cookie):
                self._jar.put(cookie, self._utc())

    def header(self, url: str) -> str:
        """Return the Cookie header of a request; empty if there are no cookies."""
        cookies = self._jar.for_request(_place(url), self._utc())
        return "; ".join(_pair(cookie) for cookie in cookies)

    def take(self, url: str, response: Response) -> None:
        """Store the cookies of an answer."""
        if "set-cookie" in response.headers:
            place = _place(url)
            for header in response.headers.get_list("set-cookie")[:MAX_HEADERS]:
                self._jar.set_by(place, header, self._utc())
            self._trim(place.host)

    def _trim(self, host: str) -> None:
        """Remove cookies above the limits, because servers refuse long headers. The oldest ones
        stay, because the cookie of a login is among them."""
        count = size = 0
        for cookie in self._jar.of_host(host):
            length = len(_pair(cookie)) + len("; ")
            if cookie.is_over(self._utc()) or count >= MAX_COOKIES or size + length > MAX_SENT:
                self._jar.remove(cookie)
            else:
                count, size = count + 1, size + length

    def changes(self, url: str) -> tuple[str, bytes] | None:
        """Return the host of `url` and its cookies, if they changed since the last call."""
        host = _place(url).host
        rows = [_row(cookie) for cookie in self._jar.of_host(host)]
        if not rows and host not in self._saved:
            return None
        data = msgspec.json.encode(rows[:MAX_COOKIES])
        if data == self._saved.get(host) or len(data) > MAX_BYTES:
            return None
        self._saved[host] = data
        return host, data


def _place(url: str) -> CookiePlace:
    """Return the place of a canonical URL, without a dot at the end of the host."""
    host = host_name_of(url).strip("[]").rstrip(".")
    path = url[url.find("/", 8) :].partition("?")[0]
    return CookiePlace(host, path, url.startswith("https:"))


def _pair(cookie: Cookie) -> str:
    return f"{cookie.name}={cookie.value}" if cookie.name else cookie.value


def _sendable(cookie: Cookie) -> bool:
    text = cookie.name + cookie.value
    return text.isascii() and text.isprintable()


def _row(cookie: Cookie) -> tuple[str, str, str, str, bool, float | None]:
    domain = cookie.domain if cookie.host_only else "." + cookie.domain
    return cookie.name, cookie.value, domain, cookie.path, cookie.secure, cookie.expires
