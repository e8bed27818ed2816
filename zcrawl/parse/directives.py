"""What a page asks of robots beside robots.txt: X-Robots-Tag, and the words of <meta name=robots>.

Called by the worker's pipeline for answers that have such a header, and by `parse.page`. Pure.
Known directives: noindex, nofollow, none (both). All others are for search engines.
"""

from __future__ import annotations

from collections.abc import Iterable

from zcrawl.text.patterns import lazy_pattern

_TOKEN = lazy_pattern(r"[A-Za-z_-]+")
# Directives that have a value, so that their colon names no crawler.
_WITH_VALUE = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)


def agent_token(user_agent: str) -> str:
    """The product token by which a page can address this crawler alone: `zcrawl`."""
    match = _TOKEN.match(user_agent)
    return match[0].lower() if match else ""


def header_directives(values: Iterable[str], token: str) -> set[str]:
    """The directives of all X-Robots-Tag headers for everybody and for `token`.

    `X-Robots-Tag: otherbot: noindex, nofollow` names a crawler, and everything behind it is meant
    for that one.
    """
    directives: set[str] = set()
    for value in values:
        meant = True
        for part in value.lower().split(","):
            name, colon, rest = part.partition(":")
            if colon and name.strip() not in _WITH_VALUE:
                meant = name.strip() in (token, "*", "robots")
                part = rest
            if meant:
                directives.update(part.split())
    return directives


def forbids_index(directives: set[str]) -> bool:
    return not directives.isdisjoint(("noindex", "none"))


def forbids_following(directives: set[str]) -> bool:
    return not directives.isdisjoint(("nofollow", "none"))
