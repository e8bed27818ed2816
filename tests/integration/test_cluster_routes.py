"""Attacks on a crawling cluster with keys: by a key that may only watch, and by a worker's key.

Real processes, encrypted sockets. What the attackers know is what every BEAT tells: the workers'
names and incarnations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from tests.contract.mesh_tools import Claimer, Ear
from tests.integration.keyed import Keyed, keyed
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.mesh.messages import Beat, ClientRequest, LogRecords, MessageKind, Stale
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.client import ZmqSubscriber
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.spec import Politeness
from zcrawl.roles import cluster as roles

PAGES = 300
PACED = Politeness(rate=15.0, concurrency=2, robots=False)
BOGUS_EPOCH = 1 << 40
ATTACK_S = 8.0  # longer than two losses in a row take, and a third of the crawl
AGAIN_S = 0.2


async def _prepare(cluster: Keyed, who: str) -> tuple[list[Endpoints], MeshKeys, dict[str, int]]:
    """The masters, the attacker's keys, and the workers' incarnations, as BEATs tell them."""
    config = cluster.made.write_config(who, cluster.mine(who))[1]
    masters = await roles.find_masters(config)
    keys = roles.client_keys(config)
    assert keys is not None
    ear = Ear()
    watcher = cluster.made.write_config("ann", cluster.mine("ann"))[1]
    with ZmqSubscriber("ann", [MessageKind.BEAT], keys=roles.client_keys(watcher)) as listening:
        for master in masters:
            listening.connect(master.master, master.events)
        listening.listen(ear)
        await ear.until(lambda: any(isinstance(b, Beat) and b.received for b in ear.bodies()))
    beats = [body for body in ear.bodies() if isinstance(body, Beat) and body.received]
    return masters, keys, {name: received[0] for name, received in beats[-1].received.items()}


async def _attack(during: Callable[[], None]) -> None:
    """Again and again, for a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ATTACK_S
    while loop.time() < until:
        during()
        await asyncio.sleep(AGAIN_S)


async def _steal_routes(cluster: Keyed) -> list[bytes]:
    """Claim what a worker's route was once, and whatever else its name gives, at every master;
    returns what was stolen."""
    masters, keys, workers = await _prepare(cluster, "ann")
    guesses = {guess.encode() for name, n in workers.items() for guess in (f"{name}#{n}", name)}
    guesses |= {f"{master.master}>".encode() for master in masters}
    ears: dict[bytes, Ear] = {guess: Ear() for guess in guesses}
    with contextlib.ExitStack() as stack:
        thieves = []
        for guess, ear in ears.items():
            for master in masters:
                thief = stack.enter_context(Claimer(guess, master.control, keys))
                thief.listen(ear)
                thieves.append(thief)
        numbers = iter(range(1_000_000))

        # A question that is answered shows that the thief is let in and has its route.
        def claim_all() -> None:
            for thief in thieves:
                thief.send(ClientRequest(f"t{next(numbers)}", "role", {}))

        await _attack(claim_all)
    stolen = []
    for guess, ear in ears.items():
        kinds = {int(got.message.header.kind) for got in ear.got}
        assert int(MessageKind.REPLY) in kinds, "the attacker's line does work"
        stolen += [guess for kind in kinds if kind != MessageKind.REPLY]
        stolen += [guess for body in ear.bodies() if getattr(body, "data", {}).get("role") is None]
    return stolen


def test_a_key_that_may_only_watch_cuts_no_worker_off_and_reads_nothing(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """It claims the routes of the worker and of the masters: the crawl goes on at its pace, and
    nothing but the answers to its own questions comes to it."""
    with page_site(tmp_path, PAGES) as site, keyed(tmp_path, consul, mysql) as cluster:
        made = cluster.made
        _, run = made.submit(site, PACED)
        made.wait_pages(run, 10)
        before = made.counters(run)["done"]
        stolen = asyncio.run(_steal_routes(cluster))
        assert stolen == []
        assert made.counters(run)["done"] > before + ATTACK_S * PACED.rate / 3, "it went on"
        log = made.leader().text()
        for bad in ("worker_lost", "worker_deaf", "assignment_lost", "duplicate_worker_id"):
            assert bad not in log
        made.complete(run)


async def _speak_of_another_epoch(cluster: Keyed) -> None:
    masters, keys, workers = await _prepare(cluster, "w1")
    name, incarnation = next(iter(workers.items()))
    with ZmqWorkerMesh(name, incarnation + 2, keys=keys) as mesh:
        mesh.listen(Ear())
        for master in masters:
            mesh.connect(master)

        def speak() -> None:
            for master in masters:
                mesh.send(master.master, BOGUS_EPOCH, Stale("stale_epoch"))
            mesh.publish(BOGUS_EPOCH, LogRecords([]))

        await _attack(speak)


def test_a_worker_s_key_deposes_no_leader(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Frames with an epoch that nobody ever had, on both lines, to all masters: the same leader
    leads in the same epoch, and the crawl goes on."""
    with page_site(tmp_path, PAGES) as site, keyed(tmp_path, consul, mysql) as cluster:
        made = cluster.made
        _, run = made.submit(site, PACED)
        made.wait_pages(run, 10)
        leader, epoch, before = made.leader(), made.epoch(), made.counters(run)["done"]
        asyncio.run(_speak_of_another_epoch(cluster))
        assert (made.leader(), made.epoch()) == (leader, epoch)
        assert made.counters(run)["done"] > before + ATTACK_S * PACED.rate / 3, "it went on"
        checks = leader.text().count("higher_epoch_heard")
        assert 0 < checks <= ATTACK_S + 2, "the database is asked, at most once a second"
        assert "step_down" not in leader.text()
        made.complete(run)
