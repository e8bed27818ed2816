"""The border of a master on real encrypted sockets: by whose key a message came counts.

Peers here are raw sockets with real keys, which send what no end of ours would.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections import Counter

import msgpack
import pytest
import zmq

from tests.contract.border_tools import LINES, ROLES, Guarded, frames, guarded, readable
from tests.contract.mesh_tools import LOOPBACK, Ear, Keys
from tests.unit.mesh.test_codec import BODIES
from zcrawl.errors import UnreachableError
from zcrawl.mesh import border
from zcrawl.mesh.border import REQUESTS, Allowance
from zcrawl.mesh.codec import decode, encode, version_notice
from zcrawl.mesh.messages import (
    KIND_OF,
    PROTOCOL_VERSION,
    BadBody,
    Beat,
    Body,
    Bye,
    ClientRequest,
    Drain,
    Message,
    MessageKind,
    Reply,
    Snapshot,
    Stale,
)
from zcrawl.mesh.ports import Arrived, stamp
from zcrawl.mesh.roles import SMALL_REQUEST_MOST, WORKER_KINDS, Channel, KeyRole, kinds_on
from zcrawl.mesh.security import AllowedKey
from zcrawl.mesh.sockets.client import ZmqClientMesh, ZmqSubscriber
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.readers import topic
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.model.vitals import Vitals
from zcrawl.roles.client import MeshClient

BEAT = Beat("m1", 1.0, {})
ROUNDS = 12_000
# One changed byte makes no sender's number another's.
NUMBERS = {name: number * 0x01010101 for number, name in enumerate(ROLES, 1)}
LARGE = b"\xc6\x00\xe4\xe1\xc0" + bytes(15_000_000)  # MessagePack: 15 MB of zeros
NAMES = ("w1", "w1-2", "w2", "pool-7", "pool", "old", "old-1", "m1", "", "ann", "w1-x")


def requests(ear: Ear) -> dict[str, ClientRequest]:
    return {body.id: body for body in ear.bodies() if isinstance(body, ClientRequest)}


def reply_of(socket: zmq.Socket[bytes]) -> Reply:
    message = decode(socket.recv_multipart())
    assert isinstance(message, Message)
    assert isinstance(message.body, Reply)
    return message.body


# ---------------------------------------------------------------- frames by role


def spoilt(rng: random.Random, good: list[bytes]) -> list[bytes]:
    """Something that is nearly a message."""
    match rng.randrange(7):
        case 0:
            return [rng.randbytes(rng.randrange(80)) for _ in range(rng.randrange(1, 6))]
        case 1:
            return [good[0], rng.randbytes(rng.randrange(100))]
        case 2:
            return [good[0] + bytes(5_000), good[1]]
        case 3:
            return [*good, *[b"more"] * rng.randrange(1, 50)]
        case 4:
            return good[:1]
        case 5:
            return [good[0], b"\x91" * rng.randrange(3_000)]
        case _:
            frame = bytearray(rng.choice(good))
            frame[rng.randrange(len(frame))] = rng.randrange(256)
            return [bytes(frame), good[1]]


async def send_frames_by_role(rng: random.Random, at: Guarded) -> Counter[tuple[str, int]]:
    """Every kind of message from every role, under right and wrong names; whole, malformed and too
    long ones. Returns how many legitimate ones each has sent."""
    legitimate: Counter[tuple[str, int]] = Counter()
    for round in range(ROUNDS):
        name = rng.choice(list(ROLES))
        peer, body = at.peers[name], rng.choice(BODIES)
        channel, socket = Channel.CONTROL, peer.control
        if peer.reports is not None and rng.random() < 0.5:
            channel, socket = Channel.REPORTS, peer.reports
        source = rng.choice(NAMES)
        if isinstance(body, ClientRequest):
            forged = ("root@m1", "m9", "operator", "boss")
            body = ClientRequest(f"{name} {round}", "jobs", {}, rng.random() < 0.5, *forged)
        # The incarnation tells the test who has sent it: the border does not look at it.
        good = frames(body, source, epoch=rng.randrange(1_000), incarnation=NUMBERS[name])
        kind = KIND_OF[type(body)]
        if rng.random() < 0.3:
            socket.send_multipart(spoilt(rng, good))
        elif rng.random() < 0.002:
            socket.send_multipart([good[0], LARGE])
        elif rng.random() < 0.05:
            socket.send_multipart([good[0], LARGE[: rng.choice((70_000, 1_100_000))]])
        else:
            own = name not in LINES or kind not in WORKER_KINDS or LINES[name].may_be(source)
            legitimate[name, kind] += kind in kinds_on(channel, ROLES[name]) and own
            socket.send_multipart(good)
        if round % 50 == 0:  # below the rate of requests, and the loop is the master's too
            await readable(peer.control, 0.05)
    return legitimate


async def test_nothing_forbidden_reaches_the_machine_whatever_is_sent() -> None:
    """Frames by role, fixed seed. What arrives is of a kind, from a role and under a name that may
    send it there, and all of that arrives; afterwards the master serves everybody as before."""
    rng, numbers = random.Random(20), {number: name for name, number in NUMBERS.items()}
    with guarded() as at:
        for name in ("w1", "pool", "old", "nobody"):
            await at.peers[name].report()
        for name, peer in at.peers.items():
            peer.control.send_multipart(frames(ClientRequest(f"first {name}", "jobs", {})))
        await at.ear.until(lambda: len(requests(at.ear)) == len(ROLES))
        at.remove_nobody()
        at.ear.got.clear()
        legitimate = await send_frames_by_role(rng, at)
        for name in ("w1", "bob"):
            at.peers[name].control.send_multipart(frames(ClientRequest(f"last {name}", "jobs", {})))
        await at.ear.until(lambda: {"last w1", "last bob"} <= requests(at.ear).keys())
        await at.ear.until(lambda: _arrived(at, numbers) >= legitimate)

        for arrival in at.ear.got:
            header = arrival.message.header
            if header.incarnation not in numbers:  # a byte of the header was changed
                continue
            name = numbers[header.incarnation]
            channel = Channel.CONTROL if arrival.route else Channel.REPORTS
            assert header.kind in kinds_on(channel, ROLES[name]), (name, channel, header)
            if header.kind in WORKER_KINDS:
                assert LINES[name].may_be(header.source), (name, header)
            if isinstance(arrival.message, BadBody):
                assert header.kind == MessageKind.RESULT
            elif isinstance(arrival.message.body, ClientRequest) and name != "masters":
                request = arrival.message.body
                assert (request.by, request.key, request.via) == (name, name, "")
                assert not request.forwarded
                assert request.role in ROLES[name]
        refused = ("frame_refused", "frame_too_large", "name_refused", "bad_frame", "bad_body")
        assert all(at.count(name) > 0 for name in refused), at.master.counters
        await _still_serves(at)


def _arrived(at: Guarded, numbers: dict[int, str]) -> Counter[tuple[str, int]]:
    return Counter(
        (numbers.get(arrival.message.header.incarnation, ""), arrival.message.header.kind)
        for arrival in at.ear.got
    )


async def _still_serves(at: Guarded) -> None:
    """A worker's report and its way back, and an operator's request, after all that."""
    reports = at.peers["w1"].reports
    assert reports is not None
    reports.send_multipart(frames(BODIES[1], "w1", incarnation=99))
    at.peers["bob"].control.send_multipart(frames(ClientRequest("after", "jobs", {})))
    # Some of what was spoilt and is still a message may come in between.
    await at.ear.until(
        lambda: any(arrival.message.header.incarnation == 99 for arrival in at.ear.got)
    )
    await at.ear.until(lambda: "after" in requests(at.ear))
    route = next(arrival.route for arrival in at.ear.got if "id='after'" in repr(arrival.message))
    at.master.send(route, 1, Reply("after", True, {}))
    control, answered = at.peers["bob"].control, False
    async with asyncio.timeout(20):
        while not answered:
            if await readable(control):
                answered = b"after" in b"".join(control.recv_multipart())


async def test_without_keys_the_sockets_hold_the_table_too() -> None:
    """The embedded form: nobody sends a master's messages to a master, on either socket."""
    ear, context = Ear(), zmq.Context()
    with ZmqMasterMesh(LOOPBACK, 1, ear.log) as master:
        master.listen(ear)
        control, reports = context.socket(zmq.DEALER), context.socket(zmq.XPUB)
        control.connect(master.endpoints.control)
        reports.connect(master.endpoints.reports)
        async with asyncio.timeout(20):
            while not await readable(reports):
                pass
        for socket in (control, reports):
            for body in BODIES:
                socket.send_multipart(frames(body, "anybody"))
        allowed = {channel: kinds_on(channel, KeyRole) for channel in border.OPEN_CHANNELS}
        await ear.until(lambda: len(ear.got) >= sum(map(len, allowed.values())))
        for channel, kinds in allowed.items():
            assert set(_kinds(ear, channel is Channel.CONTROL)) == kinds
        refused = 2 * len(MessageKind) - len(ear.got)
        await ear.until(lambda: master.counters["frame_refused"] == refused)
        assert not {type(body) for body in ear.bodies()} & {Beat, Snapshot, Vitals}
        context.destroy(0)


