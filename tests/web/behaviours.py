"""What each path of the misbehaving web does.

A behaviour gets the rest of its path and returns whether the connection may be used again.
`/good/N` is the only well-behaved one: N pages that link to each other.
"""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from tests.web.server import Hit, MisbehavingWeb

BOMB_BYTES = 10_000_000_000  # what /gzip-bomb expands to
PAGE = b"<html><head><title>a page</title></head><body><p>hello</p></body></html>"
CHARSETS = {  # with a text that each can hold
    "utf-8": "Zürich – žluťoučký",
    "latin-1": "Zürich",
    "windows-1252": "Zürich – €",
    "windows-1251": "Привет",
    "koi8-r": "Привет",
    "shift_jis": "こんにちは",
    "euc-jp": "こんにちは",
    "gb18030": "你好",
    "big5": "你好",
    "euc-kr": "안녕하세요",
    "utf-16": "Zürich – 你好",
}


class Exchange:
    """One request and the connection it came on."""

    def __init__(
        self,
        web: MisbehavingWeb,
        hit: Hit,
        rest: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.web = web
        self.hit = hit
        self.rest = rest  # of the path, behind the behaviour's name
        self.reader = reader
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(
        self, status: int = 200, body: bytes = PAGE, *headers: str, kind: str = "text/html"
    ) -> bool:
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
        if kind:
            lines.append(f"Content-Type: {kind}")
        await self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        return True


Behaviour = Callable[[Exchange], Awaitable[bool]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    """Registers a function under its name: `lies_long` answers /lies-long and /lies-long/…"""
    BEHAVIOURS[function.__name__.strip("_").replace("_", "-")] = function
    return function


async def answer(
    web: MisbehavingWeb, hit: Hit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    path = urlsplit(hit.path).path
    name, _, rest = path.removeprefix("/").partition("/")
    function = BEHAVIOURS.get(name or "index")
    if function is None:
        function, rest = BEHAVIOURS.get(web.catch_all, _not_found), path
    exchange = Exchange(web, hit, rest, reader, writer)
    try:
        return await function(exchange)
    except (ValueError, LookupError):  # a path like /status/abc
        return await exchange.reply(400, b"no such variant")


async def _not_found(x: Exchange) -> bool:
    return await x.reply(404, b"no such behaviour")


# ---------------------------------------------------------------- plain answers


@behaviour
async def index(x: Exchange) -> bool:
    """A page that links to every behaviour."""
    links = "".join(f'<a href="/{name}">{name}</a>' for name in sorted(BEHAVIOURS))
    return await x.reply(200, f"<html><body>{links}</body></html>".encode())


@behaviour
async def good(x: Exchange) -> bool:
    """/good/N/i: page i of N, linking to the next two and the first."""
    total, _, page = x.rest.partition("/")
    n, i = int(total or 10), int(page or 0)
    links = "".join(f'<a href="/good/{n}/{j % n}">p</a>' for j in (i + 1, i + 2, 0))
    return await x.reply(200, f"<html><title>{i}</title><body>{links}</body></html>".encode())


@behaviour
async def status(x: Exchange) -> bool:
    """/status/N"""
    code = int(x.rest or 200)
    if code in (204, 304):
        await x.raw(f"HTTP/1.1 {code} Nothing\r\n\r\n".encode())
        return True
    return await x.reply(code)


@behaviour
async def echo(x: Exchange) -> bool:
    """The path as it was sent and the headers, one a line."""
    lines = [x.hit.path, *(f"{name}: {value}" for name, value in x.hit.headers.items())]
    return await x.reply(200, "\n".join(lines).encode("latin-1"), kind="text/plain")


async def _robots_txt(x: Exchange) -> bool:
    if x.web.robots is None:
        return await x.reply(404, b"")
    headers = x.web.robots_headers
    return await x.reply(x.web.robots_status, x.web.robots, *headers, kind="text/plain")


BEHAVIOURS["robots.txt"] = _robots_txt


# ---------------------------------------------------------------- encodings and sizes


@behaviour
async def large(x: Exchange) -> bool:
    """/large/N: N bytes, announced."""
    return await x.reply(200, b"x" * int(x.rest or 1_000_000))


@behaviour
async def endless(x: Exchange) -> bool:
    """A chunked body without end, as fast as it is read."""
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await x.raw(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


@behaviour
async def compressed(x: Exchange) -> bool:
    """/compressed/gzip|gzip-members|gzip-trailer|deflate|raw-deflate|gzip-gzip|unknown|zstd|empty"""
    raw_deflate = zlib.compressobj(wbits=-15)
    variants: dict[str, Callable[[], tuple[bytes, str]]] = {
        "gzip": lambda: (gzip.compress(PAGE), "gzip"),
        "gzip-members": lambda: (gzip.compress(PAGE[:20]) + gzip.compress(PAGE[20:]), "x-gzip"),
        "gzip-trailer": lambda: (gzip.compress(PAGE) + b"\0\0\0\0", "gzip"),
        "deflate": lambda: (zlib.compress(PAGE), "deflate"),
        "raw-deflate": lambda: (raw_deflate.compress(PAGE) + raw_deflate.flush(), "deflate"),
        "gzip-gzip": lambda: (gzip.compress(gzip.compress(PAGE)), "gzip, gzip"),
        "unknown": lambda: (PAGE, "utf-8"),
        "zstd": lambda: (b"\x28\xb5\x2f\xfd whatever", "zstd"),
        "empty": lambda: (b"", "gzip"),
    }
    body, header = variants[x.rest or "gzip"]()
    return await x.reply(200, body, f"Content-Encoding: {header}")


@behaviour
async def gzip_bomb(x: Exchange) -> bool:
    """10 GB of zeros, about 10 MB on the wire."""
    await x.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n")
    packer, block = zlib.compressobj(9, wbits=31), bytes(1_000_000)
    for _ in range(BOMB_BYTES // len(block)):
        await x.raw(packer.compress(block))
        await asyncio.sleep(0)
    await x.raw(packer.flush())
    return False


@behaviour
async def broken_gzip(x: Exchange) -> bool:
    """Calls itself gzip and is none."""
    return await x.reply(200, PAGE, "Content-Encoding: gzip")


@behaviour
async def corrupt_gzip(x: Exchange) -> bool:
    """gzip with a wrong checksum."""
    body = bytearray(gzip.compress(PAGE))
    body[-6] ^= 0xFF
    return await x.reply(200, bytes(body), "Content-Encoding: gzip")


@behaviour
async def cut_gzip(x: Exchange) -> bool:
    """A whole transfer of half a gzip stream."""
    return await x.reply(200, gzip.compress(PAGE)[:-20], "Content-Encoding: gzip")


# ---------------------------------------------------------------- redirects


@behaviour
async def hops(x: Exchange) -> bool:
    """/hops/N: N redirects, then a page (default 100)."""
    left = int(x.rest or 100)
    if left == 0:
        return await x.reply()
    return await x.reply(302, b"", f"Location: /hops/{left - 1}")


@behaviour
async def loop(x: Exchange) -> bool:
    """/loop/a and /loop/b point at each other."""
    return await x.reply(301, b"", f"Location: /loop/{'a' if x.rest == 'b' else 'b'}")


@behaviour
async def redirect_self(x: Exchange) -> bool:
    return await x.reply(302, b"", "Location: /redirect-self")


@behaviour
async def redirect_without_location(x: Exchange) -> bool:
    return await x.reply(302, b"")


@behaviour
async def redirect_elsewhere(x: Exchange) -> bool:
    """To the same server under another name, which is another host to a crawler."""
    return await x.reply(302, b"", f"Location: http://localhost:{x.web.port}/status/200")


@behaviour
async def redirect_file(x: Exchange) -> bool:
    return await x.reply(302, b"", "Location: file:///etc/passwd")


@behaviour
async def links_to(x: Exchange) -> bool:
    """/links-to?URL (percent-encoded)"""
    link = unquote(urlsplit(x.hit.path).query)
    return await x.reply(200, f'<html><a href="{link}">there</a></html>'.encode())


@behaviour
async def redirect_to(x: Exchange) -> bool:
    """/redirect-to?URL (percent-encoded)"""
    return await x.reply(302, b"", f"Location: {unquote(urlsplit(x.hit.path).query)}")


# ---------------------------------------------------------------- moods


@behaviour
async def retry_after(x: Exchange) -> bool:
    """/retry-after/N: 503 once with that many seconds, then a page; /retry-after/date/N: a date."""
    if x.web.hits(x.hit.path) > 1:
        return await x.reply()
    form, _, seconds = x.rest.rpartition("/")
    value = seconds or "1"
    if form == "date":
        value = email.utils.formatdate(time.time() + int(seconds), usegmt=True)
    return await x.reply(503, b"", f"Retry-After: {value}")


@behaviour
async def flaky(x: Exchange) -> bool:
    """/flaky/N[/name]: fails the first N times it is asked for, with 500, 503 and a hang-up."""
    fails, seen = int(x.rest.partition("/")[0] or 2), x.web.hits(x.hit.path)
    if seen > fails:
        return await x.reply()
    if seen % 3 == 0:
        return False
    return await x.reply(500 if seen % 3 == 1 else 503)


# ---------------------------------------------------------------- contents


@behaviour
async def binary_as_html(x: Exchange) -> bool:
    return await x.reply(200, b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200)


@behaviour
async def nul(x: Exchange) -> bool:
    """HTML with NUL bytes in text, names and links."""
    return await x.reply(
        200, b'<html>\0<title>n\0ul</title><a hr\0ef="/a\0b">x</a><a href="/c">y</a>'
    )


@behaviour
async def many_links(x: Exchange) -> bool:
    """/many-links/N: a page with N links to /status/200?i (default 10,000)."""
    links = "".join(f'<a href="/status/200?{i}">{i}</a>' for i in range(int(x.rest or 10_000)))
    return await x.reply(200, f"<html><body>{links}</body></html>".encode())


@behaviour
async def bad_links(x: Exchange) -> bool:
    """Links that are none, or that no crawler should follow."""
    hrefs = ["http://[::1", "javascript:void(0)", "mailto:a@b.c", "http://", "//", "?", "#top"]
    hrefs += [
        "data:text/html,x",
        "file:///etc/passwd",
        "http://x\ud83d.example/".encode("utf-8", "replace").decode(),
        "/" + "a" * 100_000,
        "http://127.0.0.1:99999/",
        "\t/ok\n",
    ]
    links = "".join(f'<a href="{href}">x</a>' for href in hrefs)
    return await x.reply(200, f"<html><body>{links}</body></html>".encode())


@behaviour
async def charset(x: Exchange) -> bool:
    """/charset/NAME in the header; /charset/meta/NAME in a meta tag; /charset/none/NAME untold."""
    form, _, name = x.rest.rpartition("/")
    name = name or "utf-8"
    if name == "lying":  # says UTF-8 and is not
        body = "<title>Zürich</title>".encode("latin-1")
        return await x.reply(200, body, kind="text/html; charset=utf-8")
    if name == "unheard-of":
        return await x.reply(200, PAGE, kind="text/html; charset=klingon-8")
    meta = f'<meta charset="{name}">' if form == "meta" else ""
    page = f"<html><head>{meta}<title>{CHARSETS[name]}</title></head></html>"
    kind = "text/html" if form else f"text/html; charset={name}"
    return await x.reply(200, page.encode(name), kind=kind)


# ---------------------------------------------------------------- a site for members


@behaviour
async def login(x: Exchange) -> bool:
    """A form with a token that has to come back."""
    form = (
        '<form method="post" action="/do-login"><input type="hidden" name="token" value="t-1">'
        '<input name="user"><input type="password" name="password"></form>'
    )
    return await x.reply(200, f"<html>{form}</html>".encode())


@behaviour
async def do_login(x: Exchange) -> bool:
    """Lets ann in, with her password and the token."""
    if x.hit.body != b"token=t-1&user=ann&password=s3cret":
        return await x.reply(200, b"<html>wrong password</html>")
    return await x.reply(302, b"", "Location: /members/1/0", "Set-Cookie: sid=member; Path=/")


@behaviour
async def members(x: Exchange) -> bool:
    """/members/N/i: like /good, for those who are logged in."""
    if "sid=member" not in x.hit.headers.get("cookie", ""):
        return await x.reply(403, b"<html>members only</html>")
    total, _, page = x.rest.partition("/")
    n, i = int(total or 10), int(page or 0)
    links = "".join(f'<a href="/members/{n}/{j % n}">p</a>' for j in (i + 1, 0))
    return await x.reply(200, f"<html><body>welcome {links}</body></html>".encode())


@behaviour
async def crumbs(x: Exchange) -> bool:
    """/crumbs/N/i: like /good, each page with ten cookies more; what sends more than 8 KB of them
    is refused, as common servers do, and so is what has lost the first one."""
    cookie = x.hit.headers.get("cookie", "")
    if len(cookie) > 8_190:
        return await x.reply(400, b"<html>request header too large</html>")
    total, _, page = x.rest.partition("/")
    n, i = int(total or 10), int(page or 0)
    if i and "first=here" not in cookie:
        return await x.reply(403, b"<html>who are you?</html>")
    crumbs = [f"Set-Cookie: c{i}-{k}={'x' * 100}; Path=/" for k in range(10)]
    first = [] if i else ["Set-Cookie: first=here; Path=/"]
    body = f'<html><a href="/crumbs/{n}/{(i + 1) % n}">on</a></html>'.encode()
    return await x.reply(200, body, *first, *crumbs)


@behaviour
async def enter(x: Exchange) -> bool:
    """/enter/N: the only door to /members/N."""
    body = f'<html><a href="/members/{x.rest}/0">in</a></html>'.encode()
    return await x.reply(200, body, "Set-Cookie: sid=member; Path=/")
