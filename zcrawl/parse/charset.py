"""Decide the encoding of a body, and whether it is text at all.

Called by `parse.page` for every page. Pure; never raises. The first rule that applies wins:

1. a byte-order mark
2. the parameter `charset` of the Content-Type header
3. an XML declaration in UTF-16 without a mark
4. a <meta charset> or <meta http-equiv=content-type>, in the first 1,024 bytes and in the rest of
   the head
5. an XML declaration
6. UTF-8, if the body is valid UTF-8
7. a <meta> anywhere else
8. charset_normalizer's guess from a sample, among the encodings of the web
9. windows-1252

Names are those of the WHATWG Encoding Standard, in lower case: `iso-8859-1` and `ascii` mean
windows-1252, `gb2312` means GBK; a label it does not know is ignored. Bytes that the encoding
cannot read become U+FFFD.
"""

from __future__ import annotations

from typing import Final

from zcrawl.parse.encodings import decode_as, header_encoding, meta_encoding, xml_encoding
from zcrawl.text.patterns import lazy_pattern

_BINARY_WINDOW: Final = 1024  # bytes that are searched for binary data
_SAMPLE: Final = 4096  # bytes that a guess is based on: 0.4 to 2 ms a guess
_MARKS: Final = {0xEF: "utf-8", 0xFF: "utf-16le", 0xFE: "utf-16be"}
_UTF16_XML: Final = {b"<\0?\0x\0": "utf-16le", b"\0<\0?\0x": "utf-16be"}

# The candidates of a guess: more make guesses slower and less likely (cp037, mac_turkish).
_GUESSED = {
    "cp1252": "windows-1252",
    "cp1251": "windows-1251",
    "cp1250": "windows-1250",
    "cp1253": "windows-1253",
    "cp1254": "windows-1254",
    "cp1255": "windows-1255",
    "cp1256": "windows-1256",
    "koi8_r": "koi8-r",
    "cp932": "shift_jis",
    "euc_jp": "euc-jp",
    "gb18030": "gb18030",
    "big5": "big5",
    "cp949": "euc-kr",
}

_NON_ASCII = lazy_pattern(rb"[\x80-\xff]")

_MAGIC = (
    b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"%PDF-", b"PK\x03\x04",
    b"PK\x05\x06", b"\x1f\x8b", b"\x7fELF", b"BZh", b"\xfd7zXZ\x00", b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07", b"\x28\xb5\x2f\xfd", b"OggS\x00", b"ID3\x02", b"ID3\x03", b"ID3\x04",
    b"fLaC\x00", b"\x1aE\xdf\xa3", b"wOFF\x00", b"wOF2\x00", b"\x00asm", b"\xca\xfe\xba\xbe",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"\x00\x00\x01\x00", b"II*\x00", b"MM\x00*", b"8BPS\x00",
    b"SQLite format 3\x00", b"!<arch>\n",
)  # fmt: skip
# Bytes that no text has, by the MIME Sniffing Standard; translate() deletes all others.
_TEXT_BYTES = bytes(b for b in range(256) if b > 0x1F or b in b"\t\n\x0c\r\x1b")


def encoding_of(body: bytes, content_type: str) -> str:
    """Return the WHATWG name of the encoding of `body`."""
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return _MARKS[body[0]]
    return header_encoding(content_type) or _declared_encoding(body) or _guess(body)


def decode(body: bytes, content_type: str) -> tuple[str, str]:
    """Return (text, WHATWG name of its encoding), without a byte-order mark."""
    name = encoding_of(body, content_type)
    return text_as(body, name), name


def text_as(body: bytes, name: str) -> str:
    """Return the text of a body in that encoding, without characters that cannot be stored."""
    text = decode_as(body, name)
    if text.startswith("\ufeff"):
        text = text[1:]
    if not text.isascii():  # some codecs return lone surrogates, which cannot be stored
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def looks_binary(body: bytes) -> bool:
    """Return whether this is certainly not text: a known magic number, or many control bytes."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False  # UTF-16: every other byte may be 0
    if body.startswith(_MAGIC) or body[4:8] == b"ftyp":
        return True
    if body.startswith(b"RIFF") and body[8:12] in (b"WEBP", b"AVI ", b"WAVE"):
        return True
    head = body[:_BINARY_WINDOW]
    # Random bytes have 10 % of them, broken HTML a few: 5 %, and more than 3.
    return len(head.translate(None, _TEXT_BYTES)) > max(3, len(head) // 20)


def _declared_encoding(body: bytes) -> str | None:
    return _UTF16_XML.get(body[:6]) or meta_encoding(body) or xml_encoding(body)


def _guess(body: bytes) -> str:
    try:
        body.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError as error:
        if error.start >= len(body) - 3:  # cut off within its last character
            return "utf-8"
    if b"charset" in body.lower():  # 30 us for 100 KB
        declared = meta_encoding(body, to_the_end=True)
        if declared is not None:
            return declared
    # Imported here: most workers never need it, and the first guess takes 32 ms.
    from charset_normalizer import from_bytes

    first = _NON_ASCII.search(body)
    start = first.start() if first else 0
    sample = body[start : start + _SAMPLE]
    # `<` is never a second byte in these encodings, so a sample that ends there has whole
    # characters.
    if len(body) > start + _SAMPLE and (end := sample.rfind(b"<")) > 0:
        sample = sample[:end]
    try:
        matches = from_bytes(sample, cp_isolation=list(_GUESSED), enable_fallback=False)
    except Exception:  # any failure of the library: windows-1252 can decode all bytes
        return "windows-1252"
    best = matches.best()
    # French, Portuguese and Swedish look equally good in 1250 and 1252; the more common one wins.
    if best is None or any(
        "cp1252" in match.could_be_from_charset and match.chaos <= best.chaos for match in matches
    ):
        return "windows-1252"
    return _GUESSED.get(best.encoding, "windows-1252")