def _kinds(ear: Ear, routed: bool) -> list[int]:
    return [arrival.message.header.kind for arrival in ear.got if bool(arrival.route) == routed]


# ---------------------------------------------------------------- what each is told


async def test_a_request_is_marked_whatever_it_says_of_itself() -> None:
    """Each gets its answer, the viewer hears the beats."""
    keys, at_master, at_client, at_console = Keys(), Ear(), Ear(), Ear()
    ann, bob = keys.node(), keys.node()
    allowed = {ann.own.public: LINES["ann"], bob.own.public: LINES["bob"]}
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master:
        master.listen(at_master)
        master.publish(1, BEAT)
        control = [master.endpoints.control]
        with (
            ZmqClientMesh("ann", 1, control, keys=ann) as watching,
            ZmqClientMesh("bob", 1, control, keys=bob) as acting,
            ZmqSubscriber("ann", [MessageKind.BEAT], keys=ann) as listening,
        ):
            watching.listen(at_client)
            acting.listen(Ear())
            listening.connect("m1", master.endpoints.events)
            listening.listen(at_console)
            watching.send(
                ClientRequest("a", "submit", {}, forwarded=True, by="bob", role="operator")
            )
            acting.send(ClientRequest("b", "submit", {}, by="root@laptop"))
            await at_master.until(lambda: len(requests(at_master)) == 2)
            requests_by_id = requests(at_master)
            assert requests_by_id["a"] == ClientRequest(
                "a", "submit", {}, False, "ann", "", "viewer", "ann", through="key ann"
            )
            assert requests_by_id["b"] == ClientRequest(
                "b", "submit", {}, False, "bob", "", "operator", "bob", through="key bob"
            )
            route = next(
                arrival.route for arrival in at_master.got if "id='a'" in repr(arrival.message)
            )
            master.send(route, 1, Reply("a", True, {}))
            await at_client.until(at_client.bodies)
            await at_console.until(at_console.bodies)


