"""The survey of a page's tags: both versions agree, and lexbor copies no element that is closed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from tests.web.monsters import MONSTERS
from zcrawl.parse import _tags, tags_in_python
from zcrawl.parse.tags import Survey

INLINE = "a abbr b big code em font i nobr s small span strike strong sub tt u var label".split()  # noqa: SIM905
OTHER = "p div table td li ul h1 script style textarea title select option svg math body".split()  # noqa: SIM905
ODD = "applet button caption form frameset iframe marquee noscript object template".split()  # noqa: SIM905
PIECES = (
    [f"<{name}>" for name in INLINE + OTHER + ODD]
    + [f"</{name}>" for name in INLINE + OTHER + ODD]
    + [f"<{name} x{n}=y>" for name in INLINE for n in range(4)]
    + ["<B>", "</B >", "<b/>", "<i\n>", "<b <p>", "<b </b>", "<!-- ", " -->", "<!doctype html>"]
    + ['<a title=">">', "<em title='", "'", '"', "=", "<", ">", "/", "</", "<>", "text ", "<br>"]
    + ["<area href=a>", "<BASE href=b>", "<frame/src=c>", "<iFrame src=d ", "<area\x0bhref=e>"]
    + ["<![CDATA[", "]]>", "<?x", "</p>", "</br>", "<image>", "<acronym>", "</acronym>", "\0", "é"]
)
markup = st.lists(st.sampled_from(PIECES), max_size=120).map(lambda parts: "".join(parts).encode())


def checked(page: bytes) -> Survey:
    """The survey, after a comparison of both versions."""
    result = _tags.survey(page)
    assert result == tags_in_python.survey(page)
    return Survey._make(result)


def element_count(page: bytes) -> int:
    root = LexborHTMLParser(page).root
    return 0 if root is None else sum(1 for _ in root.traverse())


def test_the_survey_in_c_is_compiled_for_these_tests() -> None:
    """Where the compiler is missing zcrawl runs without it, but its tests would compare nothing."""
    assert _tags.survey(b"<b>") == (1, False, 0, 0, 0, [], False)


@settings(max_examples=600, deadline=None)
@given(markup)
def test_both_surveys_agree_on_soups_of_tags(page: bytes) -> None:
    """Whatever a page is made of, Python and C see the same."""
    checked(page)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_both_surveys_agree_on_any_bytes(data: bytes) -> None:
    """Bytes that are not markup at all give equal results, too."""
    checked(data)
    checked(data.replace(b"\x01", b"<").replace(b"\x02", b">"))


@pytest.mark.parametrize("kind", MONSTERS)
def test_both_surveys_agree_on_monsters(kind: str) -> None:
    """The generated monsters are surveyed alike."""
    for size in (900, 12_500, 60_000):
        checked(MONSTERS[kind](size, random.Random(kind)))


@settings(max_examples=1_500, deadline=None)
@given(markup)
def test_closed_elements_are_never_copied(page: bytes) -> None:
    """Lexbor makes no more elements than tags ask for, unless the survey lists open ones."""
    result = checked(page)
    if result.quoted_bracket or result.open_tags or result.longest_link:
        return
    # Each tag makes one element, or two (<tr> in a table makes a <tbody>), and some text.
    assert element_count(page) <= 4 * result.tags + 10


@settings(max_examples=1_500, deadline=None)
@given(markup)
def test_no_reference_is_overlooked(page: bytes) -> None:
    """Where lexbor finds an <area>, <base>, <frame> or <iframe>, the survey has seen one."""
    result = checked(page)
    if LexborHTMLParser(page).css_first("area,base,frame,iframe") is not None:
        assert result.references or result.quoted_bracket


@pytest.mark.parametrize("seed", range(200))
def test_nested_inline_elements_are_never_copied(seed: int) -> None:
    """Long pages of well nested inline elements between blocks are closed, and nothing is copied;
    one wrong end tag or one open element is listed."""
    chance = random.Random(seed)
    parts: list[str] = []
    tags = 0
    for number in range(300):
        parts.append(chance.choice(["<p>", "<div>", "</div>", "<li>", "<td>", "<table>", "<h2>"]))
        names = [chance.choice(INLINE) for _ in range(chance.randint(1, 6))]
        parts += [f"<{name} id={number}>" for name in names] + ["text"]
        parts += [f"</{name}>" for name in reversed(names)]
        tags += 1 + 2 * len(names)
    page = "".join(parts).encode()
    result = checked(page)
    assert result.open_tags == []
    assert result.longest_link == 0
    assert element_count(page) <= 4 * tags
    place = chance.randrange(len(page))
    for spoiler in (b"<b id=x>", b"</span>", b"<a x>"):
        spoiled = page[:place] + spoiler + page[place:]
        spoiled_result = checked(spoiled)
        if not (spoiled_result.open_tags or spoiled_result.longest_link):
            assert element_count(spoiled) <= 4 * tags + 10


def test_open_elements_are_listed_with_their_tags() -> None:
    """Elements that may be open when a block begins are reported with their attributes."""
    result = checked(b"<b x=1>text<p>text</b><i>a</i><em y><code>c</code><div>")
    assert result.open_tags == [b"b x=1", b"em y"]
    assert result.closed == 2


def test_a_link_around_a_block_counts_with_its_attributes() -> None:
    """A link that is closed before a block counts for nothing, another one by its length."""
    assert checked(b"<a href=x class=y>text</a><p>").longest_link == 0
    assert checked(b"<a href=x class=y><p>text</a>").longest_link == 5


def test_a_quoted_bracket_ends_the_survey() -> None:
    """Tags after a quoted `>` cannot be distinguished from text, so the survey reports it."""
    assert checked(b"<b>x</b><p title='a>b'>").quoted_bracket
    assert checked(b'<p title = "a>b">').quoted_bracket
    assert not checked(b"<p title='a'>b\"=\">").quoted_bracket
