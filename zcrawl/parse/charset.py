"""Decides in which encoding a body is written, and whether it is text at all.

Called by `parse.page` for every page. Pure; never raises. The first that answers wins:

1. a byte-order mark
2. the charset of the Content-Type header
3. a <meta charset> or <meta http-equiv> (or an XML declaration) in the first 1,024 bytes
4. UTF-8, if the body is valid UTF-8
5. charset_normalizer's guess from a sample, among the encodings of the web
6. windows-1252

Labels and names are those of the WHATWG Encoding Standard: `iso-8859-1` and `ascii` mean
windows-1252, `gb2312` means GBK; a label it does not know is ignored. Bytes that the encoding
cannot read become U+FFFD.
"""

from __future__ import annotations

import re
from typing import Final

_META_WINDOW: Final = 1024  # bytes that are searched for a declaration, and for binary data
_SAMPLE: Final = 4096  # bytes that a guess is based on: 0.4 to 2 ms a guess

# name = Python's codec: labels. The Standard's table without what the web has forgotten.
_TABLE = """
utf-8 = utf-8: unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8
ibm866 = cp866: 866 cp866 csibm866
iso-8859-2 = iso8859-2: csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 l2 latin2
iso-8859-3 = iso8859-3: csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 l3 latin3
iso-8859-4 = iso8859-4: csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 l4 latin4
iso-8859-5 = iso8859-5: csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5
iso-8859-6 = iso8859-6: arabic asmo-708 csisolatinarabic ecma-114 iso8859-6 iso88596 iso_8859-6
iso-8859-7 = iso8859-7: csisolatingreek ecma-118 elot_928 greek greek8 iso8859-7 iso88597 iso_8859-7
iso-8859-8 = iso8859-8: csisolatinhebrew hebrew iso-8859-8-i iso8859-8 iso88598 iso_8859-8 logical visual
iso-8859-10 = iso8859-10: csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6
iso-8859-13 = iso8859-13: iso8859-13 iso885913
iso-8859-14 = iso8859-14: iso8859-14 iso885914
iso-8859-15 = iso8859-15: csisolatin9 iso8859-15 iso885915 iso_8859-15 l9 latin9
iso-8859-16 = iso8859-16:
koi8-r = koi8-r: cskoi8r koi koi8 koi8_r
koi8-u = koi8-u: koi8-ru
macintosh = mac-roman: csmacintosh mac x-mac-roman
windows-874 = cp874: dos-874 iso-8859-11 iso8859-11 iso885911 tis-620
windows-1250 = cp1250: cp1250 x-cp1250
windows-1251 = cp1251: cp1251 x-cp1251
windows-1252 = cp1252: ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 latin-1 us-ascii x-cp1252 x-user-defined
windows-1253 = cp1253: cp1253 x-cp1253
windows-1254 = cp1254: cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 l5 latin5 x-cp1254
windows-1255 = cp1255: cp1255 x-cp1255
windows-1256 = cp1256: cp1256 x-cp1256
windows-1257 = cp1257: cp1257 x-cp1257
windows-1258 = cp1258: cp1258 x-cp1258
x-mac-cyrillic = mac-cyrillic: x-mac-ukrainian
gbk = gb18030: chinese csgb2312 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk
gb18030 = gb18030:
big5 = big5hkscs: big5-hkscs cn-big5 csbig5 x-x-big5
euc-jp = euc-jp: cseucpkdfmtjapanese x-euc-jp
iso-2022-jp = iso2022-jp: csiso2022jp
shift_jis = cp932: csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis
euc-kr = cp949: cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949
utf-16be = utf-16-be: unicodefffe
utf-16le = utf-16-le: csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16
"""  # noqa: E501

_CODECS: dict[str, str] = {}
_NAMES: dict[str, str] = {}  # label -> name
for _line in _TABLE.strip().splitlines():
    _name, _, _rest = _line.partition(" = ")
    _codec, _, _labels = _rest.partition(":")
    _CODECS[_name] = _codec
    _NAMES.update(dict.fromkeys([_name, *_labels.split()], _name))

# What a guess may answer: more candidates make guesses slower and stranger (cp037, mac_turkish).
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

_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.I)
_META_CHARSET = re.compile(
    rb"<(?:meta\b[^>]*?|\?xml\b[^>]*?)(?:charset|encoding)\s*=\s*[\"']?\s*([^\s\"'/>;?]+)", re.I
)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.S)
_NON_ASCII = re.compile(rb"[\x80-\xff]")

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
    """The WHATWG name of the encoding of `body`."""
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return {0xEF: "utf-8", 0xFF: "utf-16le", 0xFE: "utf-16be"}[body[0]]
    declared = _HEADER_CHARSET.search(content_type)
    name = _NAMES.get(declared[1].lower()) if declared else None
    return name or _declared_inside(body) or _guessed(body)


def decode(body: bytes, content_type: str) -> tuple[str, str]:
    """(text, WHATWG name of its encoding). A byte-order mark is not part of the text."""
    name = encoding_of(body, content_type)
    text = body.decode(_CODECS[name], "replace")
    if text.startswith("\ufeff"):
        text = text[1:]
    if not text.isascii():  # a codec may let lone surrogates through, which nothing can store
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text, name


def looks_binary(body: bytes) -> bool:
    """Whether this is certainly no text: a known magic number, or full of control bytes."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False  # UTF-16: every other byte may be 0
    if body.startswith(_MAGIC) or body[4:8] == b"ftyp":
        return True
    if body.startswith(b"RIFF") and body[8:12] in (b"WEBP", b"AVI ", b"WAVE"):
        return True
    head = body[:_META_WINDOW]
    # Random bytes have 10 % of them, broken HTML a few: 5 %, and more than 3.
    return len(head.translate(None, _TEXT_BYTES)) > max(3, len(head) // 20)


def _declared_inside(body: bytes) -> str | None:
    head = body[:_META_WINDOW]
    if b"<!--" in head:
        head = _COMMENT.sub(b"", head)
    found = _META_CHARSET.search(head)
    while found:
        name = _NAMES.get(found[1].decode("latin-1").lower())
        if name:
            # The declaration was read as ASCII, so UTF-16 cannot be true.
            return "utf-8" if name.startswith("utf-16") else name
        found = _META_CHARSET.search(head, found.end())
    return None


def _guessed(body: bytes) -> str:
    try:
        body.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError as error:
        if error.start >= len(body) - 3:  # cut off within its last character
            return "utf-8"
    # Imported here: most workers never need it, and the first guess takes 32 ms.
    from charset_normalizer import from_bytes

    first = _NON_ASCII.search(body)
    start = first.start() if first else 0
    sample = body[start : start + _SAMPLE]
    # `<` is no second byte in any of these encodings: a sample that ends there cuts no character.
    if len(body) > start + _SAMPLE and (end := sample.rfind(b"<")) > 0:
        sample = sample[:end]
    try:
        matches = from_bytes(sample, cp_isolation=list(_GUESSED), enable_fallback=False)
    except Exception:  # whatever a guesser does: windows-1252 reads any bytes
        return "windows-1252"
    best = matches.best()
    # French, Portuguese and Swedish look as tidy in 1250 as in 1252; the common one wins a tie.
    if best is None or any(
        "cp1252" in match.could_be_from_charset and match.chaos <= best.chaos for match in matches
    ):
        return "windows-1252"
    return _GUESSED.get(best.encoding, "windows-1252")
