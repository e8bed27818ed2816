"""Control requests through the deaths of those who were asked: what was answered holds.

Real processes on a real Consul and a real MariaDB.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.cluster import FAST, Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import PageSite, page_site
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.submit.read import to_dict

SLOW = Politeness(rate=20.0, concurrency=8, spread=True, robots=False)
DEAD = 4_000
PART = 1_000  # rows that one transaction of a retry queues
SEEDS = 1_000  # in one request


# ---------------------------------------------------------------- retry


def submit_missing_pages(made: Cluster, site: PageSite) -> int:
    """A run of pages that are not there: all of them end dead."""
    spec = JobSpec("missing", politeness=FAST, fetch=Fetch(allow_private=True))
    urls = [f"{site.seed}-missing-{n}" for n in range(DEAD)]
    first = {"spec": to_dict(spec), "mode": "new", "seeds": urls[:SEEDS], "seeding": True}
    run = int(made.ask("submit", first)["run"])
    for at in range(SEEDS, DEAD, SEEDS):
        last = at + SEEDS >= DEAD
        made.ask("add_seeds", {"run": run, "seeds": urls[at : at + SEEDS], "last": last})
    wait_until(lambda: made.counters(run)["failed"] == DEAD, 120)
    return run


@contextlib.contextmanager
def locked_row(made: Cluster, run: int, at: int) -> Iterator[None]:
    """Lock the row of a run, so that every change of it has to wait."""
    with contextlib.closing(made.database.admin(made.database_name)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT seq FROM requests WHERE run = %s ORDER BY seq", (run,))
        (seq,) = cursor.fetchall()[at]
        cursor.execute("BEGIN")
        cursor.execute("SELECT seq FROM requests WHERE seq = %s FOR UPDATE", (seq,))
        cursor.fetchall()
        yield
        connection.rollback()


def test_a_retry_goes_on_with_the_next_leader_where_it_stands(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """kill -9 of the leader after two of four parts: each page is tried exactly once more, and the
    answer counts all of them."""
    with (
        page_site(tmp_path, 1) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=2) as made,
    ):
        run = submit_missing_pages(made, site)
        leader, replies = made.leader(), list[dict[str, Any]]()
        args = {"ref": "missing", "action": "retry"}
        client = threading.Thread(target=lambda: replies.append(made.ask("act", args, 60.0)))
        with locked_row(made, run, 2 * PART + PART // 2):
            client.start()
            stands = "SELECT changed FROM retries"
            wait_until(lambda: made.rows(stands) == [(2 * PART,)], 20)
            leader.kill()
        client.join(60)
        assert [reply["changed"] for reply in replies] == [DEAD]
        wait_until(lambda: made.counters(run)["failed"] == DEAD, 120)
        assert made.rows(stands) == []
        tries = Counter(path for what, _, path in site.requests() if what == "start")
        missing = {path: n for path, n in tries.items() if "-missing-" in path}
        assert len(missing) == DEAD, Counter(missing.values())
        assert set(missing.values()) == {2}, Counter(missing.values())


# ---------------------------------------------------------------- drain


def worker(made: Cluster, name: str) -> dict[str, Any]:
    """What the leader says of a worker; empty if it does not know it."""
    workers = made.ask("nodes", {})["workers"]
    return next((node for node in workers if node["id"] == name), {})


def processes_with_results(made: Cluster, name: str) -> set[int]:
    """Incarnations of a worker that have reported anything."""
    rows = made.rows("SELECT incarnation FROM workers WHERE worker = %s AND watermark > 0", name)
    return {int(incarnation) for (incarnation,) in rows}


def test_a_drain_holds_whatever_dies_until_it_is_ended(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Asked for while the worker's process is dead, kept by the next process, the next leader and a
    node that was killed; ended by `undrain`."""
    with (
        page_site(tmp_path, 3_000) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=2) as made,
    ):
        _, run = made.submit(site, SLOW)
        wait_until(lambda: bool(processes_with_results(made, "w1")))
        node = made.workers["w1"]
        (pid,) = node.worker_pids()
        os.kill(pid, signal.SIGKILL)
        assert made.ask("drain", {"node": "w1"})["changed"] == 1
        wait_until(lambda: worker(made, "w1").get("pid") not in (None, pid))
        before = processes_with_results(made, "w1")

        made.leader().kill()
        assert made.ask("drain", {"node": "w2"})["changed"] == 1, "right after a takeover"
        assert made.ask("undrain", {"node": "w2"})["changed"] == 1
        node.kill()
        node.start()
        pid = worker(made, "w1").get("pid", 0)
        wait_until(lambda: worker(made, "w1").get("pid") not in (None, pid))
        made.wait_more(run, 60)
        assert worker(made, "w1")["state"] in ("draining", "drained")
        assert processes_with_results(made, "w1") == before, "a drained worker got work"

        assert made.ask("undrain", {"node": "w1"})["changed"] == 1
        wait_until(lambda: processes_with_results(made, "w1") != before)
        made.complete(run)


def test_a_node_that_a_person_starts_anew_works_again(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Stopped and started: that is a word, too. The drain is over in the database."""
    with (
        page_site(tmp_path, 400) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made,
    ):
        made.ask("drain", {"node": "w1"})
        _, run = made.submit(site)
        wait_until(lambda: worker(made, "w1")["state"] in ("draining", "drained"))
        time.sleep(2.0)
        assert made.counters(run)["done"] == 0
        node = made.workers["w1"]
        assert node.process is not None, "it stays for undrain"
        assert node.process.poll() is None, "it stays for undrain"
        assert node.stop() == 0
        node.start()
        made.complete(run)
        assert made.rows("SELECT worker FROM drains") == []
