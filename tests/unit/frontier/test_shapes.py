"""Endless spaces of URLs without a known pattern: which end, and what never does."""

from __future__ import annotations

import time

import msgspec
import pytest

from tests.unit.worker.test_attempt import context
from zcrawl.frontier.traps import (
    MOST_BYTES,
    MOST_COUNTED,
    MOST_ENDED,
    MOST_TEXTS,
    MOST_WATCHED,
    PAGES_BEFORE,
    PAGES_IN_ROW,
    ShapeWatch,
    TrapFilter,
    shape_of,
    text_hash,
)
from zcrawl.frontier.url import url_key
from zcrawl.mesh.messages import Assignment
from zcrawl.model.sitemap_request import SITEMAP_PRIO
from zcrawl.model.spec import Scope, Traps

SITE = "https://x.test"
YEAR = 2026
UTC = 1_700_000_000.0
CALENDAR = f"{SITE}/cal/*/*"


def read(watch: ShapeWatch, url: str, body: bytes, parent: str | None = None) -> bool:
    """Whether the page ends its shape; without a parent it was found on a page of its own shape."""
    shape = watch.count(url, parent or url)
    return shape is not None and watch.learn(shape, body)


def month(number: int) -> tuple[str, bytes]:
    """A page of a calendar; its table begins on another day of the week each month."""
    names = ("January", "May", "March")
    cells = "<td> </td>" * (number % 7)
    return (
        f"{SITE}/cal/{2031 + number // 12}/{number % 12 + 1:02d}",
        f"<h1>{names[number % 3]} {number}</h1><table>{cells}<td>1</td></table>".encode(),
    )


def words(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def ended_calendar() -> ShapeWatch:
    watch = ShapeWatch()
    while not watch.ended:
        read(watch, *month(0))
    return watch


def test_a_shape_ends_with_the_last_page_of_the_row_and_not_before() -> None:
    """So many pages in a row without a new text; the page that brought the text is not one."""
    watch = ShapeWatch()
    url, body = month(0)
    while (shape := watch.count(url, url)) is None:
        pass
    ends = [watch.learn(shape, body) for _ in range(1 + PAGES_IN_ROW)]
    assert ends == [False] * PAGES_IN_ROW + [True]


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/cal/2031/05", "/cal/*/*"),
        ("/cal/may-2031", "/cal/*-*"),
        ("/cal/2031/M%C3%A4rz", "/cal/*/*"),
        ("/2024/05/13/a-title", "/*/*/*/a-title"),
        ("/list?p=7&sort=up", "/list?&p&sort"),
        ("/list?p7=x", "/list?&*"),
        ("/item-12.html", "/item-*.html"),
        ("/s/8fj3k2/page", "/s/*/page"),
        ("/s/1b4e28ba-2fa1-11d2-883f-0016d3cca427", "/s/*-*-*-*-*"),
        ("/search?q=apple", "/search?&q"),
        ("/about/us", None),
        ("/", None),
    ],
)
def test_the_shape_of_a_url_has_no_variable_parts(path: str, shape: str | None) -> None:
    """Words with a digit, names of months and values of queries; the host stays as it is."""
    assert shape_of(SITE + path) == (None if shape is None else SITE + shape)
    assert shape_of("https://h7.test:8443/a/1") == "https://h7.test:8443/a/*"


def test_a_text_is_what_is_left_without_markup_numbers_and_months() -> None:
    """Two months of a calendar say the same; scripts and styles say nothing."""
    page = b"<title>May 2031</title><script>var a='x'</script><h1>Mo Tu We</h1><p>1st, 2nd."
    other = b"<title>June 1999</title><style>h1{}</style>\n<h1>Mo Tu We</h1><p class=x>3st; 22nd!"
    assert text_hash(page) == text_hash(other)
    assert text_hash(page) != text_hash(b"<h1>Mo Tu We</h1><p>a concert")
    german, french = "März 2031".encode(), "Août 2030".encode("latin-1")
    assert text_hash(german) == text_hash(french) == text_hash(b"")


def test_a_calendar_ends_after_two_hundred_pages_in_a_row_without_a_new_text() -> None:
    """The first 200 are only counted, the seven ways to draw a month are new once each."""
    watch, pages = ShapeWatch(), 0
    while not read(watch, *month(pages)):
        pages += 1
        assert pages < 1_000, "it never ends"
    assert PAGES_BEFORE + PAGES_IN_ROW <= pages + 1 <= PAGES_BEFORE + PAGES_IN_ROW + 100
    assert list(watch.ended) == [CALENDAR]
    assert watch.has_ended(month(5_000)[0])
    assert not watch.has_ended(f"{SITE}/cal/2031")
    assert not watch.has_ended(f"{SITE}/about")


def test_a_new_text_begins_the_row_anew() -> None:
    """Pages without anything new, then an entry, for ever: a calendar that somebody keeps."""
    watch = ShapeWatch()
    for number in range(20 * PAGES_IN_ROW):
        url, body = month(0)
        body += words(number).encode() if number % (PAGES_IN_ROW - 128) == 0 else b""
        assert not read(watch, url, body)


