"""Encrypted sockets: who gets in, who does not, and what each side's log says of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.contract.mesh_tools import LOOPBACK, Ear, Keys
from zcrawl.errors import ConfigError
from zcrawl.mesh.messages import (
    Beat,
    Bye,
    ClientRequest,
    Drain,
    Hello,
    LogRecord,
    LogRecords,
    MessageKind,
)
from zcrawl.mesh.security import AllowedKey, MeshKeys
from zcrawl.mesh.sockets import end
from zcrawl.mesh.sockets.client import ZmqClientMesh, ZmqSubscriber
from zcrawl.mesh.sockets.keys import new_pair
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.peers import ZmqPeers
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh

BEAT = Beat("m1", 1.0, {})
HELLO = Hello(8, "1", "here", 1, [], 0, 0, 1, [])
REPORT = LogRecords([LogRecord(0.0, "info", "a", "report")])
Allowed = dict[str, AllowedKey]
W1 = AllowedKey("w1")
Meeting = tuple[ZmqMasterMesh, Ear, ZmqWorkerMesh, Ear]


@contextlib.contextmanager
def meeting(
    of_master: MeshKeys | None, of_worker: MeshKeys | None, allowed: Allowed | None = None
) -> Iterator[Meeting]:
    """A master and a worker that tries to reach it; each with what it heard and logged."""
    at_master, at_worker = Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=of_master, allowed=allowed) as master,
        ZmqWorkerMesh("w1", 1, at_worker.log, keys=of_worker) as worker,
    ):
        master.listen(at_master)
        worker.connect(master.endpoints)
        worker.listen(at_worker)
        yield master, at_master, worker, at_worker


async def test_an_unknown_key_is_refused_and_both_sides_say_so() -> None:
    """The master's log has address and key; the worker's names its own key and the master."""
    keys = Keys()
    stranger = keys.node()
    with meeting(keys.master, stranger) as (master, at_master, worker, at_worker):
        worker.send("m1", 1, Bye("let me in"))
        control = master.endpoints.control  # the other two lines may be refused before it
        await at_worker.until(lambda: control in "".join(at_worker.details("key_refused")))
        await at_master.until(lambda: at_master.details("peer_refused"))
        assert stranger.own.public in at_worker.details("key_refused")[0]
        assert stranger.own.public in at_master.details("peer_refused")[0]
        assert "127.0.0.1" in at_master.details("peer_refused")[0]
        assert master.counters["peer_refused"] >= 1
        assert not at_master.got
        everything = str(at_master.events + at_worker.events)
        assert stranger.own.secret not in everything
        assert keys.server.secret not in everything


async def test_a_key_that_is_allowed_later_gets_in_without_a_restart() -> None:
    """libzmq gives up after a refusal; the worker tries again by itself."""
    keys = Keys()
    node = keys.node()
    with meeting(keys.master, node) as (master, at_master, worker, at_worker):
        master.publish(1, BEAT)
        worker.publish(1, REPORT)
        await at_master.until(lambda: len(at_master.details("peer_refused")) >= 3)
        master.allow({node.own.public: W1})
        await at_worker.until(at_worker.bodies)  # SUB to XPUB
        await at_master.until(lambda: REPORT in at_master.bodies())  # XPUB to SUB
        await _heard(worker, at_master)  # DEALER to ROUTER
    assert at_worker.bodies()[0] == BEAT


async def test_a_key_that_was_refused_by_two_masters_many_times_gets_in_on_each_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second try on the line to a master must not end the line to another one: that worker was
    allowed, joined, and was lost again and again, because no heartbeat arrived."""
    monkeypatch.setattr(end, "REFUSED_AGAIN_S", 0.01)
    keys = Keys()
    nodes = {f"w{number}": keys.node() for number in range(4)}
    ears = {name: Ear() for name in ("m1", "m2")}
    with contextlib.ExitStack() as stack:
        masters = [
            stack.enter_context(
                ZmqMasterMesh(
                    msgspec.structs.replace(LOOPBACK, master=name), 1, ear.log, keys=keys.master
                )
            )
            for name, ear in ears.items()
        ]
        workers = {
            name: stack.enter_context(ZmqWorkerMesh(name, 1, keys=node))
            for name, node in nodes.items()
        }
        for master in masters:
            master.listen(ears[master.endpoints.master])
            for worker in workers.values():
                worker.connect(master.endpoints)
        for worker in workers.values():
            worker.listen(Ear())
        for ear in ears.values():
            await ear.until(lambda ear=ear: len(ear.details("peer_refused")) >= 400)
        allowed = {node.own.public: AllowedKey(name) for name, node in nodes.items()}
        for master in masters:
            master.allow(allowed)

        def reporters(ear: Ear) -> set[str]:
            return {arrival.message.header.source for arrival in ear.got}

        for ear in ears.values():
            heard = asyncio.create_task(ear.until(lambda ear=ear: reporters(ear) == set(nodes)))
            while not heard.done():
                for worker in workers.values():
                    worker.publish(1, REPORT)
                await asyncio.wait([heard], timeout=0.05)
            await heard


