"""The request that makes a spider begin is recognised in one place."""

from __future__ import annotations

from zcrawl.frontier.extra import is_start, start_seed
from zcrawl.frontier.url import DEFAULT


def test_the_request_that_begins_a_spider_is_recognised_as_text_and_as_stored() -> None:
    """Messages have text, the store has bytes; any other URL is a page."""
    url, _, _ = start_seed(DEFAULT)
    assert is_start(url)
    assert is_start(url.encode())
    assert not is_start("http://a.test/start")
    assert not is_start(b"http://a.test/start")
