"""What the loops rely on, on real sockets and on the hub in memory, and frames that are none.

The sockets are Unix ones, TCP, and TCP with encryption.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from tests.contract.mesh_tools import Claimer
from zcrawl.errors import DecodeError
from zcrawl.mesh.codec import decode, encode
from zcrawl.mesh.memory import LinkFaults, MemoryHub
from zcrawl.mesh.messages import (
    BadBody,
    Beat,
    Body,
    Bye,
    ClientRequest,
    Drain,
    Message,
    MessageKind,
    Reply,
    Result,
)
from zcrawl.mesh.ports import Arrived, Endpoints, stamp
from zcrawl.mesh.security import AllowedKey, MeshKeys
from zcrawl.mesh.sockets.client import ZmqClientMesh
from zcrawl.mesh.sockets.keys import new_pair
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.peers import ZmqPeers
from zcrawl.mesh.sockets.readers import topic
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.states import Outcome

PATIENCE_S = 10.0


class Inbox:
    """Collects what arrives; `until` waits for a state of it."""

    def __init__(self, pump: Callable[[], None]) -> None:
        self.got: list[Arrived] = []
        self._news = asyncio.Event()
        self._pump = pump

    def __call__(self, arrived: list[Arrived]) -> None:
        self.got += arrived
        self._news.set()

    def bodies(self) -> list[Body]:
        return [
            arrival.message.body for arrival in self.got if isinstance(arrival.message, Message)
        ]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._pump()
                if len(self.got) >= count:
                    return
                self._news.clear()
                await self._news.wait()


class Net:
    """One master, and workers and clients on demand."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.hub = MemoryHub() if kind == "memory" else None
        self._open: list[Any] = []
        if self.hub:
            self.master: Any = self.hub.master("m1", 1)
            return
        if kind == "ipc":
            endpoints = Endpoints("m1", *(f"ipc://{folder}/{name}" for name in ("c", "r", "e")))
        else:
            endpoints = Endpoints("m1", *["tcp://127.0.0.1:*"] * 3)
        server, node = new_pair(), new_pair()
        curve = kind == "curve"
        self._keys = MeshKeys(node, server.public) if curve else None
        self.master = self._keep(
            ZmqMasterMesh(
                endpoints,
                1,
                keys=MeshKeys(server, server.public) if curve else None,
                allowed={node.public: AllowedKey("node", patterns=("*",))},
            )
        )
        self.endpoints = self.master.endpoints

    def _keep(self, mesh: Any) -> Any:
        self._open.append(mesh)
        return mesh

    def worker(self, id: str, incarnation: int = 7) -> Any:
        if self.hub:
            return self.hub.worker(id, incarnation)
        mesh = self._keep(ZmqWorkerMesh(id, incarnation, keys=self._keys))
        mesh.connect(self.endpoints)
        return mesh

    def client(self) -> Any:
        if self.hub:
            return self.hub.client("m1")
        return self._keep(ZmqClientMesh("client", 1, [self.endpoints.control], keys=self._keys))

    def claim(self, route: bytes) -> Any:
        """A peer that says it has this route, with a key that is on the list."""
        if self.hub:
            return self.hub.client("m1", route)
        return self._keep(Claimer(route, self.endpoints.control, self._keys))

    def inbox(self) -> Inbox:
        return Inbox(self._pump)

    def _pump(self) -> None:
        if self.hub:
            self.hub.advance(self.hub.now + 1)

    def close(self) -> None:
        for mesh in reversed(self._open):
            mesh.close()


@pytest.fixture(params=["memory", "ipc", "tcp", "curve"])
async def net(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Net]:
    made = Net(request.param, tmp_path)
    yield made
    made.close()


def result(seq: int) -> Result:
    return Result(1, seq, seq, 1, 1, 1, Outcome.DONE)


async def test_a_worker_s_message_arrives_with_its_route_and_its_header(net: Net) -> None:
    """The route names the process; the header was stamped when it was sent."""
    at_master, worker = net.inbox(), net.worker("w1")
    net.master.listen(at_master)
    worker.listen(net.inbox())
    assert worker.send("m1", 5, result(3), 9, 3)
    await at_master.until(1)
    (arrival,) = at_master.got
    header = arrival.message.header
    assert len(arrival.route) >= 16
    assert b"w1" not in arrival.route
    assert arrival.route != b"7"
    assert (header.kind, header.epoch, header.source) == (MessageKind.RESULT, 5, "w1")
    assert (header.incarnation, header.sequence, header.subject) == (7, 9, 3)


