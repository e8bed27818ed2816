"""A site of known pages in a process of its own, which writes down every request.

Page n links to pages 4n+1 … 4n+4 (as far as there are so many), so breadth doubles twice a level;
each page links back to the first one as well. With a delay every page takes that long, so a test
can hold requests in flight. The log has `start|end MONOTONIC PATH` lines.

`many_sites` is the same site at many loopback addresses, each a host of its own; its log has the
address before each path.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import uvloop

FAN = 4


@dataclasses.dataclass(frozen=True)
class PageSite:
    port: int
    pages: int
    delay_s: float
    log: Path
    host: str = "127.0.0.1"

    @property
    def seed(self) -> str:
        return self.url(0)

    def url(self, n: int) -> str:
        return f"http://{self.host}:{self.port}/p/{n}"

    def urls(self) -> set[str]:
        return {self.url(n) for n in range(self.pages)}

    def requests(self) -> list[tuple[str, float, str]]:
        """(start or end, when, path) in order; robots.txt is among them."""
        lines = self.log.read_text().splitlines()
        return [
            (event, float(at), path) for event, at, path in (line.split(" ", 2) for line in lines)
        ]

    def fetched(self) -> Counter[str]:
        """How often each page was asked for."""
        return Counter(
            path for what, _, path in self.requests() if what == "start" and "/p/" in path
        )


@dataclasses.dataclass(frozen=True)
class ManySites:
    port: int
    hosts: int
    log: Path

    @property
    def seeds(self) -> tuple[str, ...]:
        return tuple(f"http://127.0.0.{n}:{self.port}/p/0" for n in range(1, self.hosts + 1))

    def starts(self, of: str = "") -> dict[str, list[float]]:
        """When requests came to each host; of those whose URL ends so."""
        moments: dict[str, list[float]] = {}
        for line in self.log.read_text().splitlines():
            what, at, path = line.split(" ", 2)
            if what == "start" and path.endswith(of):
                moments.setdefault(path.partition(":")[0], []).append(float(at))
        return moments

    def longest_gap(self, begin: float, end: float) -> float:
        """The longest time within the two moments in which nobody asked for anything."""
        every = sorted(at for moments in self.starts().values() for at in moments)
        inside = [begin, *(at for at in every if begin < at < end), end]
        return max(other - moment for moment, other in itertools.pairwise(inside))


@contextlib.contextmanager
def many_sites(folder: Path, hosts: int, pages: int, delay_s: float = 0.0) -> Iterator[ManySites]:
    with page_site(folder, pages, delay_s, host="0.0.0.0") as site:
        yield ManySites(site.port, hosts, site.log)


@contextlib.contextmanager
def page_site(
    folder: Path, pages: int, delay_s: float = 0.0, host: str = "127.0.0.1"
) -> Iterator[PageSite]:
    log = folder / "site.log"
    arguments = [str(pages), str(delay_s), str(log), host]
    command = [sys.executable, "-m", "tests.servers.page_site", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield PageSite(int(process.stdout.readline()), pages, delay_s, log, host)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def page(n: int, pages: int) -> bytes:
    children = [child for child in range(FAN * n + 1, FAN * n + FAN + 1) if child < pages]
    links = "".join(f'<a href="/p/{child}">page {child}</a>\n' for child in [0, *children])
    # A text of its own in letters: pages that differ in numbers only are an endless space.
    word = "".join("abcdefghij"[int(digit)] for digit in str(n))
    return f"<html><title>page {n}</title><body><p>{word}</p>{links}</body></html>".encode()


async def _serve(pages: int, delay_s: float, log: Path, host: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str, path: str) -> None:
        os.write(fd, f"{what} {time.monotonic():.6f} {path}\n".encode())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                where = head.lower().partition(b"\r\nhost: ")[2].split(b"\r\n")[0].decode()
                noted = where + path if host == "0.0.0.0" else path
                note("start", noted)
                name, _, number = path.removeprefix("/").partition("/")
                is_page = name == "p" and number.isdigit() and int(number) < pages
                if is_page and delay_s:
                    await asyncio.sleep(delay_s)
                body = page(int(number), pages) if is_page else b"no such page"
                status = "200 OK" if is_page else "404 Not Found"
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
                note("end", noted)
        writer.close()

    server = await asyncio.start_server(answer, host, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - no orphan when the tests are killed
        await asyncio.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", type=int)
    parser.add_argument("delay_s", type=float)
    parser.add_argument("log", type=Path)
    parser.add_argument("host")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.pages, arguments.delay_s, arguments.log, arguments.host))


if __name__ == "__main__":
    main()
