"""Labels and decoders as the WHATWG Encoding Standard has them."""

from __future__ import annotations

import time

import pytest

from zcrawl.errors import ParseError
from zcrawl.frontier.url import DEFAULT, LinkResolver
from zcrawl.parse.encodings import decode_as, encoding_named
from zcrawl.parse.page import PageOptions, parse_page


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (" UTF8\n", "utf-8"),
        ("iso_8859-2:1987", "iso-8859-2"),
        ("csISO88596I", "iso-8859-6"),
        ("sun_eu_greek", "iso-8859-7"),
        ("logical", "iso-8859-8-i"),
        ("latin1", "windows-1252"),
        ("gb2312", "gbk"),
        ("unicode", "utf-16le"),
        ("x-user-defined", "x-user-defined"),
        ("hz-gb-2312", "replacement"),
        ("latin-1", None),
        ("utf-7", None),
        ("utf-32", None),
        ("cp437", None),
        ("kelvin-\u212a", None),
        ("\udc80", None),
        ("x" * 10_000, None),
    ],
)
def test_a_label_means_what_the_standard_says(label: str, name: str | None) -> None:
    """Python knows other labels, and others by the same name."""
    assert encoding_named(label) == name


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b"\x81\x80", "windows-1252", "\x81\u20ac"),
        (b"\x81\xdb\xa1", "windows-874", "\x81\ufffd\u0e01"),
        (b"\xa5a", "iso-8859-3", "\ufffda"),
        (b"\xae\xbe", "koi8-u", "\u045e\u040e"),
        (b"\xca\xd9", "windows-1255", "\u05ba\ufffd"),
        (b"\x80\xa8D\x949\xda3\x81", "gbk", "\u20ac\u2015\U0001f4a9\ufffd"),
        (b"\xad\xa1\xa1\xc1\xfc\xf1\xff\xa4\xa2", "euc-jp", "\u2460\uff5e\u2170\ufffd\u3042"),
        (b"\x1b$B-!!A\x1b(Ba", "iso-2022-jp", "\u2460\uff5ea"),
        (b"\xa3\xe1\xa1E\x8bE\xff", "big5", "\u20ac\u2027\U00022c51\ufffd"),
        (b"\x87@\xfa@", "shift_jis", "\u2460\u2170"),
        (b"a\xff", "x-user-defined", "a\uf7ff"),
        (b"abc", "replacement", "\ufffd"),
    ],
)
def test_bytes_become_the_text_of_the_standard(data: bytes, name: str, text: str) -> None:
    """Also where Python's codec knows fewer characters."""
    assert decode_as(data, name) == text


def test_every_encoding_reads_every_pair_of_bytes() -> None:
    """Nothing raises, and something comes out."""
    pairs = b"".join(bytes((a, b)) for a in range(0x80, 0x100) for b in range(0x20, 0x100))
    for label in ("gbk", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr", "windows-1255"):
        assert len(decode_as(pairs, label)) > 10_000
    assert decode_as(b"\x1b$B" + pairs, "iso-2022-jp")


@pytest.mark.parametrize("name", ["windows-1252", "euc-jp", "gbk", "big5", "utf-16le"])
def test_bytes_that_mean_nothing_take_no_longer(name: str) -> None:
    """A second chance is given to a few sequences, not to a page that is full of them."""
    began = time.process_time()
    decode_as(b"\x81\xff\xd8\x00" * 500_000, name)
    assert time.process_time() - began < 1.0


def test_a_page_in_a_forbidden_encoding_fails_by_name() -> None:
    """It is not read as nothing: the page ends with a reason."""
    with pytest.raises(ParseError) as caught:
        parse_page(
            b"<a href=/x>", "text/html; charset=iso-2022-kr", "https://h.test/",
            PageOptions(), LinkResolver(DEFAULT),
        )  # fmt: skip
    assert caught.value.code == "forbidden_charset"
