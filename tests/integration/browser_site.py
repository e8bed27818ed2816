"""A site of a few pages for the browser's tests, and what they share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.web.listening import Listening
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.ports import HopLimits
from zcrawl.model.spec import Browser

HEADERS = {"User-Agent": "zcrawl-test/1", "Accept": "*/*"}
TIMEOUT_S = 40.0  # the machine may be busy
Answer = tuple[int, dict[str, str], bytes]


def need_chromium() -> None:
    """Skips without Chromium and playwright; in CI both must be there."""
    names = ("chromium", "chromium-browser", "google-chrome")
    available = any(map(shutil.which, names)) and _has_playwright()
    if not available and os.environ.get("CI") == "true":
        raise AssertionError("CI has no Chromium, or no playwright")
    if not available:
        pytest.skip("no Chromium, or no playwright", allow_module_level=True)


def _has_playwright() -> bool:
    try:
        import playwright  # noqa: F401
    except ImportError:
        return False
    return True


def page(body: str, head: str = "") -> Answer:
    text = f"<!doctype html><html><head>{head}</head><body>{body}</body></html>"
    return 200, {"Content-Type": "text/html"}, text.encode()


def redirect(target: str) -> Answer:
    return 302, {"Location": target}, b""


class Site(Listening):
    """`pages` by path; each a fixed answer or a function of the request's headers. A path that
    is not there is 404; `hang` is never answered. `log` has what was asked for, in order."""

    def __init__(
        self,
        pages: dict[str, Answer | Callable[[dict[str, str]], Answer]],
        address: str = "127.0.0.1",
    ) -> None:
        super().__init__(address)
        self.pages = pages
        self.log: list[str] = []
        self.headers: dict[str, dict[str, str]] = {}  # of the last request for a path
        self.connections = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def hits(self, path: str) -> int:
        return self.log.count(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.split("\r\n")
                pairs = (line.partition(":") for line in lines)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                path = first.split(" ")[1]
                self.log.append(path)
                self.headers[path] = headers
                answer = self.pages.get(path.partition("?")[0], (404, {}, b""))
                status, extra, body = answer(headers) if callable(answer) else answer
                if status == 0:
                    await asyncio.sleep(3600)
                header_lines = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
                size = f"Content-Length: {len(body)}\r\n"
                writer.write(f"HTTP/1.1 {status} X\r\n{header_lines}{size}\r\n".encode() + body)
                await writer.drain()
                if extra.get("Connection") == "close":
                    break
        writer.close()


def limits(
    site: Site | None = None, *, timeout_s: float = TIMEOUT_S, run: int = 1, **keys: Any
) -> HopLimits:
    """Limits that vouch for the site at its address and at `site.test`."""
    vouched = (f"127.0.0.1:{site.port}", f"site.test:{site.port}") if site else ()
    orders = Browser(**keys)
    return HopLimits(total_s=timeout_s, guard=Guard(False, vouched), browser=orders, run=run)


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """A PNG of 8 bits as Chromium writes it, by rows."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, data, width, height, kind = 8, b"", 0, 0, 0
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if name == b"IHDR":
            width, height, depth, kind = struct.unpack(">IIBB", body[:10])
            assert depth == 8
        elif name == b"IDAT":
            data += body
        at += 12 + length
    size = {2: 3, 6: 4}[kind]
    return _unfilter(zlib.decompress(data), width, height, size)


def _unfilter(raw: bytes, width: int, height: int, size: int) -> list[list[tuple[int, int, int]]]:
    stride = width * size
    rows: list[list[tuple[int, int, int]]] = []
    before = bytearray(stride)
    for number in range(height):
        start = number * (stride + 1)
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = line[i - size] if i >= size else 0
            up = before[i]
            corner = before[i - size] if i >= size else 0
            line[i] = (line[i] + _predict(kind, left, up, corner)) & 0xFF
        rows.append([(line[i], line[i + 1], line[i + 2]) for i in range(0, stride, size)])
        before = line
    return rows


def _predict(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        guess = left + up - corner
        near = sorted(
            (abs(guess - byte), order, byte) for order, byte in enumerate((left, up, corner))
        )
        return near[0][2]
    return (0, left, up, (left + up) // 2)[kind]
