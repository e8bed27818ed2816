"""Keys with roles on a whole cluster: a viewer sees everything and changes nothing, a worker works
under its own name, and neither deposes a leader by what it sends.

Real masters, followers included, on a real Consul and a real MariaDB, with encrypted sockets; the
keys are made and listed by the commands of the documentation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.contract.border_tools import frames
from tests.integration.cluster import Node
from tests.integration.crawling import wait_until
from tests.integration.keyed import Keyed, keyed
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from tests.unit.mesh.test_codec import BODIES
from zcrawl.coord.agents.consul_client import ConsulClient, ConsulSettings
from zcrawl.coord.calls import CallDone, Deregister, PassCheck, Register
from zcrawl.coord.ports import Condition, Member, MemberRole
from zcrawl.errors import RefusedError, UnreachableError
from zcrawl.master.desk import rights
from zcrawl.mesh.messages import Beat, Bye, ClientRequest, MessageKind
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.keys import new_pair
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.readers import topic
from zcrawl.model.spec import Politeness

LOAD_S = 12.0
REGISTER = Register(True, Condition())  # as the leader
BEAT = Beat("m1", 1.0, {})
HEAVY = b"\xdd\x00\xe4\xe1\xc0" + b"\x90" * 15_000_000  # MessagePack: 15 million empty lists
SLOW = Politeness(rate=1.0, concurrency=1, robots=False)
ARGUMENTS: dict[str, Any] = {"ref": "site", "node": "w1", "run": 1}  # enough for any read
CHANGES: dict[str, dict[str, Any]] = {
    "submit": {"spec": {"name": "other"}, "mode": "new", "seeds": []},
    "add_seeds": {"run": 1, "seeds": [], "last": True},
    "act": {"ref": "site", "action": "cancel"},
    "tune": {"ref": "site", "rate": 50},
    "reassign": {"host": "1", "node": "w1"},
    "drain": {"node": "w1"},
    "rebalance": {"epoch": 1},
    "step_down": {"epoch": 1},
}


def test_who_may_watch_sees_everything_and_changes_nothing(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """By the leader and by a follower that forwards; a refusal names the key and what it lacks.
    Who may all is let do it, and one who is removed or unknown is told what to do."""
    with page_site(tmp_path, 200) as site, keyed(tmp_path, consul, mysql) as cluster:
        made = cluster.made
        _, run = made.submit(site, SLOW)
        leader = made.leader().name
        follower = next(name for name in made.masters if name != leader)
        epoch = made.epoch()

        _watches(cluster, leader, follower)
        for master in (leader, follower):
            assert CHANGES.keys() & rights.READS == set()
            for op, answer in cluster.ask_all("ann", master, CHANGES):
                assert isinstance(answer, RefusedError), (master, op)
                assert answer.code == "forbidden", (master, op)
                assert "the key of ann may only watch" in str(answer)
        _commands_are_refused(cluster)
        assert (made.counters(run)["state"], made.epoch()) == ("running", epoch)
        assert [row["name"] for row in made.ask("jobs", {})["jobs"]] == ["site"]
        (worker,) = made.ask("nodes", {})["workers"]
        assert worker["state"] != "draining"

        assert cluster.ask("bob", follower, "role", {}) == {"role": "operator"}
        paused = cluster.ask("bob", follower, "act", {"ref": "site", "action": "pause"})
        assert (paused["state"], paused["changed"]) == ("paused", 1)
        code, text, _ = cluster.run("ann", "job", "site", "--json")
        last = json.loads(text)["last_actions"]
        assert code == 0
        assert [(row["what"], row["by"], row["via"]) for row in last] == [
            ("pause", "bob", follower),
            ("submit new", "bob", last[1]["via"]),
        ]
        _strangers(cluster, leader, follower)


def _watches(cluster: Keyed, leader: str, follower: str) -> None:
    for master in (leader, follower):
        assert cluster.ask("ann", master, "role", {}) == {"role": "viewer"}
        reads = dict.fromkeys(sorted(rights.READS - {"role", "reloaded", "owner"}), ARGUMENTS)
        for op, answer in cluster.ask_all("ann", master, reads):
            assert isinstance(answer, dict), (master, op, answer)
    for args in (("jobs",), ("job", "site"), ("nodes",)):
        code, text, errors = cluster.run("ann", *args, "--json")
        assert code == 0, errors
        assert json.loads(text), errors
    code, text, errors = cluster.run("ann", "console", "--snapshot")
    assert code == 0, errors
    assert leader in text, errors
    assert "site" in text, errors


def _commands_are_refused(cluster: Keyed) -> None:
    """Every command that would change something."""
    (cluster.folder / "job.toml").write_text('name = "mine"\nseeds = ["http://127.0.0.1:9/"]\n')
    for args in (
        *((action, "site") for action in ("pause", "resume", "cancel", "retry", "delete")),
        ("tune", "site", "--rate", 50),
        ("drain", "w1"),
        ("reassign", "http://127.0.0.1:9", "w1"),
        ("step-down",),
        ("submit", "job.toml"),
    ):
        code, _, errors = cluster.run("ann", *args)
        assert code == 1, (args, errors)
        assert "[forbidden]" in errors, (args, errors)
        assert "the key of ann may only watch" in errors, (args, errors)


def _strangers(cluster: Keyed, leader: str, follower: str) -> None:
    """Whom no list names, and who is taken off it while the masters run."""
    masters = [cluster.made.masters[name] for name in (leader, follower)]

    def is_refused(who: str, master: str) -> str:
        with pytest.raises(UnreachableError) as refused:
            cluster.ask(who, master, "jobs", {})
        return str(refused.value)

    for master in (leader, follower):
        text = is_refused("eve", master)
        assert "do not allow this key" in text, text
        assert "zcrawl keys allow" in text, text
        assert cluster.publics["eve"] in text
    read_before = [node.text().count("allow_list_read") for node in masters]
    lines = (cluster.folder / "allowed").read_text().splitlines(keepends=True)
    (cluster.folder / "allowed").write_text("".join(line for line in lines if " ann " not in line))
    wait_until(
        lambda: all(
            node.text().count("allow_list_read") > n
            for node, n in zip(masters, read_before, strict=True)
        )
    )
    for master in (leader, follower):
        assert cluster.publics["ann"] in is_refused("ann", master)
    assert cluster.ask("bob", follower, "jobs", {})["jobs"]


def test_a_worker_key_works_under_its_own_name_and_does_nothing_else(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """It cannot submit, nor look, nor speak for another worker; a worker whose id does not fit its
    key ends and says why, and the crawl of the others is not disturbed."""
    with page_site(tmp_path, 200) as site, keyed(tmp_path, consul, mysql) as cluster:
        made = cluster.made
        _, run = made.submit(site, SLOW)
        leader = made.leader()
        follower = next(name for name in made.masters if name != leader.name)
        epoch, (pid,) = made.epoch(), made.workers["w1"].worker_pids()
        for master in (leader.name, follower):
            for op, answer in cluster.ask_all("w1", master, {**CHANGES, "jobs": {}, "nodes": {}}):
                assert isinstance(answer, RefusedError), (master, op)
                assert answer.code == "forbidden", (master, op)
                assert "the key of w1 is one of a worker" in str(answer)
            assert cluster.ask("w1", master, "masters", {})["masters"]

        double = made.add_worker("w2", **cluster.mine("w1"))
        del made.workers["w2"]
        assert double.process is not None
        assert double.process.wait(60) == 2
        last_line = double.text().splitlines()[-1]
        assert "the worker 'w2' is refused: its key w1" in last_line, last_line
        assert "--id w1" in last_line, last_line
        wait_until(lambda: "name_refused" in leader.text())

        _forges(cluster, leader)
        made.wait_more(run, 3)
        (worker,) = made.ask("nodes", {})["workers"]
        assert (worker["id"], worker["state"]) in {("w1", "idle"), ("w1", "busy")}
        assert (made.epoch(), made.workers["w1"].worker_pids()) == (epoch, [pid])


def _forges(cluster: Keyed, leader: Node) -> None:
    """By hand: an operator's key says BYE for w1, a worker's key speaks as a master and as another
    worker. Each is sent again until it was told: of one key's refusals one a second is."""
    bob, w1 = cluster.raw("bob", leader.name), cluster.raw("w1", leader.name)
    reports = w1.open_reports()
    assert reports.poll(10_000), "a worker's key reports"
    ((incarnation,),) = cluster.made.rows("SELECT incarnation FROM workers")
    forged = {
        "operator bob: BYE": (bob.control, frames(Bye("drained"), "w1", incarnation=incarnation)),
        "worker w1: BEAT on the reports": (reports, frames(BEAT, "m1", epoch=9_999)),
        "worker w1: BEAT on the control": (w1.control, frames(BEAT, "m1", epoch=9_999)),
        "'w9' is refused": (reports, frames(BODIES[1], "w9")),
    }
    for text, (socket, message) in forged.items():
        _until_told(leader, text, socket, message)
    bob.close()
    w1.close()