async def test_reports_reach_the_master_in_order_also_the_first(net: Net) -> None:
    """Nothing is lost while the subscription is on its way."""
    at_master, worker = net.inbox(), net.worker("w1")
    net.master.listen(at_master)
    worker.listen(net.inbox())
    for number in range(1, 301):
        worker.publish(1, result(number), number, number)
    await at_master.until(300)
    assert [arrival.message.header.sequence for arrival in at_master.got] == list(range(1, 301))


async def test_the_master_answers_one_worker_and_nobody_else(net: Net) -> None:
    """ROUTER by identity."""
    at_master, first, second = net.inbox(), net.inbox(), net.inbox()
    worker, other = net.worker("w1"), net.worker("w2")
    net.master.listen(at_master)
    worker.listen(first)
    other.listen(second)
    worker.send("m1", 1, Bye("a"))
    other.send("m1", 1, Bye("b"))
    await at_master.until(2)
    routes = {got.message.header.source: got.route for got in at_master.got}
    assert net.master.send(routes["w2"], 4, Drain(True), 11)
    await second.until(1)
    assert second.bodies() == [Drain(True)]
    assert second.got[0].message.header.sequence == 11
    assert not first.got


# What a worker's route was once, what names and numbers give, and what libzmq chooses by itself.
GUESSES = [
    b"w1#7",
    b"w1",
    b"7",
    b"m1>",
    b"w1#7m1",
    b"\0" + (0x6B8B4567).to_bytes(4, "big"),
]


@pytest.mark.parametrize("guess", GUESSES)
async def test_a_peer_that_guesses_a_route_gets_nothing_and_cuts_nobody_off(
    net: Net, guess: bytes
) -> None:
    """The last claimant of a route gets it, so routes of workers and clients cannot be guessed."""
    at_master, at_worker, at_client, at_thief = (net.inbox() for _ in range(4))
    worker, client = net.worker("w1"), net.client()
    net.master.listen(at_master)
    worker.listen(at_worker)
    client.listen(at_client)
    worker.send("m1", 1, Bye("here"))
    client.send(ClientRequest("r1", "jobs", {}))
    await at_master.until(2)
    routes = {got.message.header.source: got.route for got in at_master.got}
    assert all(len(route) >= 16 for route in routes.values()), "libzmq's own have 5 bytes"
    thief = net.claim(guess)
    thief.listen(at_thief)
    thief.send(ClientRequest("thief", "jobs", {}))
    await at_master.until(3)
    assert net.master.send(routes["w1"], 1, Drain(True))
    assert net.master.send(routes["client"], 1, Reply("r1", True, {}))
    await at_worker.until(1)
    await at_client.until(1)
    assert at_worker.bodies() == [Drain(True)]
    assert at_client.bodies() == [Reply("r1", True, {})]
    worker.send("m1", 1, Bye("still here"))
    await at_master.until(4)
    assert at_master.got[3].route == routes["w1"], "its line was not taken from it"
    assert not at_thief.got


async def test_no_two_ends_have_the_same_route(net: Net) -> None:
    """Also of processes with the same name and number, which have nothing in common but that."""
    at_master = net.inbox()
    net.master.listen(at_master)
    for n in range(6):
        worker = net.worker("w1", 7)
        worker.listen(net.inbox())
        worker.send("m1", 1, Bye(str(n)))
    await at_master.until(6)
    assert len({got.route for got in at_master.got}) == 6


async def test_a_message_to_nobody_is_counted_and_dropped(net: Net) -> None:
    """The protocol repeats what matters; a send never waits."""
    net.master.listen(net.inbox())
    assert not net.master.send(b"nobody", 1, Drain(True))
    worker = net.worker("w1")
    assert not worker.send("m9", 1, Bye(""))
    assert net.master.counters["send_no_route"] == 1
    assert worker.counters["send_no_route"] == 1


async def test_beats_reach_every_worker(net: Net) -> None:
    """One that subscribes late gets the last one without waiting for the next."""
    net.master.listen(net.inbox())
    beat = Beat("m1", 1.0, {"w1": (7, 3, 0.5)})
    inboxes = []
    for name in ("w1", "w2"):
        inboxes.append(net.inbox())
        net.worker(name).listen(inboxes[-1])
    net.master.publish(2, beat)
    for inbox in inboxes:
        await inbox.until(1)
        assert inbox.bodies()[0] == beat


async def test_a_client_is_answered_on_its_own_route(net: Net) -> None:
    """Requests come in on the control socket, like everything that wants an answer."""
    at_master, at_client, client = net.inbox(), net.inbox(), net.client()
    net.master.listen(at_master)
    client.listen(at_client)
    client.send(ClientRequest("r1", "jobs", {}))
    await at_master.until(1)
    (request,) = at_master.bodies()
    assert isinstance(request, ClientRequest)
    assert (request.id, request.op) == ("r1", "jobs")
    net.master.send(at_master.got[0].route, 1, Reply("r1", True, {"jobs": []}))
    await at_client.until(1)
    assert at_client.bodies() == [Reply("r1", True, {"jobs": []})]


