"""A body of seeds becomes requests, however the network cuts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.gateway.seed_lines import MOST_LINE, MOST_SEEDS, MOST_TEXT, BadLine, Chunk, SeedBody


def chunks_of(body: bytes, step: int) -> list[Chunk]:
    lines = SeedBody()
    chunks = [
        chunk for at in range(0, len(body), step) for chunk in lines.feed(body[at : at + step])
    ]
    return [*chunks, lines.finish()]


@given(st.integers(1, 5_000), st.integers(0, 2_500), st.booleans())
def test_chunks_do_not_depend_on_the_network(step: int, seeds: int, ends: bool) -> None:
    """A body that is sent again gives the same requests, so each is only looked up."""
    body = b"\n".join(b"http://a.test/%d" % n for n in range(seeds)) + (b"\n" if ends else b"")
    chunks = chunks_of(body, step)
    assert chunks == chunks_of(body, len(body) or 1)
    assert [seed for chunk in chunks for seed in chunk.seeds] == [
        f"http://a.test/{n}" for n in range(seeds)
    ]
    assert all(len(chunk.seeds) <= MOST_SEEDS for chunk in chunks)


def test_a_chunk_has_a_limit_of_characters() -> None:
    """The leader takes at most 500,000 characters in a request."""
    body = b"\n".join(b"http://a.test/" + b"x" * 8_000 for _ in range(200))
    for chunk in chunks_of(body, 10_000):
        assert sum(map(len, chunk.seeds)) < MOST_TEXT + MOST_LINE


def test_lines_may_be_texts_json_comments_or_empty() -> None:
    """A file of `zcrawl --seeds` and JSON lines are both read; lines are counted."""
    body = b'http://a.test/\r\n\n# no seed\n"http://b.test/"\n{"url": "http://c.test/", "x": 1}'
    (chunk,) = chunks_of(body, 7)
    assert chunk == Chunk(["http://a.test/", "http://b.test/", "http://c.test/"], 1, 5)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"http://a.test/\n{\n", "line 2 is not JSON"),
        (b'{"link": "http://a.test/"}\n', "line 1 is neither"),
        (b"\n\xff\xfe\n", "line 2 is not UTF-8"),
        (b"http://a.test/\n" + b"x" * 20_000, "line 2 is longer"),
        (b"x" * 20_000 + b"\n", "line 1 is longer"),
        (b'{"url": ' + b"[" * 10_000, "line 1"),
    ],
)
def test_a_bad_line_is_named_by_its_number(body: bytes, why: str) -> None:
    """A client corrects this line; an endless line is refused before it fills the memory."""
    with pytest.raises(BadLine, match=why):
        chunks_of(body, 1_000)
