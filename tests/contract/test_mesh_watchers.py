"""Keys that may only watch, over real encrypted sockets: by what name a message came counts."""

from __future__ import annotations

from tests.contract.mesh_tools import LOOPBACK, Ear, Keys
from zcrawl.mesh.mesh_zmq_client import ZmqClientMesh
from zcrawl.mesh.mesh_zmq_master import ZmqMasterMesh
from zcrawl.mesh.mesh_zmq_subscriber import ZmqSubscriber
from zcrawl.mesh.mesh_zmq_worker import ZmqWorkerMesh
from zcrawl.mesh.messages import Beat, Bye, Kind, Reply, Request
from zcrawl.mesh.security import WATCH, watcher

BEAT = Beat("m1", 1.0, {})


def requests(ear: Ear) -> dict[str, Request]:
    return {body.id: body for body in ear.bodies() if isinstance(body, Request)}


async def test_a_watchers_requests_are_marked_whatever_it_says_of_itself() -> None:
    """Others beside it are not; both get their answers, and the watcher hears the beats."""
    keys, at_master, at_client, at_console = Keys(), Ear(), Ear(), Ear()
    ann, bob = keys.node(), keys.node()
    allowed = {ann.own.public: watcher("ann"), bob.own.public: "bob"}
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master:
        master.listen(at_master)
        master.publish(1, BEAT)
        control = [master.endpoints.control]
        with (
            ZmqClientMesh("ann", 1, control, keys=ann) as watching,
            ZmqClientMesh("bob", 1, control, keys=bob) as acting,
            ZmqSubscriber("ann", [Kind.BEAT], keys=ann) as listening,
        ):
            watching.listen(at_client)
            acting.listen(Ear())
            listening.connect("m1", master.endpoints.events)
            listening.listen(at_console)
            watching.send(Request("a", "submit", {}, forwarded=True, role="admin"))
            acting.send(Request("b", "submit", {}))
            await at_master.until(lambda: len(requests(at_master)) == 2)
            found = requests(at_master)
            assert (found["a"].role, found["a"].forwarded, found["b"].role) == (WATCH, False, "")
            route = next(one.route for one in at_master.got if "id='a'" in repr(one.message))
            master.send(route, 1, Reply("a", True, {}))
            await at_client.until(at_client.bodies)
            await at_console.until(at_console.bodies)


async def test_a_watcher_is_no_worker() -> None:
    """What it says on the control line is dropped and noted, its reports are not let in."""
    keys, at_master, at_worker = Keys(), Ear(), Ear()
    ann = keys.node()
    allowed = {ann.own.public: watcher("ann")}
    with (
        ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master,
        ZmqWorkerMesh("w1", 1, at_worker.log, keys=ann) as worker,
    ):
        master.listen(at_master)
        worker.connect(master.endpoints)
        worker.listen(at_worker)
        worker.publish(1, Bye("a report"))
        worker.send("m1", 1, Bye("hello"))
        await at_master.until(lambda: at_master.details("peer_refused"))
        await at_master.until(lambda: at_master.details("watcher_refused"))
        assert at_master.details("watcher_refused")[0] == "watch:ann: BYE"
        assert not at_master.got


async def test_a_watcher_that_is_taken_off_the_list_stays_one_while_it_is_connected() -> None:
    """Its line lives on; it must not gain by that."""
    keys, at_master = Keys(), Ear()
    ann = keys.node()
    allowed = {ann.own.public: watcher("ann")}
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log, keys=keys.master, allowed=allowed) as master:
        master.listen(at_master)
        with ZmqClientMesh("ann", 1, [master.endpoints.control], keys=ann) as client:
            client.listen(Ear())
            client.send(Request("a", "jobs", {}))
            await at_master.until(lambda: "a" in requests(at_master))
            master.allow({})
            client.send(Request("b", "submit", {}))
            await at_master.until(lambda: "b" in requests(at_master))
            assert requests(at_master)["b"].role == WATCH