async def test_what_came_before_listening_is_not_lost(net: Net) -> None:
    """A master binds early and listens when it leads."""
    worker, at_master = net.worker("w1"), net.inbox()
    worker.listen(net.inbox())
    worker.send("m1", 1, Bye("early"))
    net.master.listen(at_master)
    await at_master.until(1)
    assert at_master.bodies() == [Bye("early")]


# ---------------------------------------------------------------- the hub's faults


def story(seed: int) -> list[int]:
    hub = MemoryHub(random.Random(seed), LinkFaults(drop=0.2, duplicate=0.2, delay_s=2.0))
    got: list[int] = []
    hub.master("m1", 1).listen(
        lambda arrived: got.extend(a.message.header.sequence for a in arrived)
    )
    worker = hub.worker("w1", 1)
    for number in range(200):
        worker.publish(1, result(number), number)
        hub.advance(hub.now + 0.1)
    hub.advance(hub.now + 10)
    return got


def test_the_hub_drops_doubles_and_reorders_the_same_way_for_the_same_seed() -> None:
    """Same seed, same trace; and each fault does happen."""
    got = story(1)
    assert got == story(1) != story(2)
    assert len(set(got)) < 200
    assert len(got) > len(set(got))
    assert got != sorted(got)


# ---------------------------------------------------------------- sockets only


def test_a_topic_is_how_the_frames_of_its_kind_begin() -> None:
    """Subscriptions match the encoded header."""
    beat, bye = Beat("m1", 1.0, {}), Bye("")
    assert encode(stamp("m1", 1, 0, beat, 0, 0), beat)[0].startswith(topic(MessageKind.BEAT))
    assert not encode(stamp("m1", 1, 0, bye, 0, 0), bye)[0].startswith(topic(MessageKind.BEAT))


async def test_a_second_process_of_the_same_id_cuts_nobody_off(tmp_path: Path) -> None:
    """Each has its own way back, also after the second is gone."""
    ends = Endpoints("m1", *(f"ipc://{tmp_path}/{name}" for name in ("c", "r", "e")))
    at_master, at_first, at_second = (Inbox(lambda: None) for _ in range(3))
    with ZmqMasterMesh(ends, 1) as master, ZmqWorkerMesh("w1", 1) as first:
        master.listen(at_master)
        first.connect(ends)
        first.listen(at_first)
        first.send("m1", 1, Bye("first"))
        await at_master.until(1)
        with ZmqWorkerMesh("w1", 2) as second:
            second.connect(ends)
            second.listen(at_second)
            second.send("m1", 1, Bye("second"))
            await at_master.until(2)
            (to_first, to_second) = (got.route for got in at_master.got)
            master.send(to_second, 1, Drain(True))
            await at_second.until(1)
        master.send(to_first, 1, Drain(False))
        await at_first.until(1)
        assert at_first.bodies() == [Drain(False)]


async def test_a_worker_keeps_its_route_at_a_master_and_has_another_at_each(
    tmp_path: Path,
) -> None:
    """A line that is opened again is known by it; a master learns nothing about the others."""
    first, second = (
        Endpoints(name, *(f"ipc://{tmp_path}/{name}{end}" for end in "cre"))
        for name in ("m1", "m2")
    )
    at_one, at_other = Inbox(lambda: None), Inbox(lambda: None)
    with (
        ZmqMasterMesh(first, 1) as master,
        ZmqMasterMesh(second, 2) as other,
        ZmqWorkerMesh("w1", 1) as worker,
    ):
        master.listen(at_one)
        other.listen(at_other)
        worker.listen(Inbox(lambda: None))
        for ends, inbox, count in ((first, at_one, 1), (second, at_other, 1), (first, at_one, 2)):
            worker.connect(ends)
            worker.send(ends.master, 1, Bye(""))
            await inbox.until(count)
        assert at_one.got[0].route == at_one.got[1].route != at_other.got[0].route


async def test_the_lines_between_masters_have_secret_routes_too(tmp_path: Path) -> None:
    """Replies that one master forwards for another must not go to a process with a false name."""
    ends = Endpoints("m1", *(f"ipc://{tmp_path}/{name}" for name in ("c", "r", "e")))
    at_master, at_peer, at_thief = (Inbox(lambda: None) for _ in range(3))
    with ZmqMasterMesh(ends, 1) as master, ZmqPeers("m2", 1) as peers:
        master.listen(at_master)
        peers.listen(at_peer)
        peers.follow([ends])
        peers.send("m1", ClientRequest("r1", "jobs", {}, forwarded=True))
        await at_master.until(1)
        assert at_master.got[0].route != b"m2>"
        with Claimer(b"m2>", ends.control, None) as thief:
            thief.listen(at_thief)
            thief.send(ClientRequest("thief", "jobs", {}))
            await at_master.until(2)
            master.send(at_master.got[0].route, 1, Reply("r1", True, {}))
            await at_peer.until(1)
            assert not at_thief.got


