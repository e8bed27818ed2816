"""Clients within a master's process: no peer can take their answers, or give them others."""

from __future__ import annotations

import asyncio

from tests.unit.machine_tools import UTC
from zcrawl.master import events as m
from zcrawl.master.driver.loop import MasterLoop, MasterProcess
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.master.master import Master
from zcrawl.mesh.memory import MemoryHub
from zcrawl.mesh.messages import ClientRequest, Message, Reply
from zcrawl.mesh.ports import Arrived
from zcrawl.testing.store.store import FakeStore


async def test_a_peer_that_claims_a_local_client_s_route_is_answered_itself() -> None:
    """`local:1` was the route of the first request; a peer may choose any identity. Its question
    is answered by its own line, and the local one gets the answer to its own."""
    hub = MemoryHub()
    threads = StoreThreads(FakeStore(), lambda name, detail, **fields: None)
    loop = MasterLoop(
        Master("m1", seen_slots=64),
        hub.master("m1", 1),
        threads,
        MasterProcess(
            clock=lambda: 100.0, utc=lambda: UTC, log=lambda name, detail, **fields: None
        ),
    )
    at_thief: list[Reply] = []

    def take(arrived: list[Arrived]) -> None:
        for arrival in arrived:
            if isinstance(arrival.message, Message) and isinstance(arrival.message.body, Reply):
                at_thief.append(arrival.message.body)

    thief = hub.client("m1", b"local:1")
    thief.listen(take)
    thief.send(ClientRequest("thief", "role", {}))
    async with asyncio.timeout(60):
        await loop.lead(m.Elected(0, alone=True))
        loop.listen()
        # The local question waits for the store's thread; the thief's needs no store.
        mine = asyncio.create_task(loop.ask(ClientRequest("mine", "jobs", {})))
        asyncio.get_running_loop().call_soon(hub.advance, 1.0)
        reply = await mine
        hub.advance(2.0)
    assert reply.id == "mine"
    assert [answer.id for answer in at_thief] == ["thief"]
    loop.close()
    await threads.close()
