"""Masters on TCP: free ports, taken ports, IPv6, and ends that know several masters."""

from __future__ import annotations

import socket

import pytest
import zmq

from tests.contract.mesh_tools import LOOPBACK, Ear
from zcrawl.errors import ConfigError, MeshError
from zcrawl.mesh.address import parse_endpoint
from zcrawl.mesh.messages import Beat, Bye, ClientRequest, Event, MessageKind, Reply, Snapshot
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.sockets.client import ZmqClientMesh, ZmqSubscriber
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.peers import ZmqPeers
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.snapshot import PublishedSnapshot


def ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_an_address_in_use_is_named() -> None:
    """Two masters on one port: the error of the second names it, and no socket stays open."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        for endpoints in (
            Endpoints("m1", busy, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"),
            Endpoints("m1", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", busy),
        ):
            with pytest.raises(MeshError) as caught:
                ZmqMasterMesh(endpoints, 1)
            assert caught.value.code == "address_in_use"
            assert busy in str(caught.value)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:0", "tcp://localhost:0"])
async def test_a_master_tells_which_free_ports_it_took(address: str) -> None:
    """Three different ones, and workers reach it there."""
    ear = Ear()
    with ZmqMasterMesh(Endpoints("m1", *[address] * 3), 1) as master:
        master.listen(ear)
        ends = master.endpoints
        endpoints = [parse_endpoint(end) for end in (ends.control, ends.reports, ends.events)]
        assert (
            len({endpoint.port for endpoint in endpoints if endpoint is not None and endpoint.port})
            == 3
        )
        with ZmqWorkerMesh("w1", 1) as worker:
            worker.connect(ends)
            worker.send("m1", 1, Bye("x"))
            await ear.until(ear.bodies)


@pytest.mark.skipif(not ipv6(), reason="this machine has no IPv6 loopback")
async def test_ipv6_works_beside_ipv4() -> None:
    """One worker, two masters, one of each kind, on the same two shared sockets."""
    old, new, at_worker = Ear(), Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1) as four,
        ZmqMasterMesh(Endpoints("m2", *["tcp://[::1]:*"] * 3), 1) as six,
        ZmqWorkerMesh("w1", 1) as worker,
    ):
        four.listen(old)
        six.listen(new)
        for master in (four, six):
            worker.connect(master.endpoints)
            master.publish(1, Beat(master.endpoints.master, 1.0, {}))
        worker.listen(at_worker)
        assert worker.send("m1", 1, Bye("four"))
        assert worker.send("m2", 1, Bye("six"))
        await old.until(lambda: Bye("four") in old.bodies())
        await new.until(lambda: Bye("six") in new.bodies())
        await at_worker.until(lambda: len(at_worker.bodies()) == 2)


@pytest.mark.parametrize("bad", ["tcp://127.0.0.1", "tcp://127.0.0.1:99999", "udp://1.2.3.4:5", ""])
async def test_a_bad_endpoint_is_refused_with_its_text(bad: str) -> None:
    """libzmq takes port 99999 and binds another one."""
    with pytest.raises(ConfigError) as caught:
        ZmqMasterMesh(Endpoints("m1", bad, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"), 1)
    assert caught.value.code == "bad_endpoint"
    assert repr(bad) in str(caught.value)


async def test_heartbeats_stand_on_bound_sockets_and_keepalive_on_connecting_ones() -> None:
    """The other way round a full queue aborts the process (libzmq#3937)."""
    with ZmqMasterMesh(LOOPBACK, 1) as master, ZmqWorkerMesh("w1", 1) as worker:
        worker.connect(master.endpoints)
        for bound in (master._control, master._reports, master._events):
            assert int(bound.getsockopt(zmq.HEARTBEAT_IVL)) > 0
        line = worker._lines["m1"]
        for connecting in (line.control, line.reports, line.events):
            assert connecting.getsockopt(zmq.HEARTBEAT_IVL) == 0
            assert connecting.getsockopt(zmq.TCP_KEEPALIVE) == 1
            assert int(connecting.getsockopt(zmq.TCP_MAXRT)) > 0


class NotingSubscriber(ZmqSubscriber):
    """Logs who speaks its version: the last subscription of a master's that is answered."""

    def _on_notice(self, speaker: str) -> None:
        self._log("speaks_our_version", speaker)


async def test_a_subscriber_hears_the_kinds_it_chose_from_all_its_masters() -> None:
    """A console takes snapshots and events, a follower beats; masters come and go."""
    console, follower = Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1) as first,
        ZmqMasterMesh(Endpoints("m2", *["tcp://127.0.0.1:*"] * 3), 1) as second,
        NotingSubscriber(
            "console", [MessageKind.SNAPSHOT, MessageKind.EVENT], console.log
        ) as console_subscriber,
        NotingSubscriber("m3", [MessageKind.BEAT], follower.log) as other,
    ):
        for master in (first, second):
            master.listen(Ear())
            for subscriber in (console_subscriber, other):
                subscriber.connect(master.endpoints.master, master.endpoints.events)
        console_subscriber.listen(console)
        other.listen(follower)
        for ear in (console, follower):
            await ear.until(lambda ear=ear: set(ear.details("speaks_our_version")) == {"m1", "m2"})
        for master in (first, second):
            name = master.endpoints.master
            master.publish(1, Beat(name, 1.0, {}))
            master.publish(1, Event("of", {"m": name}))
            master.publish(1, Snapshot(PublishedSnapshot(name, 1)))
        await console.until(lambda: len(console.got) == 4)
        await follower.until(lambda: len(follower.got) == 2)
        assert {type(body) for body in console.bodies()} == {Event, Snapshot}
        assert {type(body) for body in follower.bodies()} == {Beat}

        console_subscriber.disconnect("m2")
        assert console_subscriber.masters == {"m1": first.endpoints.events}
        second.publish(1, Event("late", {}))
        first.publish(1, Event("late", {"m": "m1"}))
        await console.until(lambda: len(console.got) == 5)
        assert console.bodies()[-1] == Event("late", {"m": "m1"})


