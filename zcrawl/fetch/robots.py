"""Decides what a host's robots.txt allows and how slow it wants to be crawled (RFC 9309).

Called by the worker's pipeline, which fetches robots.txt like any other URL, parses the answer
here and keeps the rules per host and user agent. Pure, and total: no status and no bytes raise.
"""

from __future__ import annotations

import re

import msgspec
from protego import Protego

MAX_ROBOTS_BYTES = 500 * 1024  # RFC 9309 section 2.5; what is behind it is not read
MAX_CRAWL_DELAY_S = 3600.0
LEAST_CRAWL_DELAY_S = 0.001  # a shorter one asks for nothing: `1e-310` was written to do harm
MAX_SITEMAPS = 1_000

# A Disallow that has a value, with the misspellings that protego understands. Too broad is safe:
# it costs the short cut, not a rule.
_DISALLOW = re.compile(r"di[as]{1,3}l{1,2}[oa]w[^\S\n]*+:?+[^\S\n]*+[^\s#]", re.IGNORECASE)
# protego looks for a group's name anywhere in the user agent, so "User-agent: github" would match
# the contact address of "zcrawl/0.1 (+https://github.com/…)".
_CONTACT_URL = re.compile(r"\+?https?://[^\s;,)]*", re.IGNORECASE)


class RobotsRules(msgspec.Struct, frozen=True):
    """What one robots.txt means for one user agent."""

    user_agent: str
    crawl_delay_s: float | None = None  # the slower one of Crawl-delay and Request-rate
    retry_later: bool = False  # nobody could say: everything is off limits until asked again
    _protego: Protego | None = None  # None: everything is allowed, or nothing if retry_later
    sitemaps: tuple[str, ...] = ()

    @classmethod
    def parse(cls, status: int, body: bytes, user_agent: str) -> RobotsRules:
        """The rules that follow from the answer to GET /robots.txt, after its redirects.

        2xx is read. 4xx and what is left of 3xx mean that there are no rules. 5xx, 429 and 0
        (nobody answered) say nothing about the rules, so nothing is fetched for now; 429 is among
        them against the letter of RFC 9309, for a server that says "slow down" has not said
        "take everything".
        """
        name = _CONTACT_URL.sub("", user_agent)
        if status == 429 or status >= 500 or status < 200:
            return cls(name, retry_later=True)
        if status >= 300:
            return cls(name)
        text = _text(body)
        parsed = Protego.parse(text)
        has_rules = _DISALLOW.search(text) is not None
        return cls(
            user_agent=name,
            crawl_delay_s=_delay_s(parsed, name),
            _protego=parsed if has_rules else None,
            sitemaps=tuple(parsed.sitemaps)[:MAX_SITEMAPS],
        )

    def allows(self, url: str) -> bool:
        """Whether `url`, in canonical form and of this host, may be fetched."""
        rules = self._protego
        if rules is None:
            return not self.retry_later
        try:
            return rules.can_fetch(url, self.user_agent)
        except ValueError:  # urlsplit refuses what is no URL; such a string is not fetched
            return False


def robots_url(origin: str) -> str:
    """Where the rules of an origin (scheme://name[:port]) are."""
    return origin.rstrip("/") + "/robots.txt"


def _text(body: bytes) -> str:
    if len(body) > MAX_ROBOTS_BYTES:
        # The last line may be cut: "Disallow: /private" must not become "Disallow: /".
        cut = body.rfind(b"\n", 0, MAX_ROBOTS_BYTES)
        body = body[: cut if cut > 0 else 0]
    return body.decode("utf-8-sig", "replace")


def _delay_s(parsed: Protego, user_agent: str) -> float | None:
    delays = []
    delay = parsed.crawl_delay(user_agent)
    if delay is not None:
        delays.append(delay)
    rate = parsed.request_rate(user_agent)
    if rate is not None:
        delays.append(rate.seconds / rate.requests)
    if not delays:
        return None
    slowest = max(delays)
    return min(MAX_CRAWL_DELAY_S, slowest) if slowest >= LEAST_CRAWL_DELAY_S else 0.0