async def test_a_worker_under_another_name_is_told_so() -> None:
    """On its control line, with what to do; nothing that it says under that name is taken."""
    keys, at_master, at_worker = Keys(), Ear(), Ear()
    node = keys.node()
    allowed = {node.own.public: LINES["w1"]}
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master,
        ZmqWorkerMesh("w2", 7, at_worker.log, keys=node) as worker,
    ):
        master.listen(at_master)
        worker.connect(master.endpoints)
        worker.listen(at_worker)
        worker.publish(1, BODIES[1])
        worker.send("m1", 5, BODIES[0])
        await at_worker.until(at_worker.bodies)
        (stale,) = at_worker.bodies()
        assert isinstance(stale, Stale)
        assert stale.reason == "name_not_allowed"
        assert "'w2'" in stale.other
        assert "key w1" in stale.other
        assert "names=" in stale.other
        header = at_worker.got[0].message.header
        assert (header.epoch, header.subject) == (5, 7), "it answers that very HELLO"
        await at_master.until(lambda: master.counters["name_refused"] == 2)
        assert "'w2'" in at_master.details("name_refused")[0]
        assert not at_master.got


async def test_a_viewer_is_no_worker() -> None:
    """Its reports are not let in; its HELLO is answered with the role that it lacks."""
    keys, at_master, at_worker = Keys(), Ear(), Ear()
    node = keys.node()
    allowed = {node.own.public: LINES["ann"]}
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master,
        ZmqWorkerMesh("ann", 1, at_worker.log, keys=node) as worker,
    ):
        master.listen(at_master)
        worker.connect(master.endpoints)
        worker.listen(at_worker)
        worker.send("m1", 1, BODIES[0])
        await at_worker.until(at_worker.bodies)
        (stale,) = at_worker.bodies()
        assert isinstance(stale, Stale)
        assert stale.reason == "key_not_allowed"
        assert "role worker" in stale.other
        await at_master.until(lambda: at_master.details("peer_refused"))
        assert at_master.details("frame_refused") == ["viewer ann: HELLO on the control socket"]
        assert not at_master.got


