"""Which links of a page belong to the crawl, and what is counted of those that do not."""

from __future__ import annotations

import msgspec

from zcrawl.frontier.scope import ScopeFilter
from zcrawl.frontier.traps import TrapFilter
from zcrawl.frontier.url import url_key
from zcrawl.model.spec import Scope, Traps
from zcrawl.worker.results.link_filter import MOST_TRAPPED, LinkFilter, SortedLinks

UTC = 1_700_000_000.0
OWN = "https://x.test/a"


def link(url: str) -> tuple[str, bytes]:
    return url, url_key(url)


def links(*paths: str) -> list[tuple[str, bytes]]:
    return [link(f"https://x.test{path}") for path in paths]


def filter_of(**scope: object) -> LinkFilter:
    given = msgspec.convert(scope, Scope)
    return LinkFilter(
        ScopeFilter(given, frozenset({"x.test"})), TrapFilter(Traps()), given.max_depth
    )


def test_links_are_followed_if_they_belong_to_the_crawl() -> None:
    """Those that do not are counted by reason; the page itself is neither."""
    page_links = links("/a", "/c", "/private/d", "/picture.png", "/b/b/b/b/b/b")
    page_links.append(link("https://y.test/"))
    run = filter_of(exclude=(r"/private/",))
    for _ in range(2):  # the second time from memory
        kept = run.sort(page_links, 2, OWN, UTC)
        assert kept.followed == links("/c")
        assert [(url, why) for url, _, why in kept.trapped] == [
            ("https://x.test/b/b/b/b/b/b", "trap_repetition")
        ]
        assert kept.dropped == {"excluded": 1, "binary_extension": 1, "out_of_scope_host": 1}


def test_what_only_the_depth_keeps_out_is_counted_as_too_deep() -> None:
    """What is outside of the scope anyway counts as that. Each page counts its own links."""
    run = filter_of(max_depth=2)
    page_links = [*links("/c", "/d", "/a", "/e.png"), link("https://y.test/")]
    expected = {"too_deep": 2, "binary_extension": 1, "out_of_scope_host": 1}
    for _ in range(2):
        assert run.sort(page_links, 3, OWN, UTC) == SortedLinks([], [], expected)


def test_a_link_that_is_followed_from_elsewhere_is_not_lost() -> None:
    """The navigation of the deepest pages names what the crawl has: that is not counted."""
    run = filter_of(max_depth=2)
    assert run.sort(links("/nav"), 2, OWN, UTC).followed == links("/nav")
    assert run.sort(links("/nav", "/deep"), 3, OWN, UTC).dropped == {"too_deep": 1}


def test_a_link_that_was_too_deep_is_followed_where_it_is_not() -> None:
    """The first page that names it does not decide for the others."""
    run = filter_of(max_depth=2)
    assert run.sort(links("/deep"), 3, OWN, UTC).followed == []
    assert run.sort(links("/deep"), 2, OWN, UTC).followed == links("/deep")
    assert run.sort(links("/deep"), 3, OWN, UTC).dropped == {}


def test_paging_links_lead_no_deeper() -> None:
    """On the deepest pages they are the only ones that are followed, within the scope."""
    run = filter_of(max_depth=2)
    page_links = [*links("/list?p=2", "/book"), link("https://y.test/?p=2")]
    paging = [page_links[0][1], page_links[2][1]]
    kept = run.sort(page_links, 3, OWN, UTC, paging)
    assert kept.followed == links("/list?p=2")
    assert kept.dropped == {"too_deep": 1, "out_of_scope_host": 1}


def test_the_steps_of_a_long_page_add_up() -> None:
    """Counts are summed, and traps stay within what a result may hold."""
    trapped = [("https://x.test/t", b"k" * 16, "trap_segments")] * (MOST_TRAPPED - 1)
    whole = SortedLinks(links("/a"), trapped, {"too_deep": 1})
    whole.add(SortedLinks(links("/b"), trapped[:5], {"too_deep": 2, "excluded": 1}))
    assert whole.followed == links("/a", "/b")
    assert len(whole.trapped) == MOST_TRAPPED
    assert whole.dropped == {"too_deep": 3, "excluded": 1}
