"""Elements as text with lines, and as Markdown."""

from __future__ import annotations

import re

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from zcrawl.parse.prose import markdown_of, text_of, words_of

HTML = """<div><script>no()</script><h2>Head <b>line</b></h2><p>One
 two <a href="/x">link</a><br>three</p><ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>
<ol><li>x</li><li>y</li></ol><pre>code
  here</pre><table><tr><td>1</td><td>2</td></tr></table><img src="i.png" alt="pic"></div>"""


def body(html: str) -> LexborNode:
    node = LexborHTMLParser(html).body
    assert node is not None
    return node


def test_text_keeps_lines_and_paragraphs() -> None:
    """Scripts are left out; spaces are merged, except in code."""
    assert text_of(body(HTML)) == (
        "Head line\n\nOne two link\nthree\n\na\nb\nc\n\nx\ny\n\ncode\n  here\n\n1\t2"
    )


def test_markdown_has_headings_lists_links_images_and_code() -> None:
    """Links are absolute; nested lists are indented; numbers count."""
    assert markdown_of(body(HTML), "http://h.test/a/") == (
        "## Head **line**\n\nOne two [link](http://h.test/x)\nthree\n\n- a\n  - b\n- c\n\n"
        "1. x\n2. y\n\n```\ncode\n  here\n```\n\n1 | 2\n\n![pic](http://h.test/a/i.png)"
    )


def test_an_element_alone_is_what_it_holds() -> None:
    """No line breaks around it, nothing of its neighbours."""
    node = LexborHTMLParser("<p>before</p><p id=x>in <i>it</i></p><p>after").css_first("#x")
    assert node is not None
    assert (text_of(node), markdown_of(node, "http://h.test/")) == ("in it", "in *it*")
    assert text_of(body("<script>x</script>")) == ""


@pytest.mark.parametrize(
    "html",
    [
        "a<br>b",
        "<table><tr><td>a</td><td>b</td></tr></table>",
        "<table><tr><th>a</th></tr><tr><td>b</td></tr></table>",
        "<table><caption>a</caption><tr><td>b</td></tr></table>",
        "<p>a</p><p>b</p>",
        "<div>a</div>b",
        "a<div>b</div>",
        "<ul><li>a</li><li>b</li></ul>",
        "<dl><dt>a</dt><dd>b</dd></dl>",
        "<h1>a</h1><section>b</section>",
        "<select><option>a</option><option>b</option></select>",
        "<fieldset><legend>a</legend>b</fieldset>",
        "a<hr>b",
    ],
)
def test_blocks_and_breaks_separate_words(html: str) -> None:
    """What a browser shows on two lines or in two cells is two words, as words, text and
    Markdown."""
    assert words_of(body(html)) == "a b"
    assert not re.search("ab", text_of(body(html)))
    assert not re.search("ab", markdown_of(body(html), "http://h.test/"))


@pytest.mark.parametrize("tag", ["b", "i", "span", "a", "em", "sup", "code", "wbr", "img", "font"])
def test_inline_elements_do_not_separate_words(tag: str) -> None:
    """`H<sub>2</sub>O` is one word."""
    assert words_of(body(f"x<{tag}>y</{tag}>z<br>end")) == "xyz end"
    assert words_of(body(f"x<{tag}>y</{tag}>z")) == "xyz"


def test_words_of_a_deep_page_end_when_the_time_is_over() -> None:
    """A hostile page is read without recursion, and its budget is checked regularly."""
    deep = "<span>x" * 5_000
    assert len(words_of(body(f"{deep}<br>y"))) == 5_002

    class Over(Exception):
        pass

    def over() -> None:
        raise Over

    with pytest.raises(Over):
        words_of(body(deep), over)
