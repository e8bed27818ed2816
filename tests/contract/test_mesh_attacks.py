"""Attacks on a master's border by whoever has one real key, or a part of one.

Raw sockets with real keys on real encrypted connections: a stolen public key, a worker that claims
the results of another, a gateway that claims to be more than a gateway, and false epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.contract.border_tools import LINES, RawPeer, frames, readable
from tests.contract.mesh_tools import LOOPBACK, Ear, Keys
from tests.unit.mesh.test_codec import BODIES
from zcrawl.master.desk import rights
from zcrawl.mesh.messages import (
    KIND_OF,
    Beat,
    ClientRequest,
    Heartbeat,
    Message,
    MessageKind,
    Result,
)
from zcrawl.mesh.roles import PRINCIPALS, WORKER_KINDS, KeyRole
from zcrawl.mesh.security import AllowedKey, KeyPair, MeshKeys
from zcrawl.mesh.sockets.keys import new_pair
from zcrawl.mesh.sockets.master import ZmqMasterMesh

GATEWAY = AllowedKey("gw", frozenset({KeyRole.GATEWAY}), has_roles=True)
W9 = AllowedKey("w9", frozenset({KeyRole.WORKER}), has_roles=True)
RESULT = next(body for body in BODIES if isinstance(body, Result))
HEARTBEAT = next(body for body in BODIES if isinstance(body, Heartbeat))
NO_PRINCIPALS = ("worker", "master", "gateway", "local", "unknown", "Admin", "admin ", "")
# The leader's own, a lower one, and such that no database would ever count to.
EPOCHS = (1, 0, 1 << 31, 1 << 53, (1 << 63) - 1)


class Attacked:
    """A master that lets in w1, w9, ann (viewer), bob (operator) and gw (gateway)."""

    def __init__(self, master: ZmqMasterMesh, ear: Ear, keys: dict[str, MeshKeys]) -> None:
        self.master, self.ear, self.keys = master, ear, keys
        self.peers: list[RawPeer] = []

    def peer(self, name: str, keys: MeshKeys | None = None) -> RawPeer:
        self.peers.append(RawPeer(name, keys or self.keys[name], self.master.endpoints))
        return self.peers[-1]

    def requests(self) -> dict[str, ClientRequest]:
        return {body.id: body for body in self.ear.bodies() if isinstance(body, ClientRequest)}

    async def served(self) -> None:
        """Wait until an operator's request has come: what was sent before it has come too."""
        bob = self.peer("bob")
        id = f"after {len(self.peers)}"
        bob.control.send_multipart(frames(ClientRequest(id, "jobs", {})))
        await self.ear.until(lambda: id in self.requests())


@pytest.fixture
async def attacked() -> AsyncIterator[Attacked]:
    keys, ear = Keys(), Ear()
    lines = {**{name: LINES[name] for name in ("w1", "ann", "bob")}, "gw": GATEWAY, "w9": W9}
    nodes = {name: keys.node() for name in lines}
    allowed = {nodes[name].own.public: line for name, line in lines.items()}
    with ZmqMasterMesh(LOOPBACK, 1, ear.log, keys=keys.master, allowed=allowed) as master:
        master.listen(ear)
        at = Attacked(master, ear, nodes)
        yield at
        for peer in at.peers:
            peer.close()


# ---------------------------------------------------------------- keys


async def test_a_public_key_without_its_secret_opens_nothing(attacked: Attacked) -> None:
    """The list of allowed keys is no secret: whoever has read it has the names and public keys of
    an operator and of the masters, but cannot finish a handshake with them."""
    bob, masters = attacked.keys["bob"], attacked.keys["bob"].server
    for public in (bob.own.public, masters):
        thief = MeshKeys(KeyPair(public, new_pair().secret), masters)
        peer = attacked.peer("thief", thief)
        before = attacked.master.counters["handshake_failed"]
        peer.control.send_multipart(frames(ClientRequest("stolen", "jobs", {})))
        await attacked.ear.until(
            lambda before=before: attacked.master.counters["handshake_failed"] > before
        )
    await attacked.served()
    assert "stolen" not in attacked.requests()


# ---------------------------------------------------------------- workers


async def test_a_worker_cannot_claim_the_results_of_another(attacked: Attacked) -> None:
    """All messages of a worker, over both sockets, under the name of another worker that is on the
    list, of a master, of a person, and of none. Nothing arrives, each is counted; the worker's own
    result arrives."""
    w1 = attacked.peer("w1")
    await w1.report()
    assert w1.reports is not None
    claimed = ("w9", "w9-1", "m1", "masters", "bob", "gw", "", "w1\x00", "W1", "w1-", "w10")
    bodies = [body for body in BODIES if KIND_OF[type(body)] in WORKER_KINDS]
    for name in claimed:
        w1.reports.send_multipart(frames(RESULT, name))
        for body in bodies:
            w1.control.send_multipart(frames(body, name))
    w1.reports.send_multipart(frames(RESULT, "w1"))
    await attacked.ear.until(lambda: attacked.ear.got)
    await attacked.served()
    sources = {
        arrival.message.header.source
        for arrival in attacked.ear.got
        if isinstance(arrival.message, Message)
        and not isinstance(arrival.message.body, ClientRequest)
    }
    assert sources == {"w1"}
    assert attacked.master.counters["name_refused"] >= len(claimed)


