"""No engine connects to an address that the guard refuses, in any way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.contract.engine_tools import HEADERS, OPEN
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from zcrawl.errors import AddressMoved, BlockedAddress, FetchError, RetryClass
from zcrawl.fetch.general.wire import AiohttpWire
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.http2.engine import HttpxEngine
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.wire.engine import HttpEngine

Answers = Callable[[str], list[str]]
MakeEngine = Callable[[Answers], contextlib.AbstractAsyncContextManager[Engine]]


class Names(AbstractResolver):
    """A fake DNS that counts look-ups."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.answers(host)
        ]

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def aiohttp_engine(answers: Answers) -> AsyncIterator[Engine]:
    async with AiohttpWire(resolver=Names(answers)) as engine:
        yield engine


@contextlib.asynccontextmanager
async def httpx_engine(answers: Answers) -> AsyncIterator[Engine]:
    async def look_up(name: str, port: int) -> list[str]:
        return [name] if name[0].isdigit() else answers(name)

    async with HttpxEngine(look_up=look_up) as engine:
        yield engine


@contextlib.asynccontextmanager
async def http_engine(answers: Answers) -> AsyncIterator[Engine]:
    async def look_up(name: str, port: int) -> list[str]:
        return answers(name)

    async with HttpEngine(look_up=look_up) as engine:
        yield engine


@pytest.fixture(
    params=[http_engine, aiohttp_engine, httpx_engine], ids=["http", "aiohttp", "httpx"]
)
def make(request: pytest.FixtureRequest) -> MakeEngine:
    make: MakeEngine = request.param
    return make


def limits(guard: Guard | None = None) -> HopLimits:
    return HopLimits() if guard is None else HopLimits(guard=guard)


async def refused(engine: Engine, url: str, guard: Guard | None = None) -> str:
    with pytest.raises(BlockedAddress) as caught:
        await engine.get(url, HEADERS, limits(guard))
    return caught.value.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (["127.0.0.1"], "loopback (127.0.0.1)"),
        (["10.1.2.3"], "private (10.1.2.3)"),
        (["169.254.169.254"], "metadata (169.254.169.254)"),
        (["::ffff:10.1.2.3"], "private (::ffff:10.1.2.3)"),
        (["fe80::1"], "link_local (fe80::1)"),
        (["0.0.0.0"], "unspecified (0.0.0.0)"),
        (["192.168.0.1", "10.0.0.1"], "private (192.168.0.1)"),
    ],
)
async def test_a_name_that_leads_inside_is_refused(
    make: MakeEngine, answer: list[str], reason: str
) -> None:
    """Whatever the name looks like; the reason has the address that DNS gave."""
    async with make(lambda name: answer) as engine:
        assert await refused(engine, "http://public.example/") == f"blocked_address: {reason}"
        assert await refused(engine, "https://public.example/") == f"blocked_address: {reason}"


async def test_nothing_arrives_at_a_server_that_is_closed(make: MakeEngine) -> None:
    """Neither by its address, nor by a name, nor by an odd spelling, nor by a trick."""
    async with MisbehavingWeb() as web, make(lambda name: ["127.0.0.1"]) as engine:
        for host in ("127.0.0.1", "localhost", "rebind.example", "2130706433", "0x7f.1"):
            for url in (f"http://{host}:{web.port}/status/200", f"http://{host}:{web.port}"):
                reason = await refused(engine, url)
                assert reason.startswith("blocked_address: loopback (")
        with pytest.raises(FetchError):
            await engine.get(f"http://a\\@127.0.0.1:{web.port}/", HEADERS, limits())
        assert not web.log


class OnlyFirst(Guard):
    """Takes 127.0.0.1 for a public address, so that a test can have two servers."""

    def refuse_address(self, name: str, port: int, address: str) -> str | None:
        return None if address == "127.0.0.1" else f"private ({address})"


