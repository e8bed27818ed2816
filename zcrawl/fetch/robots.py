"""Decides what a host's robots.txt allows and how slow it wants to be crawled (RFC 9309).

Called by the worker's pipeline, which fetches robots.txt like any other URL, parses the answer
here and keeps the rules per host and user agent. Pure, and total: no status and no bytes raise.
"""

from __future__ import annotations

import msgspec

from zcrawl.fetch.robots_paths import PathRules
from zcrawl.fetch.robots_text import Group, read_group

MAX_ROBOTS_BYTES = 500 * 1024  # RFC 9309 section 2.5; what is behind it is not read
MAX_CRAWL_DELAY_S = 3600.0
LEAST_CRAWL_DELAY_S = 0.001  # a shorter one asks for nothing: `1e-310` was written to do harm


class RobotsRules(msgspec.Struct, frozen=True):
    """What one robots.txt means for one user agent."""

    user_agent: str
    crawl_delay_s: float | None = None  # the slower one of Crawl-delay and Request-rate
    retry_later: bool = False  # nobody could say: everything is off limits until asked again
    _paths: PathRules | None = None  # None: everything is allowed, or nothing if retry_later
    sitemaps: tuple[str, ...] = ()

    @classmethod
    def parse(cls, status: int, body: bytes, user_agent: str) -> RobotsRules:
        """The rules that follow from the answer to GET /robots.txt, after its redirects.

        2xx is read. 4xx and what is left of 3xx mean that there are no rules. 5xx, 429 and 0
        (nobody answered) say nothing about the rules, so nothing is fetched for now; 429 is among
        them against the letter of RFC 9309, for a server that says "slow down" has not said
        "take everything".
        """
        if status == 429 or status >= 500 or status < 200:
            return cls(user_agent, retry_later=True)
        if status >= 300:
            return cls(user_agent)
        group, sitemaps = read_group(_whole_lines(body), user_agent)
        paths = PathRules(group.rules)
        return cls(
            user_agent=user_agent,
            crawl_delay_s=_delay_s(group),
            _paths=paths if paths.forbids_something else None,
            sitemaps=sitemaps,
        )

    def allows(self, url: str) -> bool:
        """Whether `url`, in canonical form and of this host, may be fetched."""
        if self._paths is None:
            return not self.retry_later
        start = url.find("/", 8)  # behind the host
        path = url[start:] if start >= 0 else "/"
        return path == "/robots.txt" or self._paths.allow(path)


def robots_url(origin: str) -> str:
    """Where the rules of an origin (scheme://name[:port]) are."""
    return origin.rstrip("/") + "/robots.txt"


def _whole_lines(body: bytes) -> bytes:
    if len(body) > MAX_ROBOTS_BYTES:
        # The last line may be cut: "Disallow: /private" must not become "Disallow: /".
        cut = max(body.rfind(end, 0, MAX_ROBOTS_BYTES) for end in (b"\n", b"\r"))
        body = body[: cut if cut > 0 else 0]
    return body


def _delay_s(group: Group) -> float | None:
    delays = [d for d in (group.crawl_delay_s, group.request_delay_s) if d is not None]
    if not delays:
        return None
    slowest = max(delays)
    return min(MAX_CRAWL_DELAY_S, slowest) if slowest >= LEAST_CRAWL_DELAY_S else 0.0
