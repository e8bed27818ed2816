"""Read the rules of a page for robots: X-Robots-Tag, and the words of <meta name=robots>.

Called by the worker's pipeline for answers that have such a header, and by `parse.page`. Pure.
Known directives: noindex, nofollow, none (both). All others are for search engines.
"""

from __future__ import annotations

from collections.abc import Iterable

from zcrawl.text.patterns import lazy_pattern

_TOKEN = lazy_pattern(r"[A-Za-z_-]+")
# Directives with a value: the word before their colon is not the name of a crawler.
_WITH_VALUE = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)


def agent_token(user_agent: str) -> str:
    """Return the name by which a page can address only this crawler: `zcrawl`."""
    match = _TOKEN.match(user_agent)
    return match[0].lower() if match else ""


def header_directives(values: Iterable[str], token: str) -> set[str]:
    """Return the directives of all X-Robots-Tag headers for all crawlers and for `token`.

    `X-Robots-Tag: otherbot: noindex, nofollow` names a crawler, and all directives after the name
    are for that crawler.
    """
    directives: set[str] = set()
    for value in values:
        applies = True
        for part in value.lower().split(","):
            name, colon, rest = part.partition(":")
            if colon and name.strip() not in _WITH_VALUE:
                applies = name.strip() in (token, "*", "robots")
                part = rest
            if applies:
                directives.update(part.split())
    return directives


def forbids_index(directives: set[str]) -> bool:
    return not directives.isdisjoint(("noindex", "none"))


def forbids_following(directives: set[str]) -> bool:
    return not directives.isdisjoint(("nofollow", "none"))
