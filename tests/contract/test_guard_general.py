"""aiohttp's address guard does not vanish in silence: public hooks, the peer, and a self-test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohappyeyeballs
import aiohttp
import pytest
from aiohttp.abc import ResolveResult

from tests.contract.engine_tools import HEADERS, OPEN
from tests.contract.test_guard_engines import Names, OnlyFirst
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from tests.web.proxies import SocksProxy
from zcrawl.errors import BlockedAddress, FetchError
from zcrawl.fetch.general import self_test
from zcrawl.fetch.general.connections import Connector, GuardedRequest
from zcrawl.fetch.general.wire import AiohttpWire
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.ports import HopLimits

Connect = Callable[..., Awaitable[socket.socket]]


@contextlib.asynccontextmanager
async def listener(host: str, port: int) -> AsyncIterator[asyncio.Queue[bytes]]:
    """Yield the bytes that each client sends to `host:port` until it closes the connection."""
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            received.put_nowait(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield received
    finally:
        server.close()


def rename_resolver_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make aiohttp look names up without the resolver that it was given."""

    async def resolve_alone(
        self: aiohttp.TCPConnector, host: str, port: int, traces: object = None
    ) -> list[ResolveResult]:
        return await Names(lambda name: ["127.0.0.1"]).resolve(host, port)

    monkeypatch.setattr(aiohttp.TCPConnector, "_resolve_host", resolve_alone)


def rename_send_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make aiohttp send requests without the method that checks the peer."""
    monkeypatch.delattr(GuardedRequest, "send")


@pytest.mark.parametrize("rename", [rename_resolver_hook, rename_send_hook])
async def test_an_engine_whose_guard_is_not_called_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, rename: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """A new aiohttp that drops either hook makes every request fail, with the reason."""
    rename(monkeypatch)
    monkeypatch.setattr(self_test, "PATIENCE_S", 0.2)
    async with MisbehavingWeb() as web, AiohttpWire() as wire:
        for _ in range(2):
            with pytest.raises(FetchError, match="address guard does not work") as caught:
                await wire.send("POST", web.url("/echo"), HEADERS, b"x", HopLimits(guard=OPEN))
            assert caught.value.code == "engine"
        assert not web.log


async def test_the_self_test_runs_once_and_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests that start together wait for the same proof; later ones do not wait."""
    proofs = []
    prove = self_test.prove_guard

    async def counting(new_session: Any) -> None:
        await prove(new_session)
        proofs.append(len(web.log))

    monkeypatch.setattr("zcrawl.fetch.general.wire.prove_guard", counting)
    async with MisbehavingWeb() as web, AiohttpWire() as wire:
        limits = HopLimits(guard=OPEN)
        requests = [wire.send("POST", web.url("/echo"), HEADERS, b"x", limits) for _ in range(5)]
        await asyncio.gather(*requests)
        await wire.get(web.url("/status/200"), HEADERS, limits)
        assert proofs == [0]
        assert len(web.log) == 6


async def test_a_self_test_that_could_not_be_made_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a free file descriptor nothing is proven; the next request tries again."""
    create = socket.create_server
    failures = [OSError(24, "Too many open files")]

    def create_server(*args: Any) -> socket.socket:
        if failures:
            raise failures.pop()
        return create(*args)

    monkeypatch.setattr("zcrawl.fetch.general.self_test.socket.create_server", create_server)
    async with MisbehavingWeb() as web, AiohttpWire() as wire:
        limits = HopLimits(guard=OPEN)
        with pytest.raises(FetchError, match="Too many open files"):
            await wire.get(web.url("/status/200"), HEADERS, limits)
        assert (await wire.get(web.url("/status/200"), HEADERS, limits)).content == PAGE


def connect_to(address: str) -> Connect:
    """Play a library that looks the name up again after the check, and gets another answer."""
    connect = aiohappyeyeballs.start_connection

    async def start_connection(addr_infos: Any, **options: Any) -> socket.socket:
        family, kind, proto, name, (_, port, *_) = addr_infos[0]
        return await connect([(family, kind, proto, name, (address, port))], **options)

    return start_connection


async def test_a_name_that_is_bound_anew_between_check_and_connect_gets_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer is forbidden, although the address that was checked is not: the connection is
    closed before a byte of the request is sent, and the page is refused."""
    resolver = Names(lambda name: ["127.0.0.1"])
    async with MisbehavingWeb() as web, AiohttpWire(resolver=resolver) as wire:
        limits = HopLimits(guard=OnlyFirst())
        url = f"http://rebind.example:{web.port}/close-after"
        assert (await wire.get(url, HEADERS, limits)).content == PAGE
        monkeypatch.setattr(
            "aiohttp.connector.aiohappyeyeballs.start_connection", connect_to("127.0.0.2")
        )
        async with listener("127.0.0.2", web.port) as received:
            with pytest.raises(BlockedAddress, match=r"127\.0\.0\.2"):
                await wire.send("POST", url, HEADERS, b"secret", limits)
            async with asyncio.timeout(5):
                assert await received.get() == b""
        assert len(web.log) == 1


async def test_a_request_for_a_socks_proxy_is_not_sent_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that aiohttp made by itself is refused: it would show our own address."""
    monkeypatch.delattr(Connector, "_wrap_create_connection")
    async with MisbehavingWeb() as web, SocksProxy() as proxy, AiohttpWire() as wire:
        with pytest.raises(FetchError, match="without its SOCKS5 proxy"):
            await wire.get(web.url("/"), HEADERS, HopLimits(guard=OPEN, proxy=proxy.url))
        assert not web.log
        assert proxy.met == 0


async def test_a_look_up_of_one_run_opens_nothing_for_another() -> None:
    """The remembered answer is judged for each request by its own run's policy."""
    resolver = Names(lambda name: ["127.0.0.1"])
    async with MisbehavingWeb() as web, AiohttpWire(resolver=resolver) as wire:
        url = f"http://shared.example:{web.port}/close-after"
        mine = HopLimits(guard=Guard(private_hosts=[f"shared.example:{web.port}"]))
        assert (await wire.get(url, HEADERS, mine)).content == PAGE
        with pytest.raises(BlockedAddress):
            await wire.get(url, HEADERS, HopLimits())
        assert (await wire.get(url, HEADERS, mine)).content == PAGE


async def test_a_forbidden_address_of_a_proxy_is_refused_also_when_it_is_spelt_out() -> None:
    """aiohttp asks no resolver about an address, so the engine checks it itself."""
    async with AiohttpWire(resolver=Names(lambda name: ["192.0.43.8"])) as wire:
        for scheme in ("http", "socks5"):
            limits = HopLimits(proxy=f"{scheme}://127.0.0.1:3128")
            with pytest.raises(BlockedAddress, match="loopback"):
                await wire.get("http://public.example/", HEADERS, limits)