async def test_a_client_goes_on_to_the_next_master() -> None:
    """One of its masters is silent, the next one answers the same question."""
    at_master, at_client = Ear(), Ear()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        ZmqMasterMesh(LOOPBACK, 1) as master,
        ZmqClientMesh(
            "c", 1, [f"tcp://127.0.0.1:{silent.getsockname()[1]}", master.endpoints.control]
        ) as client,
    ):
        master.listen(at_master)
        client.listen(at_client)
        client.send(ClientRequest("r1", "jobs", {}))
        client.next_master()
        assert client.master == master.endpoints.control
        client.send(ClientRequest("r1", "jobs", {}))
        await at_master.until(at_master.bodies)
        master.send(at_master.got[0].route, 1, Reply("r1", True, {}))
        await at_client.until(at_client.bodies)
        client.next_master()
        client.next_master()
        client.send(ClientRequest("r2", "jobs", {}))
        await at_master.until(lambda: ClientRequest("r2", "jobs", {}) in at_master.bodies())


async def test_a_client_of_one_master_keeps_its_line() -> None:
    """There is nowhere to go, and what was sent must not be lost."""
    at_master = Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1) as master,
        ZmqClientMesh("c", 1, [master.endpoints.control]) as client,
    ):
        client.send(ClientRequest("r1", "jobs", {}))
        client.next_master()
        master.listen(at_master)
        await at_master.until(at_master.bodies)


@pytest.mark.parametrize("bad", ["tcp://127.0.0.1", "tcp://*:7000", "nonsense", ""])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_master_whose_address_is_wrong_is_left_out(bad: str, at: int) -> None:
    """One master's mistake in the catalogue must not end the workers, nor part other masters."""
    texts = ["tcp://127.0.0.1:7"] * 3
    texts[at] = bad
    ear, log = Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1) as master,
        ZmqWorkerMesh("w1", 1, log.log) as worker,
        ZmqPeers("m3", 1, log.log) as peers,
    ):
        master.listen(ear)
        worker.connect(Endpoints("m2", *texts))
        worker.connect(master.endpoints)
        worker.listen(ear)
        peers.follow([Endpoints("m2", *texts), master.endpoints])
        assert worker.send("m1", 1, Bye("here"))
        assert not worker.send("m2", 1, Bye("there"))
        assert peers.send("m1", Bye("peer"))
        await ear.until(lambda: {Bye("here"), Bye("peer")} <= set(ear.bodies()))
        worker.disconnect("m2")
        peers.follow([master.endpoints])
    assert all(detail.startswith("m2: ") for detail in log.details("bad_endpoint"))
    assert log.details("bad_endpoint")