# ---------------------------------------------------------------- gateways


async def test_a_gateway_speaks_for_people_and_for_nobody_else(attacked: Attacked) -> None:
    """It may name a viewer, submitter, operator and admin. Any other role, and none, leaves it the
    role gateway with its own name and no rights; `forwarded` and `via` of a master are removed in
    every case, and `key` is always its own."""
    gateway = attacked.peer("gw")
    for role in (*PRINCIPALS, *NO_PRINCIPALS):
        request = ClientRequest(
            f"as {role}", "submit", {}, True, "eve", "m9", role, "masters", ["shell"], "token x"
        )
        gateway.control.send_multipart(frames(request))
    await attacked.ear.until(
        lambda: len(attacked.requests()) == len(PRINCIPALS) + len(NO_PRINCIPALS)
    )
    for id, request in attacked.requests().items():
        assert (request.forwarded, request.via, request.key) == (False, "", "gw"), id
        if request.role in PRINCIPALS:
            assert id == f"as {request.role}"
            assert (request.by, request.rights, request.through) == ("eve", ["shell"], "token x")
        else:
            assert id.removeprefix("as ") in NO_PRINCIPALS
            assert (request.role, request.by, request.rights) == ("gateway", "gw", [])
            assert request.through == "key gw"
            assert not rights.may_ask(request.role, "submit")
            assert not rights.may_ask(request.role, "jobs")


async def test_a_gateway_that_names_nobody_speaks_for_itself(attacked: Attacked) -> None:
    """Jobs from before there were keys have no owner: the empty name would own them all."""
    request = ClientRequest("x", "submit", {}, role="admin", rights=["shell"])
    attacked.peer("gw").control.send_multipart(frames(request))
    await attacked.ear.until(attacked.requests)
    marked = attacked.requests()["x"]
    assert (marked.by, marked.role, marked.rights) == ("gw", "gateway", [])


@pytest.mark.parametrize("name", ["bob", "ann", "w1"])
async def test_nobody_but_a_gateway_speaks_for_another(attacked: Attacked, name: str) -> None:
    """The same words from an operator, a viewer and a worker leave them who they are."""
    request = ClientRequest(
        "x", "jobs", {}, True, "eve", "m9", "admin", "gw", ["code"], "jwt x", "10.0.0.1"
    )
    attacked.peer(name).control.send_multipart(frames(request))
    await attacked.ear.until(attacked.requests)
    marked = attacked.requests()["x"]
    role = next(iter(LINES[name].roles))
    assert (marked.by, marked.role, marked.key, marked.forwarded) == (name, role, name, False)
    assert (marked.rights, marked.through, marked.address) == ([], f"key {name}", "")


async def test_a_gateway_is_no_worker_and_no_master(attacked: Attacked) -> None:
    """All kinds of message but requests are refused, over both sockets."""
    gateway = attacked.peer("gw")
    reports = gateway.reports = gateway.open_reports()
    others = [body for body in BODIES if not isinstance(body, ClientRequest)]
    for body in others:
        gateway.control.send_multipart(frames(body, "gw"))
    await attacked.ear.until(lambda: attacked.master.counters["frame_refused"] == len(others))
    for body in others:  # dropped by its own end while the master does not subscribe there
        reports.send_multipart(frames(body, "gw"))
    await attacked.served()
    assert {type(body) for body in attacked.ear.bodies()} == {ClientRequest}


# ---------------------------------------------------------------- false leaders


@pytest.mark.parametrize("name", ["w1", "ann", "bob", "gw"])
async def test_no_listed_key_announces_a_leader(attacked: Attacked, name: str) -> None:
    """A BEAT of any epoch, and every other message that only masters send, stays at the border,
    whatever name it bears."""
    peer = attacked.peer(name)
    masters = [
        body
        for body in BODIES
        if KIND_OF[type(body)] not in WORKER_KINDS
        and KIND_OF[type(body)] is not MessageKind.REQUEST
    ]
    assert any(isinstance(body, Beat) for body in masters)
    for epoch in EPOCHS:
        for body in masters:
            peer.control.send_multipart(frames(body, "m1", epoch=epoch))
    await attacked.ear.until(
        lambda: attacked.master.counters["frame_refused"] == len(EPOCHS) * len(masters)
    )
    assert attacked.ear.got == []


async def test_an_epoch_beyond_any_number_of_the_database_harms_no_master(
    attacked: Attacked,
) -> None:
    """A worker's own heartbeat with epochs up to 2^64-1 and below 0: what the codec takes arrives
    with exactly this number (a hint, `test_epoch_hints`); the rest is a bad frame. The master
    serves on."""
    w1 = attacked.peer("w1")
    await w1.report()
    assert w1.reports is not None
    epochs = (*EPOCHS, 1 << 63, (1 << 64) - 1, -1, -(1 << 63))
    for number in epochs:
        w1.reports.send_multipart(frames(HEARTBEAT, "w1", epoch=number))
    counters = attacked.master.counters
    await attacked.ear.until(lambda: len(attacked.ear.got) + counters["bad_frame"] >= len(epochs))
    arrived = {arrival.message.header.epoch for arrival in attacked.ear.got}
    assert set(EPOCHS) <= arrived <= set(epochs)
    assert not await readable(w1.control), "no answer betrays anything"
    await asyncio.wait_for(attacked.served(), 20)
