"""How bytes become text."""

from __future__ import annotations

import pytest

from zcrawl.parse.charset import decode, looks_binary

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Это страница о погоде."
FRENCH = "L'été à la plage, où l'on va déjeuner avec les élèves français. Ça va très bien."
JAPANESE = "日本語のページです。これはテストのための文章であり、文字コードを判定します。"
CHINESE = "中文网页测试。这是一个用于检测字符编码的句子，北京是中华人民共和国的首都。"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        # 1 a byte-order mark beats the header
        ("\ufeffé".encode(), "text/html; charset=latin1", ("é", "utf-8")),
        (b"\xff\xfe" + "é".encode("utf-16-le"), "", ("é", "utf-16le")),
        (b"\xfe\xff" + "é".encode("utf-16-be"), "", ("é", "utf-16be")),
        # 2 the header, with the Standard's meaning of labels
        ("€".encode("cp1252"), "text/html; charset=ISO-8859-1", ("€", "windows-1252")),
        ("й".encode("koi8-r"), 'text/html;charset="KOI8-R"', ("й", "koi8-r")),
        ("ş".encode("cp1254"), "text/html; charset=iso-8859-9", ("ş", "windows-1254")),
        ("中".encode("gbk"), "text/html; charset=gb2312", ("中", "gbk")),
        ("①".encode("cp932"), "text/html; charset=shift_jis", ("①", "shift_jis")),
        # unknown and dangerous labels are ignored
        ("é".encode(), "text/html; charset=nonsense", ("é", "utf-8")),
        (b"+AGE-", "text/html; charset=utf-7", ("+AGE-", "utf-8")),
        (b"abc", "text/html; charset=rot13", ("abc", "utf-8")),
        # 4 UTF-8 by itself, also when its last character is cut off
        ("é".encode(), "", ("é", "utf-8")),
        (b"ab\xc3", "", ("ab\ufffd", "utf-8")),
        (b"", "", ("", "utf-8")),
        # invalid bytes are replaced, not fatal
        (b"a\xffb", "text/html; charset=utf-8", ("a\ufffdb", "utf-8")),
        (b"\xd8\x00\xd8", "text/html; charset=utf-16le", ("\ufffd", "utf-16le")),
    ],
)
def test_the_order_of_evidence(body: bytes, content_type: str, expected: tuple[str, str]) -> None:
    """Mark, header, declaration, UTF-8: the first that answers wins."""
    text, name = decode(body, content_type)
    assert name == expected[1]
    assert text == expected[0] or (name == "utf-16le" and "\ufffd" in text)


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("<meta charset=windows-1251>", "windows-1251"),
        ("<META CharSet='koi8-r'/>", "koi8-r"),
        ("<meta http-equiv=Content-Type content='text/html; charset=iso-8859-2'>", "iso-8859-2"),
        ("<?xml version='1.0' encoding='iso-8859-5'?>", "iso-8859-5"),
        ("<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        ("<meta charset=utf-16>", "utf-8"),
        ("<meta charset=x-user-defined>", "windows-1252"),
        ("<!-- <meta charset=koi8-r> -->", "utf-8"),
        ("<?xml version='1.0' encoding='iso-8859-5'?><meta charset=koi8-r>", "koi8-r"),
        ("<?xml version='1.0'\nencoding\t= 'koi8-r' ?>", "koi8-r"),
        (" <?xml version='1.0' encoding='koi8-r'?>", "utf-8"),
        ("<?xml version='1.0' encoding=koi8-r?>", "utf-8"),
        ("<?xml version='encoding' encoding='koi8-r'?>", "utf-8"),
    ],
)
def test_a_declaration_counts(declaration: str, name: str) -> None:
    """meta before an XML declaration, which has to be the beginning; unknown labels do not."""
    assert decode(declaration.encode(), "text/html")[1] == name


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (FRENCH, "cp1252"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc-jp"),
        (CHINESE, "gb18030"),
    ],
)
def test_undeclared_text_is_guessed(text: str, codec: str) -> None:
    """Without any evidence the text itself gives the encoding away, also in a long page."""
    for page in (f"<p>{text}</p>", f"<p>{text}</p>" * 100):
        assert decode(page.encode(codec), "text/html")[0] == page


def test_every_byte_is_text_in_the_end() -> None:
    """Nothing raises, and what comes out can be stored."""
    for body in (bytes(range(256)), b"\x81\x8d\x8f" * 9, bytes(range(128, 256)) * 9):
        for content_type in (
            "",
            "text/html; charset=utf-16",
            "charset=iso-2022-jp",
            "charset=big5",
        ):
            assert decode(body, content_type)[0].encode() is not None


@pytest.mark.parametrize(
    ("body", "binary"),
    [
        (b"\x89PNG\r\n\x1a\n", True),
        (b"\xff\xd8\xff\xe0", True),
        (b"GIF89a", True),
        (b"%PDF-1.7", True),
        (b"PK\x03\x04", True),
        (b"\x1f\x8b\x08", True),
        (b"\x7fELF\x02", True),
        (b"RIFF\x01\x02\x03\x04WEBP", True),
        (b"\x00\x00\x00\x18ftypmp42", True),
        (bytes(range(256)) * 4, True),
        (b"<html>" + b"\0" * 400, True),
        (b"", False),
        (b"<html>one \0 stray NUL</html>", False),
        ("\ufeff<html>".encode("utf-16"), False),
        ("<p>日本語</p>".encode("iso2022-jp"), False),
        ("<p>日本語</p>".encode("shift_jis"), False),
    ],
)
def test_binary_data_is_told_from_text(body: bytes, binary: bool) -> None:
    """Magic numbers and many control bytes are binary; UTF-16 with its mark and one NUL are not."""
    assert looks_binary(body) is binary
