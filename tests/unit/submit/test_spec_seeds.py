"""Seed lines: chunks, comments, and lines that are not URLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zcrawl.errors import BadUrl
from zcrawl.submit.seeds import CHUNK, CHUNK_TEXT, SeedLines, check_seed


def lines_of(count: int) -> Iterator[str]:
    return (f"https://example.com/{n}\n" for n in range(count))


def test_blank_lines_and_comments_are_no_seeds() -> None:
    """Only URLs remain, without the white space around them."""
    lines = ["# a comment\n", "\n", "  https://a.example/ \r\n", "https://b.example/"]
    seeds = SeedLines(lines, "f")
    assert list(seeds.chunks()) == [["https://a.example/", "https://b.example/"]]
    assert seeds.seeds == 2


def test_seeds_come_in_chunks_of_a_thousand_and_no_earlier_than_asked_for() -> None:
    """A stream is read one chunk at a time, so its length does not matter to memory."""
    read = 0

    def counted() -> Iterator[str]:
        nonlocal read
        for line in lines_of(2_500):
            read += 1
            yield line

    chunks = SeedLines(counted(), "f").chunks()
    assert len(next(chunks)) == CHUNK
    assert read == CHUNK
    assert [len(chunk) for chunk in chunks] == [CHUNK, 500]


def test_seeds_that_were_judged_before_come_first() -> None:
    """Arguments and a file are one list, cut into chunks together."""
    seeds = SeedLines(lines_of(2), "f")
    assert list(seeds.chunks(["https://a/"])) == [
        ["https://a/", "https://example.com/0", "https://example.com/1"]
    ]
    before = [f"https://a/{n}" for n in range(CHUNK + 1)]
    assert [len(chunk) for chunk in SeedLines(lines_of(2), "f").chunks(before)] == [CHUNK, 3]


def test_long_seeds_come_in_smaller_chunks() -> None:
    """A master accepts 500,000 characters of seeds in one request."""
    lines = [f"https://example.com/{n}/{'x' * 4_000}" for n in range(200)]
    seeds = SeedLines(lines, "f")
    chunks = list(seeds.chunks())
    assert [seed for chunk in chunks for seed in chunk] == lines
    assert max(sum(map(len, chunk)) for chunk in chunks) <= CHUNK_TEXT
    assert len(chunks) == 4


def test_the_list_says_whether_more_seeds_may_follow() -> None:
    """`submit` closes the run's list at once if its first chunk has all seeds."""
    for count, ended in ((0, True), (1, True), (CHUNK - 1, True), (CHUNK, False)):
        seeds = SeedLines(lines_of(count), "f")
        next(seeds.chunks(), [])
        assert seeds.ended is ended, count


def test_a_bad_line_in_the_first_chunk_ends_everything_with_its_number_and_text() -> None:
    """Nothing was submitted yet, so the user can mend the file and lose nothing."""
    with pytest.raises(BadUrl, match=r"urls\.txt, line 3: 'nonsense here'"):
        list(SeedLines(["https://a/", "", "nonsense here"], "urls.txt").chunks())


def test_bad_lines_later_on_are_left_out_and_told_at_the_end() -> None:
    """One typo in line four million does not stop a crawl that is hours old."""
    seeds = SeedLines([*lines_of(CHUNK), "nonsense here", "https://z/", "mailto:x@y"], "urls.txt")
    assert [len(chunk) for chunk in seeds.chunks()] == [CHUNK, 1]
    complaint = seeds.complaint()
    assert complaint is not None
    assert complaint.startswith("2 of 1003 seeds are not valid URLs; first: urls.txt, line 1001: ")


def test_a_clean_stream_has_no_complaint() -> None:
    """Silence means that every line was a URL."""
    seeds = SeedLines(lines_of(3), "f")
    list(seeds.chunks())
    assert seeds.complaint() is None


@pytest.mark.parametrize(
    "host", ["example.com", "localhost:8000", "localhost:8000/x", "a.b/c?d", "127.0.0.1"]
)
def test_a_bare_host_is_refused_with_the_url_it_was_meant_to_be(host: str) -> None:
    """Guessing a scheme in silence could crawl the wrong site; saying which one is better."""
    with pytest.raises(BadUrl, match=r"Try https?://"):
        check_seed(host)


@pytest.mark.parametrize(
    "text", ["", "ftp://x/", "javascript:1", "https://", "https://[", "\udc80", "http://a b/", "-"]
)
def test_what_is_no_url_is_a_bad_url_and_nothing_else(text: str) -> None:
    """Also for text that no file can hold as UTF-8."""
    with pytest.raises(BadUrl):
        check_seed(text)