async def _heard(worker: ZmqWorkerMesh, at_master: Ear) -> None:
    """The control line may still be on its second try: what is sent before that is lost."""
    heard = asyncio.create_task(at_master.until(lambda: Bye("control") in at_master.bodies()))
    while not heard.done():
        worker.send("m1", 1, Bye("control"))
        await asyncio.wait([heard], timeout=0.05)
    await heard


async def test_a_removed_key_is_refused_when_it_comes_back() -> None:
    """Nothing more is taken from it, on either socket that it sends to; the next handshake fails.
    Only its subscription ends at once."""
    keys, at_master, at_worker = Keys(), Ear(), Ear()
    node = keys.node()
    allowed = {node.own.public: W1}
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master:
        master.listen(at_master)
        master.publish(1, BEAT)
        with ZmqWorkerMesh("w1", 1, keys=node) as worker:
            worker.connect(master.endpoints)
            worker.listen(at_worker)
            worker.send("m1", 1, Bye("first"))
            worker.publish(1, REPORT)
            await at_master.until(lambda: len(at_master.bodies()) == 2)
            await at_worker.until(at_worker.bodies)  # now all three sockets are connected
            master.allow({})
            worker.send("m1", 1, Bye("still connected"))
            worker.publish(1, REPORT)
            await at_master.until(lambda: master.counters["frame_refused"] == 2)
        (detail,) = at_master.details("frame_refused")
        assert "no longer in the list" in detail
        assert node.own.public in detail
        with ZmqWorkerMesh("w1", 2, at_worker.log, keys=node) as worker:
            worker.connect(master.endpoints)
            worker.listen(at_worker)
            worker.send("m1", 1, Bye("again"))
            await at_worker.until(lambda: at_worker.details("key_refused"))
    assert len(at_master.bodies()) == 2


async def test_a_removed_key_receives_nothing_more_and_the_others_do() -> None:
    """Neither what is sent to it nor what is published: a console of a person who has left, and a
    worker that was stolen, learn nothing after that. Both keep their connections open."""
    keys, at_kept, at_gone = Keys(), Ear(), Ear()
    gone, kept = keys.node(), keys.node()
    allowed = {gone.own.public: W1, kept.own.public: AllowedKey("w2")}
    at_master = Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master,
        ZmqWorkerMesh("w1", 1, keys=gone) as worker,
        ZmqWorkerMesh("w2", 1, keys=kept) as other,
    ):
        master.listen(at_master)
        for mesh, ear in ((worker, at_gone), (other, at_kept)):
            mesh.connect(master.endpoints)
            mesh.listen(ear)
            mesh.send("m1", 1, HELLO)
        master.publish(1, BEAT)
        await at_master.until(lambda: at_master.bodies().count(HELLO) == 2)
        await at_gone.until(at_gone.bodies)
        await at_kept.until(at_kept.bodies)
        routes = {arrival.message.header.source: arrival.route for arrival in at_master.got}
        assert master.send(routes["w1"], 1, Drain(False))
        await at_gone.until(lambda: Drain(False) in at_gone.bodies())

        master.allow({kept.own.public: AllowedKey("w2")})
        heard = len(at_gone.bodies())
        assert not master.send(routes["w1"], 1, Drain(True))
        assert master.send(routes["w2"], 1, Drain(True))
        await at_kept.until(lambda: Drain(True) in at_kept.bodies())
        later = Beat("m1", 2.0, {})
        listening = asyncio.create_task(at_kept.until(lambda: later in at_kept.bodies()))
        while not listening.done():
            master.publish(1, later)
            await asyncio.wait([listening], timeout=0.05)
        await listening
        assert len(at_gone.bodies()) == heard


async def test_a_peer_without_encryption_is_refused_and_counted() -> None:
    """Nothing of what it sends is read; both logs say that one side does not encrypt."""
    with meeting(Keys().master, None) as (master, at_master, worker, at_worker):
        worker.send("m1", 1, Bye("plain"))
        # A line that broke off may be told first, several times.
        await at_master.until(
            lambda: "does not encrypt" in " ".join(at_master.details("handshake_failed"))
        )
        await at_worker.until(
            lambda: "the peer uses encryption" in " ".join(at_worker.details("handshake_failed"))
        )
        assert master.counters["handshake_failed"] >= 1
        assert not at_master.got


async def test_a_worker_with_keys_does_not_talk_to_a_master_without() -> None:
    """Encryption is never dropped in silence."""
    with meeting(None, Keys().node()) as (_, at_master, worker, at_worker):
        worker.send("m1", 1, Bye("secret"))
        await at_worker.until(
            lambda: "does not encrypt" in " ".join(at_worker.details("handshake_failed"))
        )
        assert not at_master.got


async def test_a_node_with_another_masters_key_does_not_get_through() -> None:
    """It would talk to an impostor otherwise; the master's log says what is wrong."""
    node = new_pair()
    wrong = MeshKeys(node, new_pair().public)
    both = meeting(Keys().master, wrong, allowed={node.public: W1})
    with both as (_, at_master, worker, at_worker):
        worker.send("m1", 1, Bye("x"))
        await at_master.until(
            lambda: "another public key" in " ".join(at_master.details("handshake_failed"))
        )
        await at_worker.until(lambda: at_worker.details("handshake_failed"))
        assert not at_master.got