async def test_ends_that_connect_hold_the_table_too() -> None:
    """A worker takes no snapshot and no reply from the line to its master, a client no order."""
    at_worker, at_client, at_master = Ear(), Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1) as master,
        ZmqWorkerMesh("w1", 1) as worker,
        ZmqClientMesh("c", 1, [master.endpoints.control]) as client,
    ):
        master.listen(at_master)
        worker.connect(master.endpoints)
        for end, ear in ((worker, at_worker), (client, at_client)):
            end.listen(ear)
        worker.send("m1", 1, Bye("x"))
        client.send(ClientRequest("r", "jobs", {}))
        await at_master.until(lambda: len(at_master.got) == 2)
        for arrival in at_master.got:
            for body in (
                Snapshot(PublishedSnapshot("m1", 1)),
                Reply("r", True, {}),
                BEAT,
                Drain(True),
            ):
                master.send(arrival.route, 1, body)
        await at_worker.until(lambda: worker.counters["frame_refused"] == 3)
        await at_client.until(lambda: client.counters["frame_refused"] == 3)
        assert at_worker.bodies() == [Drain(True)]
        assert at_client.bodies() == [Reply("r", True, {})]


# ---------------------------------------------------------------- load


async def test_a_viewers_long_frames_are_not_decoded_and_named() -> None:
    """15 MB of each kind; the request's refusal has its id, a short one passes beside them."""
    with guarded(("ann", "bob")) as at:
        ann = at.peers["ann"].control
        long = ClientRequest("long", "jobs", {"fill": "x" * (SMALL_REQUEST_MOST + 1)})
        ann.send_multipart(frames(long))
        for kind in (MessageKind.RESULT, MessageKind.BEAT, MessageKind.REQUEST):
            body = next(sample for sample in BODIES if KIND_OF[type(sample)] is kind)
            ann.send_multipart([frames(body)[0], LARGE])
        ann.send_multipart([LARGE, b""])
        ann.send_multipart(frames(ClientRequest("short", "jobs", {})))
        await at.ear.until(lambda: "short" in requests(at.ear))
        assert list(requests(at.ear)) == ["short"]
        assert at.count("frame_too_large") == 2
        assert at.count("frame_refused") == 2
        assert at.count("bad_frame") == 1
        async with asyncio.timeout(20):
            while not await readable(ann):
                pass
        reply = reply_of(ann)
        assert (reply.id, reply.data["code"]) == ("long", "request_too_large")
        assert str(SMALL_REQUEST_MOST) in reply.data["message"]
        at.peers["bob"].control.send_multipart(frames(long))
        await at.ear.until(lambda: "long" in requests(at.ear))


