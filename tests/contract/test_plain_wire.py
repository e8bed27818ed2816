"""The wire of plain GETs: its connections, its look-ups, and what it leaves to aiohttp."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.contract.engine_tools import HEADERS, OPEN, PATIENT
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from zcrawl.errors import BlockedAddress, FetchError
from zcrawl.fetch.ports import HopLimits
from zcrawl.fetch.wire import pool
from zcrawl.fetch.wire.engine import HttpEngine
from zcrawl.fetch.wire.pool import split_plain


async def test_one_look_up_serves_all_connections_of_a_name() -> None:
    """Also those that are wanted while it is under way; another name is another look-up."""
    names: list[str] = []
    begun, answered = asyncio.Event(), asyncio.Event()

    async def look_up(name: str, port: int) -> list[str]:
        names.append(name)
        begun.set()
        await answered.wait()
        return ["127.0.0.1"]

    async with MisbehavingWeb() as web, HttpEngine(look_up=look_up) as engine:
        urls = [f"http://a.example:{web.port}/status/200"] * 5
        many = [asyncio.create_task(engine.get(url, HEADERS, PATIENT)) for url in urls]
        await begun.wait()
        answered.set()
        assert {(await task).content for task in many} == {PAGE}
        await engine.get(f"http://b.example:{web.port}/status/200", HEADERS, PATIENT)
    assert names == ["a.example", "b.example"]


async def test_a_failed_look_up_is_asked_again() -> None:
    """What DNS did once says nothing of the next time."""
    answers: Iterator[OSError | list[str]] = iter([OSError("no"), ["127.0.0.1"]])

    async def look_up(name: str, port: int) -> list[str]:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async with MisbehavingWeb() as web, HttpEngine(look_up=look_up) as engine:
        url = f"http://a.example:{web.port}/status/200"
        with pytest.raises(FetchError, match=r"a\.example"):
            await engine.get(url, HEADERS, PATIENT)
        assert (await engine.get(url, HEADERS, PATIENT)).content == PAGE


async def test_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And forgotten with their hosts; the next request makes a new one, and nobody notices."""
    async with MisbehavingWeb() as web, HttpEngine() as engine:
        for number in (1, 2):
            assert (await engine.get(web.url("/status/200"), HEADERS, PATIENT)).content == PAGE
            assert web.log[-1].connection == number
            wire = engine._plain
            assert wire is not None
            wire._sweep()
            assert len(wire._destinations) == 1, "it was used a moment ago"
            monkeypatch.setattr(pool, "KEEPALIVE_S", 0.0)
            wire._sweep()
            monkeypatch.undo()
            assert not wire._destinations


async def test_a_host_is_not_forgotten_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection comes back to it, and is used again."""
    monkeypatch.setattr(pool, "SWEEP_S", 0.01)
    async with MisbehavingWeb() as web, HttpEngine() as engine:
        for _ in range(2):
            await engine.get(web.url("/slow/100"), HEADERS, PATIENT)
        assert {hit.connection for hit in web.log} == {1}


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://a.example/x?y=%20", ("http", "a.example", "/x?y=%20")),
        ("https://[::1]:8443/", ("https", "[::1]:8443", "/")),
        ("http://a.example", ("http", "a.example", "/")),
        ("http://user:secret@a.example/", None),
        ("http://a.example/x y", None),
        ("http://a.example/\r\nX: 1", None),
        ("http://a.example/é", None),
        ("http://a.example/#f", None),
        ("ftp://a.example/", None),
        ("http://a\\@b/", None),
    ],
)
def test_only_what_can_be_sent_as_it_is_is_plain(
    url: str, plain: tuple[str, str, str] | None
) -> None:
    """A URL with a password, a fragment or a character that ends the line is not a plain GET."""
    assert split_plain(url) == plain


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
async def test_a_port_that_cannot_be_has_a_name(port: str) -> None:
    """Whatever let it through, no socket gets it."""
    async with HttpEngine() as engine:
        with pytest.raises(BlockedAddress) as caught:
            await engine.get(f"http://127.0.0.1:{port}/", HEADERS, HopLimits(guard=OPEN))
    assert caught.value.code == "blocked_address"


def test_a_worker_starts_without_aiohttp_and_httpx() -> None:
    """Their import was half of a start; who needs them loads them (ADR 0004)."""
    code = (
        "import sys; from zcrawl.roles import worker_main; worker_main.load();"
        "print(sorted({'aiohttp', 'httpx', 'rich', 'email.parser'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"