async def test_without_an_answer_about_keys_nobody_gets_in() -> None:
    """The list fails closed: a master whose ZAP socket is gone lets in no one, not everyone."""
    keys, at_master, at_worker = Keys(), Ear(), Ear()
    node = keys.node()
    allowed = {node.own.public: W1}
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master,
        ZmqWorkerMesh("w1", 1, at_worker.log, keys=node) as worker,
    ):
        master.listen(at_master)
        master._drop(master._zap)
        worker.connect(master.endpoints)
        worker.listen(at_worker)
        worker.send("m1", 1, Bye("x"))
        await at_master.until(lambda: len(at_master.details("handshake_failed")) >= 3)
        assert not at_master.got


async def test_masters_let_each_other_in_by_the_cluster_s_key() -> None:
    """A follower hears and asks the leader with the pair that all masters share."""
    keys, at_leader, at_follower = Keys(), Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_leader.log, keys=keys.master) as leader,
        ZmqPeers("m2", 1, at_follower.log, keys=keys.master) as follower,
    ):
        leader.listen(at_leader)
        leader.publish(1, BEAT)
        follower.follow([leader.endpoints])
        follower.listen(at_follower)
        follower.send("m1", ClientRequest("r1", "jobs", {}))
        await at_leader.until(at_leader.bodies)
        await at_follower.until(at_follower.bodies)
    assert at_follower.bodies()[0] == BEAT


async def test_a_console_with_a_listed_key_hears_the_masters() -> None:
    """Subscribers need a key as workers do; without it they get an error and no messages."""
    keys, at_console, at_stranger = Keys(), Ear(), Ear()
    node = keys.node()
    allowed = {node.own.public: AllowedKey("console")}
    with (
        ZmqMasterMesh(LOOPBACK, 1, keys=keys.master, allowed=allowed) as master,
        ZmqSubscriber("console", [MessageKind.BEAT], at_console.log, keys=node) as console,
        ZmqSubscriber(
            "stranger", [MessageKind.BEAT], at_stranger.log, keys=keys.node()
        ) as stranger,
    ):
        master.listen(Ear())
        master.publish(1, BEAT)
        for subscriber, ear in ((console, at_console), (stranger, at_stranger)):
            subscriber.connect("m1", master.endpoints.events)
            subscriber.listen(ear)
        await at_console.until(at_console.bodies)
        await at_stranger.until(lambda: at_stranger.details("key_refused"))
    assert not at_stranger.got


async def test_a_client_that_is_refused_knows_why() -> None:
    """`nobody answers` alone would send people to look at the network."""
    keys, at_client = Keys(), Ear()
    node = keys.node()
    with (
        ZmqMasterMesh(LOOPBACK, 1, keys=keys.master) as master,
        ZmqClientMesh("c", 1, [master.endpoints.control], at_client.log, keys=node) as client,
    ):
        client.listen(at_client)
        client.send(ClientRequest("r1", "jobs", {}))
        await at_client.until(lambda: client.complaint)
        assert "do not allow this key" in client.complaint


async def test_a_master_with_a_pair_of_its_own_is_refused_at_start() -> None:
    """Nodes know one masters' key: another one could not be reached by anybody."""
    with pytest.raises(ConfigError, match="share one key file"):
        ZmqMasterMesh(LOOPBACK, 1, keys=Keys().node())


async def test_noise_at_an_encrypted_port_stops_nothing() -> None:
    """A port scanner, a web browser: counted, and the next worker gets in."""
    keys, at_master, at_worker = Keys(), Ear(), Ear()
    node = keys.node()
    allowed = {node.own.public: W1}
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master:
        master.listen(at_master)
        host, _, port = master.endpoints.control.removeprefix("tcp://").partition(":")
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(200), b""):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(noise)
            writer.close()
            await writer.wait_closed()
        with ZmqWorkerMesh("w1", 1, keys=node) as worker:
            worker.connect(master.endpoints)
            worker.listen(at_worker)
            worker.send("m1", 1, Bye("x"))
            await at_master.until(at_master.bodies)
            master.send(at_master.got[0].route, 1, Drain(True))
            await at_worker.until(at_worker.bodies)


async def test_a_refused_worker_that_is_disconnected_does_not_come_back(tmp_path: Path) -> None:
    """The second try belongs to an endpoint that is still wanted."""
    keys, at_worker = Keys(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1, keys=keys.master) as master,
        ZmqWorkerMesh("w1", 1, at_worker.log, keys=keys.node()) as worker,
    ):
        worker.connect(master.endpoints)
        worker.listen(at_worker)
        await at_worker.until(lambda: len(at_worker.details("key_refused")) >= 3)
        events = worker._lines["m1"].events
        worker.disconnect("m1")
        worker._connect_again(events)
        assert not worker._connected
        assert events.closed