async def test_arguments_that_are_not_plain_are_dropped_at_once() -> None:
    """Lists as keys: nested deeper than an encoder can follow, or 20,000 with the same hash."""
    equal_hashes = [5 + n * sys.hash_info.modulus for n in range(8)]
    keys = itertools.islice(itertools.product(equal_hashes, repeat=5), 20_000)
    pairs = b"".join(msgpack.packb(key) + b"\x00" for key in keys)
    colliding = b"\xdf" + (20_000).to_bytes(4, "big") + pairs
    nested = b"\x81" + b"\x91" * 900 + b"\x00\x00"
    with guarded(("ann", "bob")) as at:
        began = time.process_time()
        for name, value in (("ann", nested), ("bob", colliding)):
            head, body = frames(ClientRequest("bad", "jobs", {"ref": 0}))
            before, zero, after = body.partition(b"ref\x00")
            control = at.peers[name].control
            control.send_multipart([head, before + zero[:-1] + value + after])
            control.send_multipart(frames(ClientRequest(name, "jobs", {})))
        await at.ear.until(lambda: len(requests(at.ear)) == 2)
        assert sorted(requests(at.ear)) == ["ann", "bob"]
        assert at.count("bad_body") == 2
        assert time.process_time() - began < 2.0


async def test_a_long_header_is_not_decoded() -> None:
    """Nobody's role is known by it yet, and no header of ours is long."""
    with guarded(("pool", "bob")) as at:
        for name in ("pool", "bob"):
            body = BODIES[0] if name == "pool" else ClientRequest("long header", "jobs", {})
            at.peers[name].control.send_multipart(frames(body, "pool-" + "x" * 2_000))
            at.peers[name].control.send_multipart(frames(ClientRequest(name, "masters", {})))
        await at.ear.until(lambda: len(requests(at.ear)) == 2)
        assert at.count("bad_frame") == 2
        assert len(at.ear.got) == 2
        assert "a header of" in at.ear.details("bad_frame")[0]


async def test_a_key_that_asks_too_often_is_refused_by_name_and_hinders_nobody() -> None:
    """At most its burst gets in, few refusals are answered; an operator beside it is served."""
    request_count = round(REQUESTS[KeyRole.VIEWER].burst) * 10
    with guarded(("ann", "bob")) as at:
        ann = at.peers["ann"].control
        for number in range(request_count):
            ann.send_multipart(frames(ClientRequest(str(number), "jobs", {})))
        await at.ear.until(lambda: len(at.ear.got) + at.count("request_limited") == request_count)
        assert len(at.ear.got) < request_count / 2
        assert len(at.ear.details("request_limited")) < 30
        at.peers["bob"].control.send_multipart(frames(ClientRequest("bob", "jobs", {})))
        await at.ear.until(lambda: "bob" in requests(at.ear))
        codes = []
        while await readable(ann, 0.2):
            codes.append(reply_of(ann).data["code"])
        assert set(codes) == {"too_many_requests"}
        assert len(codes) < 200


