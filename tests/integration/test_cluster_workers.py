"""Whatever happens to workers, the crawl goes on with every page exactly once.

Real processes on a real Consul and a real MariaDB; `Cluster.verify` compares the database with the
known page set.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import zmq

from tests.integration.cluster import FAST, Cluster, Node, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.mesh.codec import decode
from zcrawl.mesh.messages import BadBody, MessageKind, Snapshot
from zcrawl.mesh.sockets.readers import topic
from zcrawl.model.spec import Politeness

STEADY = Politeness(rate=120.0, concurrency=16, spread=True, robots=False)
NOBODY = "127.0.0.1:9"  # a Consul that is away


def test_workers_that_die_and_leave_at_random_lose_nothing(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Processes are killed, nodes are stopped and come back. A stopped node exits with 0."""
    chance = random.Random(20)
    with (
        page_site(tmp_path, 1400) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=2) as made,
    ):
        made.add_worker("w3", processes=2)
        made.wait_ready(4)
        _, run = made.submit(site, STEADY)
        killed = 0
        for turn in range(6):
            made.wait_pages(run, min(site.pages, 100 + 150 * turn))
            node = chance.choice(list(made.workers.values()))
            if turn % 2:
                assert node.stop() == 0, node.text()[-2000:]
                node.start()
            else:
                for pid in node.worker_pids()[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        made.complete(run)
        assert killed >= 3


def test_a_worker_node_that_was_killed_with_the_leader_goes_on_when_it_is_back(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """It tells the new leader that its last life is over, so the host that only it had rests no
    half minute for requests that nobody runs."""
    with (
        page_site(tmp_path, 1500) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=1) as made,
    ):
        _, run = made.submit(site, Politeness(rate=100.0, concurrency=8, robots=False))
        made.wait_pages(run, 100)
        node, leader = made.workers["w1"], made.leader()
        node.kill()
        leader.kill()
        before = made.counters(run)["done"]
        node.start()
        # Without its word: until the lease's end and the longest request's, 30 s and more.
        wait_until(lambda: made.counters(run)["done"] >= before + 50, 25.0)
        leader.start()
        made.complete(run)


def test_results_of_a_worker_that_slept_are_late_and_change_nothing(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Its pages went to another worker meanwhile; what it then reports is counted as duplicate."""
    with (
        page_site(tmp_path, 450, delay_s=1.0) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=2) as made,
    ):
        _, run = made.submit(site, FAST)
        made.wait_pages(run, 60)
        (pid,) = made.workers["w1"].worker_pids()
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(20.0)
            assert made.counters(run)["state"] == "running", "it is over before anything was late"
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: _late_results(made) > 0)
        made.complete(run)
        assert "worker_lost w1" in made.leader().text()
        assert max(site.fetched().values()) == 2, "nothing was fetched twice: nothing was late"


def _late_results(made: Cluster) -> int:
    """As the leader counts them, from the SNAPSHOT that it publishes every second."""
    (master,) = made.ask("masters", {})["masters"]
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SUBSCRIBE, topic(MessageKind.SNAPSHOT))
        socket.connect(master["events"])
        if not socket.poll(5_000):
            return 0
        message = decode(socket.recv_multipart())
    assert not isinstance(message, BadBody)
    assert isinstance(message.body, Snapshot)
    counters = message.body.data.counters
    return int(counters.get("results_duplicate", 0)) + int(counters.get("results_dropped", 0))


# ------------------------------------------------------------ two of one name


def test_a_second_node_of_the_same_name_is_refused_and_the_first_goes_on(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Before it registers or fetches anything. Its message names the one that was there before."""
    with (
        page_site(tmp_path, 1500) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made,
    ):
        first = made.workers["w1"]
        (pid,) = first.worker_pids()
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 50)
        second = _double(made, first)
        assert second.process is not None
        assert second.process.wait(40) == 2
        assert f"another living worker is registered as w1: pid {first.pid} on" in second.text()
        made.complete(run)
        assert first.worker_pids() == [pid], "the first one was disturbed"
        assert "duplicate_worker_id" not in made.leader().text()


def test_the_leader_refuses_a_second_process_of_the_same_name_without_consul(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Workers that know the masters from their configuration: both hear who has the name."""
    with (
        page_site(tmp_path, 2400) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=0) as made,
    ):
        (master,) = made.ask("masters", {})["masters"]
        plain: dict[str, Any] = {"consul__address": "", "cluster__masters": [master["control"]]}
        first = made.add_worker("w1", **plain)
        made.wait_ready(1)
        (pid,) = first.worker_pids()
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 50)
        second = _double(made, first, **plain)
        assert second.process is not None
        assert second.process.wait(60) == 2
        message = f"another live process has the id w1: pid {pid} on {os.uname().nodename}"
        assert message in second.text().splitlines()[-1]
        made.complete(run)
        assert first.worker_pids() == [pid], "the first one was disturbed"
        assert f"is refused, pid {pid} on" in made.leader().text()


def _double(made: Cluster, first: Node, **changes: Any) -> Node:
    """Another node of the same id, with a data folder of its own; not among `made.workers`."""
    second = made.add_worker("double", start=False, **changes)
    del made.workers["double"]
    command = [first.name if word == "double" else word for word in second._command]
    second._command = command
    second.start()
    return second


# ------------------------------------------------------------ how workers find masters


def test_a_worker_that_starts_without_consul_remembers_the_masters(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """From the file of its last life. One that has no such file waits, and says for what."""
    with (
        page_site(tmp_path, 300) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=1) as made,
    ):
        assert made.workers["w1"].stop() == 0
        made.add_worker("w1", consul__address=NOBODY)
        stranger = made.add_worker("w2", consul__address=NOBODY)
        _, run = made.submit(site, FAST)
        made.complete(run)
        assert "consul_away" in stranger.text()
        assert NOBODY in stranger.text()
        states = {worker["id"]: worker["state"] for worker in made.ask("nodes", {})["workers"]}
        assert states["w1"] in ("idle", "busy")
        assert "w2" not in states


def test_workers_without_consul_follow_the_masters_from_one_to_the_next(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """With the address of one master, workers learn all masters; that one may then die."""
    with (
        page_site(tmp_path, 1200) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=0) as made,
    ):
        leader = made.leader()
        wait_until(lambda: len(made.ask("masters", {})["masters"]) == 2)
        masters = {
            master["master"]: master["control"] for master in made.ask("masters", {})["masters"]
        }
        plain: dict[str, Any] = {"consul__address": "", "cluster__masters": [masters[leader.name]]}
        made.add_worker("w1", **plain)
        made.wait_ready(1)
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 100)
        wait_until(lambda: len(json.loads((tmp_path / "w1" / "masters.json").read_text())) == 2)
        epoch = made.epoch()
        leader.kill()
        wait_until(lambda: made.epoch() > epoch)
        made.complete(run)


def test_a_drained_worker_gets_nothing_new_and_stays(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """`zcrawl drain`, through any master: it finishes what it has, and waits to be undrained."""
    with (
        page_site(tmp_path, 250, delay_s=0.3) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=2) as made,
    ):
        _, run = made.submit(site, FAST)
        made.wait_pages(run, 40)
        made.ask("drain", {"node": "w1"})
        made.complete(run)
        assert max(site.fetched().values()) == 1, "a drain costs no page twice"
        reply = made.ask("nodes", {})
        (view,) = [worker for worker in reply["workers"] if worker["id"] == "w1"]
        assert (view["state"], view["running"], view["waiting"]) == ("drained", 0, 0)
        assert reply["drained"] == ["w1"]
        drained = made.workers["w1"].process
        assert drained is not None
        assert drained.poll() is None
        wait_until(lambda: made.ask("nodes", {})["differences"] == [])