async def second_server(web: MisbehavingWeb, host: str) -> asyncio.Server:
    """On the same port of another loopback address; whatever connects there is counted."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        web.log.clear()
        writer.close()

    return await asyncio.start_server(serve, host, web.port)


async def test_a_name_that_changes_its_answer_is_connected_to_where_it_was_checked(
    make: MakeEngine,
) -> None:
    """The first answer is good, every later one leads inside. There is one look-up for a
    connection, and the connection goes to the address that was looked at."""
    names: list[str] = []

    def rebinding(name: str) -> list[str]:
        names.append(name)
        return ["127.0.0.1"] if len(names) == 1 else ["127.0.0.2"]

    guard = OnlyFirst()
    async with MisbehavingWeb() as web, make(rebinding) as engine:
        inside = await second_server(web, "127.0.0.2")
        try:
            url = f"http://rebind.example:{web.port}/close-after"
            response = await engine.get(url, HEADERS, limits(guard))
            assert response.content == PAGE
            assert len(names) == 1
            assert [hit.headers["host"] for hit in web.log] == [f"rebind.example:{web.port}"]
        finally:
            inside.close()


async def test_the_later_answer_of_a_name_that_changes_is_refused(make: MakeEngine) -> None:
    """A new connection is a new look-up or a remembered one; both are checked."""
    answers = iter([["127.0.0.1"]])
    changing = make(lambda name: next(answers, ["10.0.0.1"]))
    async with changing as engine, MisbehavingWeb() as web:
        url = f"http://rebind.example:{web.port}/close-after"
        assert (await engine.get(url, HEADERS, limits(OnlyFirst()))).content == PAGE
        other = f"http://other.example:{web.port}/"
        assert "private (10.0.0.1)" in await refused(engine, other, OnlyFirst())


async def test_a_name_with_a_good_and_a_bad_address_is_reached_at_the_good_one(
    make: MakeEngine,
) -> None:
    """The bad one is not tried, not even when the good one does not answer."""
    async with MisbehavingWeb() as web, make(lambda name: ["127.0.0.2", "127.0.0.1"]) as engine:
        url = f"http://both.example:{web.port}/status/200"
        assert (await engine.get(url, HEADERS, limits(OnlyFirst()))).content == PAGE
        dead = f"http://both.example:{web.port + 1 if web.port < 65_535 else 1024}/"
        inside = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.2", 0)
        try:
            with pytest.raises(FetchError) as caught:
                await engine.get(dead, HEADERS, limits(OnlyFirst()))
            assert caught.value.code in ("connect", "reset", "protocol")
        finally:
            inside.close()


async def test_a_connection_serves_no_run_that_may_not_have_it(make: MakeEngine) -> None:
    """A pooled connection of one run is out of reach for another one's policy."""
    async with MisbehavingWeb() as web, make(lambda name: ["127.0.0.1"]) as engine:
        url = f"http://shared.example:{web.port}/status/200"
        mine = Guard(private_hosts=[f"shared.example:{web.port}"])
        assert (await engine.get(url, HEADERS, limits(mine))).content == PAGE
        assert "loopback (127.0.0.1)" in await refused(engine, url)
        other = Guard(private_hosts=["elsewhere.example:80"])
        assert "loopback (127.0.0.1)" in await refused(engine, url, other)
        same = Guard(private_hosts=[f"shared.example:{web.port}"])
        assert (await engine.get(url, HEADERS, limits(same))).content == PAGE
        assert {hit.connection for hit in web.log} == {1}


@pytest.mark.parametrize("kind", [HttpEngine, HttpxEngine])
async def test_a_look_up_that_hangs_ends_by_the_connect_timeout(
    kind: type[HttpEngine] | type[HttpxEngine],
) -> None:
    """DNS belongs to the time that a connection may take."""

    async def never(name: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    look_up: Callable[[str, int], Awaitable[list[str]]] = never
    async with kind(look_up=look_up) as engine:
        with pytest.raises(FetchError) as caught:
            await engine.get("http://slow.example/", HEADERS, HopLimits(connect_s=0.05))
    assert caught.value.code == "connect_timeout"


async def test_the_error_of_a_resolver_reaches_the_caller() -> None:
    """An address that the resolver refuses is not used, and its FetchError reaches the caller."""

    class Refusing(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: object = None
        ) -> list[ResolveResult]:
            raise FetchError(f"{host} is private", code="blocked", retry=RetryClass.PERMANENT)

        async def close(self) -> None:
            pass

    async with AiohttpWire(resolver=Refusing()) as wire:
        with pytest.raises(FetchError) as caught:
            await wire.get("http://intranet.example/", HEADERS, limits(OPEN))
    assert caught.value.code == "blocked"


# ---------------------------------------------------------------- one address only


async def test_a_pinned_host_is_connected_to_at_its_address_only(make: MakeEngine) -> None:
    """Of several addresses the wanted one; a connection to another one is not used again."""
    async with MisbehavingWeb() as web, make(lambda name: ["127.0.0.2", "127.0.0.1"]) as engine:
        url = f"http://two.example:{web.port}/status/200"
        pinned = HopLimits(guard=OPEN, address="127.0.0.1")
        for _ in range(2):
            assert (await engine.get(url, HEADERS, pinned)).status_code == 200
        elsewhere = HopLimits(guard=OPEN, address="127.0.0.2")
        with pytest.raises(FetchError) as refused:
            await engine.get(url, HEADERS, elsewhere)
        assert refused.value.code == "connect", "nobody listens there"


@pytest.mark.parametrize("address", ["", "127.0.0.9"])
async def test_a_host_that_is_elsewhere_is_told_and_not_asked(
    make: MakeEngine, address: str
) -> None:
    """The lowest of its addresses, in whatever order DNS gives them; nothing is sent."""
    answers = ["::1", "127.0.0.3", "127.0.0.1"]
    async with MisbehavingWeb() as web, make(lambda name: answers) as engine:
        pinned = HopLimits(guard=OPEN, address=address)
        with pytest.raises(AddressMoved) as moved:
            await engine.get(f"http://some.example:{web.port}/", HEADERS, pinned)
        assert moved.value.address == "127.0.0.1"
        assert moved.value.retry is RetryClass.POSTPONED
        assert web.log == []


async def test_a_pinned_address_is_guarded_like_any_other(make: MakeEngine) -> None:
    """A limit opens nothing."""
    async with make(lambda name: ["127.0.0.1"]) as engine:
        with pytest.raises(BlockedAddress):
            await engine.get("http://a.example/", HEADERS, HopLimits(address="127.0.0.1"))