async def test_a_peer_that_does_not_read_does_not_block_the_master(tmp_path: Path) -> None:
    """At the high-water mark a send is refused, counted, and the loop goes on."""
    ends = Endpoints("m1", *(f"ipc://{tmp_path}/{name}" for name in ("c", "r", "e")))
    inbox = Inbox(lambda: None)
    with ZmqMasterMesh(ends, 1) as master, ZmqWorkerMesh("w1", 1) as worker:
        worker.connect(ends)  # and never listens
        master.listen(inbox)
        worker.send("m1", 1, Bye("here"))
        await inbox.until(1)
        large = Reply("x", True, {"fill": "y" * 10_000})
        sent = 0
        route = inbox.got[0].route
        while master.send(route, 1, large) and sent < 50_000:
            sent += 1
        assert 0 < sent < 50_000
        assert master.counters["send_full"] == 1


# ---------------------------------------------------------------- fuzz

FRAMES = 100_000


def fuzzed(rng: random.Random) -> list[bytes]:
    """Frames from pure noise to a valid message with one byte changed."""
    bodies: list[Body] = [result(rng.randrange(9)), Bye("x"), Beat("m", 1.0, {}), Drain(True)]
    body = rng.choice(bodies)
    header = stamp("w1", rng.randrange(9), 1, body, rng.randrange(9), 1)
    frames = encode(header, body)
    match rng.randrange(8):
        case 0:
            return [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 5))]
        case 1:
            return [frames[0], rng.randbytes(rng.randrange(80))]
        case 2:
            return [msgpack.packb(_anything(rng, 0)), frames[1]]
        case 3:
            return [frames[0], msgpack.packb(_anything(rng, 0))]
        case 4:
            return [frames[0], frames[1][: rng.randrange(len(frames[1]) + 1)]]
        case 5:
            return [frames[0], b"\x91" * rng.randrange(3000)]
        case _:
            spoilt = [bytearray(frame) for frame in frames]
            frame = rng.choice(spoilt)
            frame[rng.randrange(len(frame))] = rng.randrange(256)
            return [bytes(frame) for frame in spoilt]


def _anything(rng: random.Random, depth: int) -> Any:
    if depth < 3 and rng.random() < 0.5:
        return [_anything(rng, depth + 1) for _ in range(rng.randrange(12))]
    return rng.choice([0, -1, 2**63, 1.5, None, True, "", "w1", b"\xff", {"a": 1}])


def test_no_frame_makes_the_decoder_raise_anything_but_its_own_error() -> None:
    """100,000 of them, from noise to nearly right."""
    rng = random.Random(4)
    outcomes = {"message": 0, "bad_body": 0, "refused": 0}
    for _ in range(FRAMES):
        try:
            decoded = decode(fuzzed(rng))
        except DecodeError:
            outcomes["refused"] += 1
        else:
            outcomes["bad_body" if isinstance(decoded, BadBody) else "message"] += 1
    assert all(count > 1_000 for count in outcomes.values()), outcomes


async def test_fuzzed_frames_never_stop_a_socket_loop(tmp_path: Path) -> None:
    """100,000 frames against the master's ROUTER; after each thousand it still hears the good."""
    ends = Endpoints("m1", *(f"ipc://{tmp_path}/{name}" for name in ("c", "r", "e")))
    rng, inbox = random.Random(5), Inbox(lambda: None)
    good = encode(stamp("w1", 1, 1, Bye("good"), 0, 0), Bye("good"))
    context = zmq.Context()
    with ZmqMasterMesh(ends, 1) as master, context.socket(zmq.DEALER) as attacker:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.setsockopt(zmq.SNDHWM, 0)
        attacker.connect(ends.control)
        master.listen(inbox)
        for _ in range(FRAMES // 1000):
            for _ in range(1000):
                attacker.send_multipart(fuzzed(rng))
            attacker.send_multipart(good)
            heard = inbox.bodies().count(Bye("good"))
            async with asyncio.timeout(PATIENCE_S):
                while inbox.bodies().count(Bye("good")) == heard:
                    await inbox.until(len(inbox.got) + 1)
            inbox.got.clear()
        refused = sum(master.counters.values())
    context.term()
    assert refused > FRAMES // 4
