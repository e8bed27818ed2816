"""Elements as text with lines, and as Markdown."""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode

from zcrawl.parse.prose import markdown_of, text_of

HTML = """<div><script>no()</script><h2>Head <b>line</b></h2><p>One
 two <a href="/x">link</a><br>three</p><ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>
<ol><li>x</li><li>y</li></ol><pre>code
  here</pre><table><tr><td>1</td><td>2</td></tr></table><img src="i.png" alt="pic"></div>"""


def body(html: str) -> LexborNode:
    node = LexborHTMLParser(html).body
    assert node is not None
    return node


def test_text_keeps_lines_and_paragraphs() -> None:
    """Scripts are no text; spaces are one, but not in code."""
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