async def test_our_clients_wait_and_ask_again_when_they_asked_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody sees `too_many_requests` as long as patience lasts; then it is named."""
    monkeypatch.setattr(border, "REQUESTS", {KeyRole.OPERATOR: Allowance(10, 2)})
    keys, at_master = Keys(), Ear()
    bob = keys.node()
    allowed = {bob.own.public: LINES["bob"]}
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master:

        def serve(arrived: list[Arrived]) -> None:
            for arrival in arrived:
                assert isinstance(arrival.message, Message)
                assert isinstance(arrival.message.body, ClientRequest)
                master.send(arrival.route, 1, Reply(arrival.message.body.id, True, {}))

        master.listen(serve)
        control = [master.endpoints.control]
        async with MeshClient(control, keys=bob) as client, asyncio.timeout(20):
            await asyncio.gather(*(client.ask("jobs", {}) for _ in range(6)))
        assert master.counters["request_limited"] > 0
        monkeypatch.setattr(border, "REQUESTS", {KeyRole.OPERATOR: Allowance(0, 0)})
        async with MeshClient(control, keys=bob, give_up_s=1.5) as client:
            with pytest.raises(UnreachableError) as refused:
                await client.ask("jobs", {})
        assert refused.value.code == "too_many_requests"
        assert "key bob" in str(refused.value)


async def test_many_subscriptions_do_not_flood_the_other_subscribers() -> None:
    """20,000 of a viewer, to beats and to version notices: another one hears a few of each."""
    with guarded(("ann", "bob")) as at:
        at.master.publish(1, BEAT)
        quiet = at.peers["bob"].subscriber(b"")
        async with asyncio.timeout(20):
            while not await readable(quiet):
                pass
        loud = at.peers["ann"].subscriber()
        beat, notice = topic(MessageKind.BEAT), version_notice("m1")[0]
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(20_000):
            subscription = beat if number % 2 else notice
            loud.setsockopt(zmq.SUBSCRIBE, subscription)
            loud.setsockopt(zmq.UNSUBSCRIBE, subscription)
            if number % 100 == 0:
                await readable(loud, 0.001)
        heard = 0
        while await readable(quiet, 0.5):
            quiet.recv_multipart()
            heard += 1
        took_s = loop.time() - began
        assert 0 < heard <= 2 * (took_s / 0.1 + 2), f"{heard} in {took_s:.1f} s"
        late = at.peers["bob"].subscriber(beat)
        async with asyncio.timeout(20):
            while not await readable(late):
                pass


async def test_a_long_topic_ends_the_connection_of_whoever_sends_it() -> None:
    """libzmq keeps a node for each byte of a topic: long ones would fill the master's memory."""
    with guarded(("ann", "bob")) as at:
        at.master.publish(1, BEAT)
        greedy = at.peers["ann"].subscriber(b"x" * 10_000, topic(MessageKind.BEAT))
        quiet = at.peers["bob"].subscriber(topic(MessageKind.BEAT))
        async with asyncio.timeout(20):
            while not await readable(quiet):
                pass
        assert not await readable(greedy, 0.3), "it is cut off before its next subscription"


async def test_two_lines_with_one_name_stay_apart() -> None:
    """Rights go by the key, not by its name."""
    keys, at_master = Keys(), Ear()
    viewer, operator = keys.node(), keys.node()
    allowed = {
        viewer.own.public: AllowedKey("ann", frozenset({KeyRole.VIEWER}), has_roles=True),
        operator.own.public: AllowedKey("ann", frozenset({KeyRole.OPERATOR}), has_roles=True),
    }
    with ZmqMasterMesh(LOOPBACK, 1, keys=keys.master, allowed=allowed) as master:
        master.listen(at_master)
        control = [master.endpoints.control]
        with (
            ZmqClientMesh("a", 1, control, keys=viewer) as first,
            ZmqClientMesh("b", 1, control, keys=operator) as second,
        ):
            first.listen(Ear())
            second.listen(Ear())
            first.send(ClientRequest("v", "jobs", {}))
            second.send(ClientRequest("o", "jobs", {}))
            await at_master.until(lambda: len(requests(at_master)) == 2)
            roles = {id: request.role for id, request in requests(at_master).items()}
            assert roles == {"v": "viewer", "o": "operator"}


async def test_what_another_version_says_is_no_way_around() -> None:
    """A notice of ours on an open socket is taken as one, whatever its sender's role; it reaches no
    machine. A long one is not decoded."""
    with guarded(("ann",)) as at:
        ann = at.peers["ann"].control
        ann.send_multipart(version_notice("m2"))
        notice = msgpack.packb([PROTOCOL_VERSION, "x" * 5_000])
        ann.send_multipart([version_notice("m2")[0], notice])
        body: Body = ClientRequest("r", "jobs", {})
        ann.send_multipart(encode(stamp("c", 1, 0, body, 0, 0), body))
        await at.ear.until(lambda: requests(at.ear))
        assert at.count("bad_frame") == 1
        assert len(at.ear.got) == 1
