"""The main content of a page, as its child process finds it."""

from __future__ import annotations

from zcrawl.parse.children.content_child import content_of

URL = "https://news.test/2026/01/story.html"


def markdown(links: str, head: str = "") -> str:
    filler = "<p>Enough words to be the main content of this page, whatever finds it.</p>" * 6
    body = f"<html><head>{head}</head><body><article><h1>Story</h1><p>Read on: {links} and so on, "
    page = f"{body}because there is more to say.</p>{filler}</article></body></html>"
    answer = content_of(page.encode(), "text/html; charset=utf-8", URL)
    assert "error" not in answer, answer
    return str(answer["markdown"])


def test_links_of_the_main_content_are_relative_to_the_page() -> None:
    """A relative link means what it means in a browser, not a place at the host's root."""
    text = markdown('<a href="next.html">next</a>, <a href="../02/">month</a>')
    assert "[next](https://news.test/2026/01/next.html)" in text
    assert "[month](https://news.test/2026/02/)" in text


def test_links_from_the_root_and_to_other_hosts_stay_what_they_are() -> None:
    """Only relative links change."""
    text = markdown(
        '<a href="/top">top</a>, <a href="//o.test/x?a=1">other</a>, <a href="?p=2">2</a>'
    )
    assert "[top](https://news.test/top)" in text
    assert "[other](https://o.test/x?a=1)" in text
    assert "[2](https://news.test/2026/01/story.html?p=2)" in text


def test_the_first_good_base_decides() -> None:
    """A <base> without a crawlable URL does not count, and only the first valid one does."""
    head = '<base href="mailto:a@b.test"><base href="/archive/"><base href="/late/">'
    assert "[a](https://news.test/archive/a)" in markdown('<a href="a">a</a>', head)


def test_a_link_that_cannot_be_resolved_keeps_its_text() -> None:
    """No broken address gets into the text."""
    text = markdown('<a href="http://[broken/">words</a>')
    assert "words" in text
    assert "broken" not in text
