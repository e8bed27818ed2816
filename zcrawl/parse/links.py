"""Find the links of a parsed page.

Called by `parse.page`, once per page, on a lexbor tree. Pure. A link is the href of an <a> or
<area> or the src of an <iframe> or <frame>, resolved against the first <base href> that is a
crawlable URL itself, otherwise against the page. These are not links:

- URLs that the resolver rejects and counts (mailto:, javascript:, garbage)
- `#here` and an empty href on a page without <base>: they lead to the same page
- an <a> or <area> with rel=nofollow, unless `follow_nofollow` is set
- the content of a <template>: it is not part of the document
"""

from __future__ import annotations

import itertools
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from zcrawl.frontier.url import Resolver, without_fragment
from zcrawl.parse.cost import TimeBudget

# One pass in C for all of them, in document order. With the attributes, on 96 KB and 333 links:
# 216 us; a pass by tags() for each name 393 us, a walk in Python 440 us (14 KB: 41, 35, 58 us).
_SELECTOR: Final = "a[href],area[href],iframe[src],frame[src],base[href]"
_ONLY_A: Final = "a"  # by its name on a page without the others: half of the time

_LINKS_A_STEP: Final = 64  # a link on a page with an absurdly long URL takes 70 us


def tag_id(name: str) -> int:
    """Return lexbor's number for a tag; comparing numbers avoids a string for each node."""
    node = LexborHTMLParser(f"<{name}>").css_first(name)
    assert node is not None
    return node.tag_id


_A: Final = tag_id("a")
_AREA: Final = tag_id("area")
_BASE: Final = tag_id("base")


def links_of(
    tree: LexborHTMLParser,
    page_url: str,
    follow_nofollow: bool,
    resolver: Resolver,
    budget: TimeBudget | None = None,
    only_a: bool = False,
) -> tuple[list[tuple[str, bytes]], str]:
    """Return the links of a page as (canonical URL, key), each once, in document order; and their
    base.

    `only_a`: the page has no other elements with links (`Survey.references`). Raises TooCostly if
    there is a budget and it is used up."""
    base: str | None = None
    hrefs: dict[str, None] = {}  # an ordered set, without fragments: half of all links repeat
    for node in tree.tags(_ONLY_A) if only_a else tree.css(_SELECTOR):
        attributes = node.attributes
        tag = node.tag_id
        if tag == _A or tag == _AREA:  # noqa: SIM109 - `in` would build a tuple for each link
            if "href" not in attributes:  # <a name>; an SVG <a xlink:href> matches a[href]
                continue
            href = attributes["href"] or ""
            if not follow_nofollow and "rel" in attributes and says_nofollow(attributes["rel"]):
                continue
        elif tag == _BASE:
            if budget is not None:
                budget.check()
            if base is None and (
                base_link := resolver.resolve(page_url, attributes.get("href") or "")
            ):
                base = base_link[0]
            continue
        else:
            href = attributes.get("src") or ""
        cut = href.find("#")
        if cut >= 0:
            # Only a space before the fragment needs the complete rule.
            href = href[:cut] if href[cut - 1] > " " else without_fragment(href)
        hrefs[href] = None
    if base is None:
        base = page_url
        hrefs.pop("", None)
    # Resolved only now, because a <base> also applies to the links before it.
    links: dict[str, tuple[str, bytes]] = {}
    left = iter(hrefs)
    while step := list(itertools.islice(left, _LINKS_A_STEP)):
        for link in resolver.resolve_all(base, step):
            links[link[0]] = link
        if budget is not None:
            budget.check()
    return list(links.values()), base


def says_nofollow(rel: str | None) -> bool:
    return rel is not None and "nofollow" in rel.lower().split()