def _until_told(leader: Node, text: str, socket: zmq.Socket[bytes], message: list[bytes]) -> None:
    def is_told() -> bool:
        socket.send_multipart(message)
        return text in leader.text()

    wait_until(is_told)


def test_a_rogue_leader_in_consul_leads_nobody(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Somebody with access to Consul, but without the masters' key, registers a master as the
    leader and announces the epochs 0, 1 and 2^62 on real sockets with keys of their own. Workers,
    masters and commands see it in Consul, and do not get through its handshake: the leader leads
    on in its epoch, and the crawl goes on."""
    with page_site(tmp_path, 200) as site, keyed(tmp_path, consul, mysql) as cluster:
        made = cluster.made
        _, run = made.submit(site, SLOW)
        leader, epoch, worker = made.leader().name, made.epoch(), made.workers["w1"]
        (pid,) = worker.worker_pids()
        with _rogue(consul.url, made.name) as rogue:
            wait_until(lambda: "m0" in _masters_in_consul(consul, made.name))
            wait_until(lambda: rogue.handshakes > 3)
            made.wait_more(run, 5)
            code, text, errors = cluster.run("bob", "nodes", "--json")
            assert code == 0, errors
            assert json.loads(text)["leader"]["id"] == leader
        assert rogue.heard == []
        assert (made.leader().name, made.epoch()) == (leader, epoch)
        assert worker.worker_pids() == [pid]
        assert "leads in epoch 4611686018427387904" not in worker.text()
        made.wait_more(run, 2)


class _Rogue:
    """What reached a false master."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.handshakes = 0  # that failed


def _masters_in_consul(consul: ConsulServer, cluster: str) -> set[str]:
    rows = consul.get("/v1/health/service/zcrawl-master?passing") or []
    metas = [row["Service"]["Meta"] for row in rows]
    return {meta["id"] for meta in metas if meta["cluster"] == cluster}


@contextlib.contextmanager
def _rogue(consul: str, cluster: str) -> Iterator[_Rogue]:
    """A false master in a thread of its own, until the block ends."""
    rogue, over = _Rogue(), threading.Event()

    async def lead() -> None:
        pair = new_pair()
        keys = MeshKeys(pair, pair.public)
        with ZmqMasterMesh(Endpoints("m0", *["tcp://127.0.0.1:*"] * 3), 1, keys=keys) as mesh:
            mesh.listen(rogue.heard.extend)
            place = mesh.endpoints
            me = Member(MemberRole.MASTER, "m0", cluster, "0.1.0", "h", 1, 1, 0, place, pair.public)
            client = ConsulClient(ConsulSettings(consul), me)
            assert isinstance(await asyncio.to_thread(client.perform, REGISTER), CallDone)
            while not over.is_set():
                await asyncio.to_thread(client.perform, PassCheck(""))
                for epoch in (0, 1, 1 << 62):
                    mesh.publish(epoch, Beat("m0", 1.0, {}))
                rogue.handshakes = mesh.counters["handshake_failed"]
                await asyncio.sleep(0.3)
            await asyncio.to_thread(client.perform, Deregister())

    thread = threading.Thread(target=lambda: asyncio.run(lead()))
    thread.start()
    try:
        yield rogue
    finally:
        over.set()
        thread.join(30)


def test_a_viewers_load_deposes_nobody_and_floods_nobody(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """15 MB frames that would take seconds to decode, 50,000 subscriptions, thousands of requests:
    the leader leads on in its epoch, the crawl goes on, another subscriber hears its beats."""
    with page_site(tmp_path, 400) as site, keyed(tmp_path, consul, mysql) as cluster:
        made = cluster.made
        _, run = made.submit(site, SLOW)
        leader, epoch = made.leader().name, made.epoch()
        ann, bob = cluster.raw("ann", leader), cluster.raw("bob", leader)
        quiet = bob.subscriber(topic(MessageKind.BEAT))
        assert quiet.poll(10_000)
        before = made.counters(run)["done"]
        began = time.monotonic()
        for number in range(10):
            body = (ClientRequest("x", "jobs", {}), BODIES[4], BEAT)[number % 3]
            ann.control.send_multipart([frames(body)[0], HEAVY])
        for number in range(3_000):
            ann.control.send_multipart(frames(ClientRequest(str(number), "nodes", {})))
        loud = ann.subscriber()
        for _ in range(50_000):
            loud.setsockopt(zmq.SUBSCRIBE, topic(MessageKind.BEAT))
            loud.setsockopt(zmq.UNSUBSCRIBE, topic(MessageKind.BEAT))
        heard = 0
        while time.monotonic() - began < LOAD_S:
            if quiet.poll(100):
                quiet.recv_multipart()
                heard += 1
        took_s = time.monotonic() - began
        assert 5 < heard < took_s * 11 + 20, f"{heard} beats in {took_s:.0f} s"
        assert (made.leader().name, made.epoch()) == (leader, epoch)
        assert made.counters(run)["done"] > before
        text = made.masters[leader].text()
        assert "frame_too_large refused a message that is too large: viewer ann: REQUEST of" in text
        assert "request_limited viewer ann sends requests too fast" in text
        assert cluster.ask("bob", leader, "act", {"ref": "site", "action": "pause"})["changed"] == 1
        ann.close()
        bob.close()
