"""Whatever happens to the leader, the crawl goes on with every page exactly once.

Real processes on a real Consul and a real MariaDB; `Cluster.verify` compares the database with the
known page set.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cluster import FAST, Cluster, Node, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.model.spec import Fetch, Politeness

PAGES = 750
STEADY = Politeness(rate=75.0, concurrency=16, robots=False)  # a crawl takes 10 s


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_leader_that_ends_is_replaced_and_nothing_is_lost(
    how: signal.Signals, tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """kill -9 and SIGTERM: another leads in a new epoch; the old one may come back."""
    with page_site(tmp_path, PAGES) as site, cluster(tmp_path, consul.url, mysql) as made:
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 100)
        for _ in range(2):
            leader, epoch = made.leader(), made.epoch()
            leader.signal(how)
            assert leader.process is not None
            code = leader.process.wait(20)
            assert code == (0 if how is signal.SIGTERM else -how)
            wait_until(lambda epoch=epoch: made.epoch() > epoch)
            leader.start()
            made.wait_more(run, 100)
        made.complete(run)
        assert len(made.epochs()) >= 3


def test_a_leader_that_slept_wakes_up_and_does_no_harm(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """SIGSTOP for 30 s, then SIGCONT: it finds out, follows, and can lead again later."""
    slow = Politeness(rate=30.0, concurrency=16, robots=False)  # so that a crawl takes 50 s
    with page_site(tmp_path, 1500) as site, cluster(tmp_path, consul.url, mysql) as made:
        _, run = made.submit(site, slow)
        made.wait_pages(run, 50)
        sleeper, epoch = made.leader(), made.epoch()
        sleeper.pause()
        asleep = time.monotonic()
        wait_until(lambda: made.epoch() > epoch)
        made.wait_more(run, 50)
        time.sleep(max(0.0, 30.0 - (time.monotonic() - asleep)))
        sleeper.resume()
        wait_until(lambda: "deposed" in sleeper.text() or "step_down" in sleeper.text())
        made.wait_more(run, 50)
        assert made.leader() is not sleeper
        made.complete(run)


def test_a_leader_that_slept_inside_a_transaction_holds_nobody_up(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Its row lock would block the takeover: the new leader ends that connection."""
    with page_site(tmp_path, PAGES) as site, cluster(tmp_path, consul.url, mysql) as made:
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 50)
        leader, epoch = made.leader(), made.epoch()
        pause_inside_transaction(made, leader, run)
        wait_until(lambda: made.epoch() > epoch, 30.0)
        leader.resume()
        made.complete(run)


def pause_inside_transaction(made: Cluster, leader: Node, run: int) -> None:
    """Its transaction waits for a row that we hold; it gets the row when it sleeps already."""
    waits = "t.trx_state = 'LOCK WAIT'"
    sleeps = "p.command = 'Sleep' AND t.trx_rows_locked > 0"
    with contextlib.closing(made.database.admin(made.database_name)) as ours:
        cursor = ours.cursor()
        cursor.execute("BEGIN")
        cursor.execute("SELECT id FROM runs WHERE id = %s FOR UPDATE", [run])
        wait_until(lambda: transactions(made, waits) > 0)
        leader.pause()
        ours.rollback()
    wait_until(lambda: transactions(made, sleeps) > 0)


def transactions(made: Cluster, which: str) -> int:
    time.sleep(0.15)  # InnoDB shows the picture of before to who asks again within 0.1 s
    sql = (
        "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN "
        "information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
        f"WHERE p.db = %s AND {which}"
    )
    return int(made.rows(sql, made.database_name)[0][0])


def test_a_leader_whose_loop_stands_still_for_5_s_loses_the_lock_and_nothing_else(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The Consul thread lives on, but passes the check only while the loop turns."""
    with (
        page_site(tmp_path, 1000) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        for name in ("m1", "m2"):
            made.add_master(name, program=STALLING)
        made.add_worker("w1")
        made.wait_ready(1)
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 50)
        leader, epoch = made.leader(), made.epoch()
        leader.signal(signal.SIGUSR1)
        wait_until(lambda: made.epoch() > epoch)
        wait_until(lambda: "deposed" in leader.text() or "step_down" in leader.text())
        made.complete(run)


# A master as the command starts it, whose loop stands still for 5 s when it gets SIGUSR1.
STALLING = """
import signal, sys, time
from zcrawl.cli.main import main
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(5.0))
main(sys.argv[1:])
"""


def test_all_masters_die_and_the_crawl_goes_on_when_they_are_back(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Workers keep what they have; what was answered is there; nothing is fetched for ever."""
    with page_site(tmp_path, PAGES) as site, cluster(tmp_path, consul.url, mysql) as made:
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 150)
        for node in made.masters.values():
            node.kill()
        time.sleep(3.0)
        for node in made.masters.values():
            node.start()
        made.complete(run)


def test_a_rolling_restart_is_not_noticed(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """All masters and workers, one after the other, as an upgrade does it."""
    with page_site(tmp_path, 1500) as site, cluster(tmp_path, consul.url, mysql) as made:
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 50)
        for node in made.nodes():
            assert node.stop() == 0, node.text()[-2000:]
            node.start()
            made.wait_ready(2)
        made.complete(run)


def test_the_new_leader_repeats_no_fetch_that_a_live_worker_holds(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Every page takes 4 s: requests are in flight all through the takeover, each just once."""
    with (
        page_site(tmp_path, 64, delay_s=4.0) as site,
        cluster(tmp_path, consul.url, mysql, workers=2) as made,
    ):
        _, run = made.submit(site, FAST)
        made.wait_pages(run, 5)
        made.leader().kill()
        made.complete(run)
        twice = {path: n for path, n in site.fetched().items() if n > 1}
        assert twice == {}, "fetched again"


def test_what_living_workers_hold_is_not_fetched_again_when_every_lease_is_over(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """All masters die, the stored lease ends, and one of two workers greets the next leader a
    second late: the pages that it has fetched meanwhile are not given to the other one."""
    with (
        page_site(tmp_path, 64, delay_s=3.0) as site,
        cluster(tmp_path, consul.url, mysql, workers=2) as made,
    ):
        _, run = made.submit(site, FAST, fetch=Fetch(timeout=10.0))
        made.wait_pages(run, 5)
        for node in made.masters.values():
            node.kill()
        epoch, late = made.epoch(), made.workers["w2"].worker_pids()
        time.sleep(4.0)  # whatever had started has ended
        made.rows("UPDATE leaders SET lease_until = lease_until - 600")
        for pid in late:
            os.kill(pid, signal.SIGSTOP)
        for node in made.masters.values():
            node.start()
        wait_until(lambda: made.epoch() > epoch)
        time.sleep(1.0)
        for pid in late:
            os.kill(pid, signal.SIGCONT)
        made.complete(run)
        twice = {path: n for path, n in site.fetched().items() if n > 1}
        assert twice == {}, "fetched again"
