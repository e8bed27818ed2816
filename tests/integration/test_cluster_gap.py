"""Servers hardly notice that another leader takes over: workers go on, and never faster.

What workers hold ahead for that neither keeps a new job waiting nor outlasts a pause.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.bench.bench_cluster import submit_many
from tests.integration.cluster import cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import many_sites
from tests.web.arrivals import never_more_than
from tests.web.server import Hit
from zcrawl.model.spec import Politeness

HOSTS = 20
WATCHED_S = 4.0  # longer than a failover takes, shorter than what workers hold
PACED = Politeness(rate=2.0, concurrency=2, robots=False)


def test_workers_go_on_at_their_pace_while_another_leader_takes_over(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """kill -9 of the leader: in the seconds after it servers get at least half of the requests that
    they got before, and no host gets more than its rate at any time."""
    with (
        many_sites(tmp_path, HOSTS, 500) as sites,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=2, worker__slots=16) as made,
    ):
        submit_many(made, sites.seeds, PACED)
        wait_until(lambda: sum(map(len, sites.starts().values())) > 8 * HOSTS)
        epoch, leader = made.epoch(), made.leader()
        begin = time.monotonic()
        time.sleep(WATCHED_S)
        leader.kill()
        killed = time.monotonic()
        time.sleep(WATCHED_S)
        wait_until(lambda: made.epoch() > epoch)
        request_times = [at for moments in sites.starts().values() for at in moments]
        before = sum(begin < at < killed for at in request_times) / (killed - begin)
        after = sum(killed < at < killed + WATCHED_S for at in request_times) / WATCHED_S
        assert after > 0.5 * before, f"{after:.1f} a second after the kill, {before:.1f} before"
        made.wait_ready(2)
        time.sleep(2.0)
        for host, moments in sites.starts().items():
            never_more_than(PACED.rate, [Hit(at, host, {}, 0) for at in moments])


def test_what_is_held_ahead_keeps_no_new_job_waiting_and_ends_with_a_pause(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """A worker holds 5 s of URLs of a job: a second job on the same hosts starts long before they
    are worked off, and after `pause` nothing of what was held is fetched."""
    with (
        many_sites(tmp_path, 10, 500) as sites,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1, worker__slots=16) as made,
    ):
        submit_many(made, sites.seeds, PACED)
        wait_until(lambda: sum(map(len, sites.starts().values())) > 100)
        submitted = time.monotonic()
        submit_many(made, sites.seeds, PACED, "second")

        def first_pages() -> list[float]:
            every = sites.starts("/p/0").values()
            return [at - submitted for moments in every for at in moments if at > submitted]

        wait_until(lambda: len(first_pages()) >= 10)
        assert statistics.median(first_pages()) < 3.0, first_pages()
        for name in ("many", "second"):
            made.ask("act", {"ref": name, "action": "pause", "run": None})
        paused = time.monotonic()
        time.sleep(4.0)
        late = [at for moments in sites.starts().values() for at in moments if at > paused + 1.5]
        assert late == [], "fetched after the pause"
