"""What nodes log, over real sockets: it reaches the masters, and nobody who did not ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.contract.mesh_tools import LOOPBACK, Ear
from zcrawl.mesh.messages import Beat, LogRecord, LogRecords, MessageKind, Snapshot
from zcrawl.mesh.sockets.client import ZmqSubscriber
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.peers import ZmqPeers
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.model.vitals import Vitals

LINES = LogRecords([LogRecord(0.2, "warning", "peer_refused", "10.0.0.9")], 2)
VITALS = Vitals(61_000_000, 2.5)


def lines(ear: Ear) -> list[LogRecords]:
    return [body for body in ear.bodies() if isinstance(body, LogRecords)]


async def _until_heard(ear: Ear, kind: type, say: Callable[[], None]) -> None:
    """Joining takes a moment, and what is said before is lost: it is said again."""
    heard = asyncio.create_task(
        ear.until(lambda: any(isinstance(body, kind) for body in ear.bodies()))
    )
    while not heard.done():
        say()
        await asyncio.wait([heard], timeout=0.05)
    await heard


async def test_a_followers_lines_reach_the_other_masters_and_no_console_or_worker() -> None:
    """The leader tells them on as events, so a console hears each once. So do its vitals."""
    at_leader, at_console, at_worker = Ear(), Ear(), Ear()
    with (
        ZmqMasterMesh(LOOPBACK, 1) as follower,
        ZmqPeers("m2", 1) as leader,
        ZmqSubscriber("console", [MessageKind.SNAPSHOT, MessageKind.EVENT]) as console,
        ZmqWorkerMesh("w1", 1) as worker,
    ):
        follower.listen(Ear())
        leader.follow([follower.endpoints])
        leader.listen(at_leader)
        console.connect("m1", follower.endpoints.events)
        console.listen(at_console)
        worker.connect(follower.endpoints)
        worker.listen(at_worker)

        def say() -> None:
            for body in (LINES, VITALS, Beat("m1", 1.0, {}), Snapshot(PublishedSnapshot("m1", 1))):
                follower.publish(1, body)

        await _until_heard(at_leader, LogRecords, say)
        await _until_heard(at_console, Snapshot, say)
        await _until_heard(at_worker, Beat, say)
        await at_leader.until(lambda: VITALS in at_leader.bodies())
        assert lines(at_leader)[0] == LINES
        assert not lines(at_console)
        assert not lines(at_worker)
        assert VITALS not in at_console.bodies()
        assert VITALS not in at_worker.bodies()


async def test_a_workers_lines_reach_its_masters_even_if_said_before_they_listened() -> None:
    """Its first words are why it did not start."""
    at_master = Ear()
    with ZmqMasterMesh(LOOPBACK, 1) as master, ZmqWorkerMesh("w1", 1) as worker:
        worker.publish(0, LINES)
        worker.connect(master.endpoints)
        worker.listen(Ear())
        master.listen(at_master)
        await at_master.until(lambda: lines(at_master))
        assert lines(at_master) == [LINES]
