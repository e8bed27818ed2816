"""Whatever happens to Consul and to the database, the crawl goes on with every page exactly once.

Real processes on servers that only these tests use, because they are hurt; `Cluster.verify`
compares the database with the known page set at the end of each test.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer, consul_cluster, consul_server
from tests.servers.mariadb import PASSWORD, USER, Mariadb, find_server, is_mariadb, mariadb
from tests.servers.page_site import page_site
from zcrawl.model.spec import Politeness

CONSUL_PAUSE_S = 60.0


def steady(rate: float) -> Politeness:
    """So slow that the trouble comes in the middle of the crawl."""
    return Politeness(rate=rate, concurrency=16, robots=False)


@pytest.fixture(scope="module")
def own_consul() -> Iterator[ConsulServer]:
    """To be hurt. Each test leaves it answering."""
    with consul_server() as server:
        yield server


@pytest.fixture(scope="module")
def own_mysql() -> Iterator[Mariadb]:
    """To be hurt, and as careful with commits as a server in use. Each test leaves it answering."""
    with mariadb(durable=True) as server:
        yield server


# ------------------------------------------------------------ Consul


def test_a_crawl_goes_on_while_consul_sleeps_for_a_minute(
    tmp_path: Path, own_consul: ConsulServer, mysql: Mariadb
) -> None:
    """The leader leads on under its epoch: without Consul nobody else can have the lock."""
    with (
        page_site(tmp_path, 1200) as site,
        cluster(tmp_path, own_consul.url, mysql, masters=2, workers=1) as made,
    ):
        _, run = made.submit(site, steady(15.0))
        made.wait_pages(run, 50)
        leader, epoch, done = made.leader(), made.epoch(), made.counters(run)["done"]
        own_consul.pause()
        try:
            began = time.monotonic()
            wait_until(lambda: "consul_away" in leader.text())
            time.sleep(CONSUL_PAUSE_S / 2)
            middle = made.counters(run)["done"]
            time.sleep(max(0.0, CONSUL_PAUSE_S - (time.monotonic() - began)))
            end = made.counters(run)["done"]
            assert made.epoch() == epoch, "somebody took over without Consul"
        finally:
            own_consul.resume()
        assert done < middle < end, "the crawl stood still"
        wait_until(lambda: leader.text().count("consul_back") >= 1)
        made.complete(run)


def test_a_restart_of_the_consul_agent_is_not_noticed_by_the_crawl(
    tmp_path: Path, own_consul: ConsulServer, mysql: Mariadb
) -> None:
    """Members are known again afterwards: a leader can still be elected."""
    with (
        page_site(tmp_path, 750) as site,
        cluster(tmp_path, own_consul.url, mysql, masters=2, workers=1) as made,
    ):
        _, run = made.submit(site, steady(75.0))
        made.wait_pages(run, 50)
        own_consul.restart()
        made.wait_more(run, 150)
        leader, epoch = made.leader(), made.epoch()
        leader.kill()
        wait_until(lambda: made.epoch() > epoch)
        made.complete(run)


def test_the_epoch_rises_although_consul_lost_its_data(
    tmp_path: Path, own_consul: ConsulServer, mysql: Mariadb
) -> None:
    """A wiped Consul counts its lock from 1 again; the database keeps the number that counts, also
    for a master that never led."""
    with (
        page_site(tmp_path, 750) as site,
        cluster(tmp_path, own_consul.url, mysql, masters=2, workers=1) as made,
    ):
        _, run = made.submit(site, steady(60.0))
        for _ in range(2):  # so that the old number is above 1
            made.wait_more(run, 25)
            leader, epoch = made.leader(), made.epoch()
            assert leader.stop() == 0
            wait_until(lambda epoch=epoch: made.epoch() > epoch)
            leader.start()
        leader, epoch = made.leader(), made.epoch()
        before = {name: len(node.text()) for name, node in made.masters.items()}
        own_consul.stop()
        own_consul.wipe()
        leader.kill()
        own_consul.start()
        own_consul.wait_ready()
        wait_until(lambda: made.epoch() > epoch)
        leader.start()
        made.complete(run)
        since = "".join(node.text()[before[name] :] for name, node in made.masters.items())
        (index, *_) = [int(number) for number in re.findall(r"holds the lock, index (\d+)", since)]
        assert index < epoch, "Consul's own number did not go back: nothing was shown"


def test_a_new_leader_among_three_consul_servers_stops_no_crawl(
    tmp_path: Path, mysql: Mariadb
) -> None:
    """Each master has an agent of its own; the server that leads the others is killed."""
    with (
        page_site(tmp_path, 750) as site,
        consul_cluster(3) as servers,
        cluster(tmp_path, servers[0].url, mysql, masters=0, workers=0) as made,
    ):
        address = str(servers[0].get("/v1/status/leader"))
        (led,) = [
            consul_server
            for consul_server in servers
            if address.endswith(f":{consul_server.ports['server']}")
        ]
        others = [consul_server for consul_server in servers if consul_server is not led]
        made.values["consul.address"] = others[0].url
        made.config = made.write_config("client", {})[1]
        for name, server in zip(("m1", "m2", "m3"), (led, *others), strict=True):
            made.add_master(name, consul__address=server.url)
        made.add_worker("w1", consul__address=others[1].url)
        made.wait_ready(1)
        _, run = made.submit(site, steady(60.0))
        made.wait_pages(run, 50)
        led.kill()
        wait_until(lambda: others[0].get("/v1/status/leader") not in (None, "", address))
        made.wait_more(run, 150)
        leader, epoch = made.leader(), made.epoch()
        leader.kill()  # and the two that are left can still elect
        wait_until(lambda: made.epoch() > epoch)
        made.complete(run)


# ------------------------------------------------------------ the database


def restart(server: Mariadb) -> None:
    server.restart()


def kill_and_start(server: Mariadb) -> None:
    server.restart(kill=True)


def stay_away_for_20_s(server: Mariadb) -> None:
    server.stop()
    time.sleep(20.0)
    server.start()


def take_no_writes_for_4_s(server: Mariadb) -> None:
    server.set_readonly(True)
    time.sleep(4.0)
    server.set_readonly(False)


def let_nobody_in_for_6_s(server: Mariadb) -> None:
    """All places are taken by others, and our connections are ended."""
    ((most,),) = server.do("SELECT @@max_connections")
    with contextlib.ExitStack() as stack:
        for _ in range(10):  # the least that can be set
            other = pymysql.connect(
                host="127.0.0.1", port=server.port, user=USER, password=PASSWORD
            )
            stack.callback(other.close)
        admin = stack.enter_context(contextlib.closing(server.admin()))
        cursor = stack.enter_context(admin.cursor())
        stack.callback(cursor.execute, f"SET GLOBAL max_connections = {most}")
        cursor.execute("SET GLOBAL max_connections = 10")
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE user = %s AND db LIKE %s",
            [USER, "z%"],
        )
        for (id,) in cursor.fetchall():
            with contextlib.suppress(pymysql.err.MySQLError):  # it ended by itself
                cursor.execute(f"KILL {id}")
        time.sleep(6.0)


@pytest.mark.parametrize(
    ("trouble", "pattern"),
    [
        (restart, "store_store_unavailable|store_commit_unknown"),
        (kill_and_start, "store_store_unavailable|store_commit_unknown"),
        (stay_away_for_20_s, "cannot reach the database|the connection was lost"),
        (take_no_writes_for_4_s, "store_store_readonly"),
        (let_nobody_in_for_6_s, "too_many_connections"),
    ],
)
def test_a_crawl_outlives_trouble_with_the_database(
    trouble: Callable[[Mariadb], None],
    pattern: str,
    tmp_path: Path,
    consul: ConsulServer,
    own_mysql: Mariadb,
) -> None:
    """Nothing that was acked is lost, nothing is there twice, and the leader's log says why it
    waits."""
    with (
        page_site(tmp_path, 750) as site,
        cluster(tmp_path, consul.url, own_mysql, masters=2, workers=1) as made,
    ):
        _, run = made.submit(site, steady(75.0))
        made.wait_pages(run, 75)
        trouble(own_mysql)
        made.complete(run)
        logs = "".join(node.text() for node in made.masters.values())
        assert re.search(pattern, logs), logs[-3000:]


def test_a_crawl_outlives_the_loss_of_the_primary_of_two_databases(
    tmp_path: Path, consul: ConsulServer
) -> None:
    """The primary is killed for good. Its replica has every commit that was answered (the primary
    waits for it), is made the new primary, and the masters move there by themselves."""
    if not is_mariadb(find_server() or "mariadbd"):
        pytest.skip("this one makes its primary wait in MariaDB's words")
    with (
        page_site(tmp_path, 600) as site,
        mariadb() as primary,
        mariadb("--rpl-semi-sync-slave-enabled=1", server_id=2) as replica,
    ):
        replica.replicate_from(primary)
        primary.do(
            "SET GLOBAL rpl_semi_sync_master_enabled = 1",
            "SET GLOBAL rpl_semi_sync_master_timeout = 60000",
            "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        )
        replica.do("STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD")  # which asks for it
        wait_until(lambda: _status(primary, "Rpl_semi_sync_master_clients") == "1")
        with cluster(tmp_path, consul.url, primary, masters=0, workers=0) as made:
            made.values["database.urls"] = [
                primary.url(made.database_name),
                replica.url(made.database_name),
            ]
            _start(made, masters=2, workers=1)
            _, run = made.submit(site, steady(75.0))
            made.wait_pages(run, 100)
            assert _status(primary, "Rpl_semi_sync_master_status") == "ON"
            primary.stop(kill=True)
            time.sleep(1.0)  # the masters see it gone, and no other that takes writes
            _promote(replica)
            made.database = replica
            made.complete(run)


def _start(made: Cluster, masters: int, workers: int) -> None:
    for n in range(1, masters + 1):
        made.add_master(f"m{n}")
    for n in range(1, workers + 1):
        made.add_worker(f"w{n}")
    made.wait_ready(workers)


def _status(server: Mariadb, name: str) -> str:
    ((_, value),) = server.do(f"SHOW GLOBAL STATUS LIKE '{name}'")
    return str(value)


def _promote(replica: Mariadb) -> None:
    """What it received is applied first, then it takes writes: as an operator does it."""
    replica.do("STOP SLAVE IO_THREAD")

    def applied() -> bool:
        (row,) = replica.do(
            "SELECT state FROM information_schema.processlist WHERE user = 'system user' "
            "AND command = 'Slave_SQL'"
        )
        return "has read all relay log" in str(row[0])

    wait_until(applied)
    replica.do("STOP SLAVE", "SET GLOBAL read_only = 0")
