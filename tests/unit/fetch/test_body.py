"""Bodies: every Content-Encoding is undone, in whatever pieces it comes, and within its limit."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.web.encodings import CODINGS, PACKERS, PIECES, SMALL, VARIED, bomb, header_of, packed
from zcrawl.errors import FetchError
from zcrawl.fetch.body import ACCEPT_ENCODING, ARCHIVABLE_ENCODING, MAX_MEMBERS, BodyReader
from zcrawl.fetch.policy import RETRY_CLASS_OF

# Written as servers write them, and what they stand for.
SPELLINGS = {
    "": "",
    "identity": "",
    "utf-8": "",
    "X-GZIP": "gzip",
    " Deflate ": "raw-deflate",
    "gzip,identity": "gzip",
    "BR": "br",
    "zstd ,": "zstd",
}


def read(encoding: str, data: bytes, piece: int = 10**9, limit: int = 10**6) -> bytes:
    reader = BodyReader(encoding, limit)
    out = [x for i in range(0, len(data), piece) for x in reader.feed(data[i : i + piece])]
    reader.finish()
    assert reader.raw_bytes == len(data)
    assert reader.decoded_bytes == sum(map(len, out))
    return b"".join(out)


def failure(encoding: str, data: bytes, piece: int = 10**9, limit: int = 10**6) -> str:
    with pytest.raises(FetchError) as error:
        read(encoding, data, piece, limit)
    assert error.value.retry is RETRY_CLASS_OF[error.value.code]
    return error.value.code


def encoding_of(coding: str) -> str:
    return ", ".join(header_of(coding))


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("coding", CODINGS)
def test_every_encoding_is_read_in_every_kind_of_pieces(coding: str, piece: int) -> None:
    """A page that is longer than what a decoder gives at once comes out whole, also when its last
    input came long before its last output, and alone or upon another encoding."""
    encoding = encoding_of(coding)
    assert read(encoding, packed(coding, SMALL), piece) == SMALL
    assert read(encoding, packed(coding, VARIED), max(piece, 7)) == VARIED


@settings(deadline=None)
@given(
    st.sampled_from(CODINGS),
    st.binary(max_size=2000),
    st.integers(1, 200),
    st.integers(1, 300),
)
def test_what_was_packed_comes_out(coding: str, data: bytes, repeat: int, piece: int) -> None:
    """However the network cuts it, a body comes out as it went in."""
    body = data * repeat
    assert read(encoding_of(coding), packed(coding, body), piece) == body


@pytest.mark.parametrize("encoding", SPELLINGS)
def test_spellings_and_words_that_mean_nothing(encoding: str) -> None:
    """Case and spaces do not matter; unknown words are ignored."""
    coding = SPELLINGS[encoding]
    body = packed(coding, SMALL) if coding else SMALL
    assert read(encoding, body) == SMALL


def test_what_is_asked_for_can_be_read() -> None:
    """Each encoding that requests name is undone; archives get what their readers know."""
    for name in ACCEPT_ENCODING.split(", "):
        assert read(name, packed(name, SMALL)) == SMALL
    assert set(ARCHIVABLE_ENCODING.split(", ")) == set(ACCEPT_ENCODING.split(", ")) - {"zstd"}


def test_up_to_five_encodings_are_undone() -> None:
    """As curl and urllib3 do it."""
    names = ["gzip", "deflate", "br", "zstd", "gzip"]
    assert read(", ".join(names), packed("+".join(names), VARIED), 1000) == VARIED


# ---------------------------------------------------------------- the end of a stream


@pytest.mark.parametrize("piece", [1, 10**9])
@pytest.mark.parametrize("coding", CODINGS)
def test_a_cut_stream_is_truncated(coding: str, piece: int) -> None:
    """A stream without its end is reported as truncated, wherever it was cut."""
    data = packed(coding, b"hello world " * 9000)
    for end in (1, 5, len(data) // 2, len(data) - 1):
        assert failure(encoding_of(coding), data[:end], piece) == "truncated"


@pytest.mark.parametrize("piece", [1, 7, 10**9])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_members_and_a_tail(coding: str, piece: int) -> None:
    """All members count; padding after the last one does not."""
    pack = PACKERS[coding]
    data = pack(b"one ") + pack(b"") + pack(b"two") + b"\0" * 20
    assert read(coding, data, piece) == b"one two"


@pytest.mark.parametrize("piece", [1, 10**9])
def test_a_zstd_frame_to_skip_gives_nothing(piece: int) -> None:
    """Skippable frames may come before and after frames with content; a cut one is an error."""
    skipped = b"\x5f\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    frame = PACKERS["zstd"](b"page")
    assert read("zstd", skipped + frame + skipped, piece) == b"page"
    assert failure("zstd", skipped + frame + skipped[:-1], piece) == "truncated"


@pytest.mark.parametrize("piece", [1, 10**9])
def test_bytes_behind_a_brotli_stream_are_an_error(piece: int) -> None:
    """The library does not give what it has read then; in whatever pieces, the name is the same."""
    assert failure("br", packed("br", b"page") + b"\0\0", piece) == "bad_encoding"


def test_an_empty_body_may_claim_any_encoding() -> None:
    """Nothing is nothing, compressed or not."""
    for coding in CODINGS:
        assert read(encoding_of(coding), b"") == b""


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_is_stopped_at_the_limit(coding: str) -> None:
    """Output is not more than the limit and one buffer of a codec, whatever the input expands
    to."""
    reader = BodyReader(encoding_of(coding), 1_000_000)
    with pytest.raises(FetchError) as error:
        reader.feed(bomb(coding))
    assert error.value.code == "too_large"
    assert reader.decoded_bytes <= 1_000_000 + 65_536


@pytest.mark.parametrize("coding", ["", *CODINGS])
def test_the_limit_itself_is_allowed(coding: str) -> None:
    """max_bytes bytes pass, one more does not."""
    data = packed(coding, bytes(1000)) if coding else bytes(1000)
    assert len(read(encoding_of(coding), data, limit=1000)) == 1000
    assert failure(encoding_of(coding), data, limit=999) == "too_large"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_members_are_limited(coding: str) -> None:
    """Thousands of empty members are an attack on the CPU, not a page."""
    assert failure(coding, PACKERS[coding](b"") * (MAX_MEMBERS + 1)) == "bad_encoding"


def test_more_sent_than_allowed_is_too_large_even_if_it_shrinks() -> None:
    """The raw size is limited too: empty gzip blocks cost the network and give nothing."""
    assert failure("gzip", gzip.compress(b"") * 100, limit=200) == "too_large"


@pytest.mark.parametrize("outer", PACKERS)
def test_a_stream_that_gives_nothing_is_limited_within_another(outer: str) -> None:
    """A gzip header may have a file name of any length, a zstd frame may be one to skip: packed
    again they would cost hours and never reach the limit of the page."""
    name = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 5_000_000
    skipped = b"\x50\x2a\x4d\x18" + (2**32 - 1).to_bytes(4, "little") + bytes(5_000_000)
    for inner, data in (("gzip", name), ("zstd", skipped)):
        encoding = f"{inner}, {header_of(outer)[0]}"
        assert failure(encoding, packed(outer, data)) == "too_large"


def test_a_zstd_window_beyond_the_standards_is_refused() -> None:
    """RFC 9659: 8 MB. A frame that wants more would cost that memory before its first byte."""
    begins = b"\x28\xb5\x2f\xfd\x00"
    assert failure("zstd", begins + bytes([(23 - 10) << 3]), 1) == "truncated"
    assert failure("zstd", begins + bytes([(24 - 10) << 3]), 1) == "bad_encoding"


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(
    "encoding", ["gzip, " * 5 + "gzip", "br,br,br,br,zstd,br", "compress", "br, dcb", "dcz"]
)
def test_what_cannot_be_undone_is_refused(encoding: str) -> None:
    """Too many layers, or one that we did not ask for."""
    with pytest.raises(FetchError) as error:
        BodyReader(encoding, 1000)
    assert error.value.code == "bad_encoding"


@pytest.mark.parametrize("coding", PACKERS)
def test_a_page_that_is_not_packed_although_it_says_so(coding: str) -> None:
    """Its plain text is not a valid stream of any encoding."""
    text = b"<html><body>plain</body></html>"
    assert failure(encoding_of(coding), text) == "bad_encoding"


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=300), st.sampled_from(CODINGS), st.integers(1, 50))
def test_any_bytes_end_with_a_body_or_a_name(data: bytes, coding: str, piece: int) -> None:
    """Garbage gives FetchError and nothing else."""
    try:
        read(encoding_of(coding), data, piece)
    except FetchError as error:
        assert error.code in ("bad_encoding", "truncated", "too_large")


@settings(deadline=None)
@given(st.sampled_from(CODINGS), st.integers(0, 10_000), st.integers(0, 255), st.integers(1, 50))
def test_a_damaged_stream_ends_with_a_body_or_a_name(
    coding: str, place: int, value: int, piece: int
) -> None:
    """One wrong byte anywhere."""
    data = bytearray(packed(coding, SMALL))
    data[place % len(data)] = value
    try:
        read(encoding_of(coding), bytes(data), piece)
    except FetchError as error:
        assert error.code in ("bad_encoding", "truncated", "too_large")


def test_the_reader_can_keep_what_came() -> None:
    """For archives: the bytes as they were sent, if they were decoded."""
    for coding in CODINGS:
        reader = BodyReader(encoding_of(coding), 10**6, keeps=True)
        reader.feed(packed(coding, SMALL))
        assert reader.raw_body == packed(coding, SMALL)