@pytest.mark.parametrize("repeats", [1, 5])
def test_an_archive_with_different_texts_is_never_cut(repeats: int) -> None:
    """20,000 articles of one shape; some texts come several times, as on a site with mirrors."""
    watch = ShapeWatch()
    for number in range(20_000):
        text = f"<h1>A story of {words(number // repeats)}</h1><p>12 May 2024"
        url = f"{SITE}/2024/05/{number % 28 + 1}/story-{number}"
        assert not read(watch, url, text.encode())
    assert not watch.ended


@pytest.mark.parametrize("parent", [None, f"{SITE}/list", f"{SITE}/list/7", f"{SITE}/s/7?p=1"])
def test_pages_that_lists_name_are_never_cut(parent: str | None) -> None:
    """2,500 stations whose pages differ in nothing but numbers: the list is finite. Seeds, too."""
    watch = ShapeWatch()
    for number in range(2_500):
        assert watch.count(f"{SITE}/s/{number}", parent) is None
    assert not watch.ended


def test_few_pages_of_an_honest_shape_are_looked_at() -> None:
    """None of the first 200, then fewer and fewer, at last one in 128."""
    watch = ShapeWatch()
    looks = []
    for number in range(10_000):
        shape = watch.count(f"{SITE}/item/{number}", f"{SITE}/item/0")
        if shape is not None:
            looks.append(number)
            watch.learn(shape, words(number).encode())
    assert looks[0] == PAGES_BEFORE
    assert len(looks) < 100


def test_what_is_remembered_is_bounded() -> None:
    """Shapes that are counted, shapes that are watched, texts of a shape, shapes that ended."""
    watch = ShapeWatch()
    for number in range(MOST_COUNTED + 10):
        watch.count(f"{SITE}/{words(number)}/1", f"{SITE}/{words(number)}/0")
    assert len(watch._counts) <= MOST_COUNTED
    for number in range(MOST_WATCHED + 10):
        for _ in range(PAGES_BEFORE + 1):
            shape = watch.count(f"{SITE}/w{words(number)}/1", f"{SITE}/w{words(number)}/0")
        assert shape is not None
    assert len(watch._watched) == MOST_WATCHED
    assert shape is not None
    for number in range(3 * MOST_TEXTS):
        watch.learn(shape, words(number).encode())
    assert len(watch._watched[shape].texts) == MOST_TEXTS
    assert not watch.learn(f"{SITE}/wa/*", b"x"), "it gave way to others"
    watch.ended = dict.fromkeys(str(number) for number in range(MOST_ENDED))
    while not read(watch, *month(0)):
        pass
    assert len(watch.ended) == MOST_ENDED
    assert CALENDAR in watch.ended


def test_a_page_that_is_too_long_to_look_at_counts_as_new() -> None:
    """Nothing is cut because nobody looked."""
    watch = ShapeWatch()
    for _ in range(3 * (PAGES_BEFORE + PAGES_IN_ROW)):
        assert not read(watch, f"{SITE}/long/1", b"x" * (MOST_BYTES + 1))


@pytest.mark.parametrize("piece", [b"<", b"<script", b"<a ", b"</script", b"< >", b"a<b"])
def test_a_hash_takes_no_longer_for_a_hostile_page(piece: bytes) -> None:
    """Markup that never ends costs what text of its length costs: it is linear."""
    body = (piece * MOST_BYTES)[:MOST_BYTES]
    began = time.process_time()
    text_hash(body)
    assert time.process_time() - began < 0.5


def test_links_of_an_ended_shape_are_traps_unless_the_job_says_no() -> None:
    """A filter that takes another's place in the same run knows what has ended."""
    watch = ended_calendar()
    url = month(7)[0]
    assert TrapFilter(Traps(), watch).verdict(url, YEAR) == "trap_shape"
    assert TrapFilter(Traps()).verdict(url, YEAR) is None
    off = TrapFilter(Traps(shapes=False), watch)
    assert off.shapes is None
    assert off.verdict(url, YEAR) is None


def test_verdicts_of_before_are_not_remembered_when_a_shape_ends() -> None:
    """A link that was good is a trap from then on."""
    run = context(Scope(hosts=("x.test",)))
    link = (month(3)[0], url_key(month(3)[0]))
    assert run.links.sort([link], 1, SITE, UTC).followed == [link]
    url, body = month(0)
    while run.links.learn(url, url, body) is None:
        pass
    assert run.links.sort([link], 1, SITE, UTC).trapped == [(*link, "trap_shape")]


def test_requests_of_an_ended_shape_are_not_made_but_for_those_that_are_wanted() -> None:
    """Seeds, sitemaps and what a spider asks for are named on purpose."""
    run = context()
    assignment = Assignment(1, 1, 2, 3, month(3)[0], 1, 1, None)
    assert not run.is_endless(assignment)
    run.traps.shapes = ended_calendar()
    assert run.is_endless(assignment)
    for change in ({"depth": 0}, {"prio": SITEMAP_PRIO}, {"extra": b"x"}):
        assert not run.is_endless(msgspec.structs.replace(assignment, **change))
