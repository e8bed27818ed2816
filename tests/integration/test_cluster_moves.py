"""Hosts that move between the workers of a real cluster, and runs of one job steered apart.

Real masters and workers on a real Consul and a real MariaDB; the site's own log is the witness.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.bench.bench_cluster import submit_many
from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import ZCRAWL, wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import ManySites, many_sites, page_site
from tests.web.arrivals import never_more_than
from tests.web.server import Hit
from zcrawl.errors import UnreachableError
from zcrawl.model.spec import Fetch, JobSpec, Placement, Politeness
from zcrawl.submit.read import to_dict

HOSTS = 24
PAGES = 40
PACED = Politeness(rate=4.0, concurrency=1, robots=False)


def command(made: Cluster, *args: object) -> dict[str, Any]:
    """The answer of a command of the CLI, with --json."""
    line = [*ZCRAWL, *map(str, args), "--config", str(made.folder / "client.toml"), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def owners(made: Cluster) -> dict[str, str]:
    """Host → the worker that owns it, as the leader says."""
    rows = made.ask("hosts", {"limit": 500})["rows"]
    return {row["host"]: str(row["owner"]) for row in rows}


def requests_overlap(sites: ManySites) -> dict[str, int]:
    """Host → the most requests that ran there at the same time."""
    running: Counter[str] = Counter()
    most: dict[str, int] = {}
    for line in sites.log.read_text().splitlines():
        what, _, path = line.split(" ", 2)
        host = path.partition(":")[0]
        running[host] += 1 if what == "start" else -1
        most[host] = max(most.get(host, 0), running[host])
    return most


@pytest.mark.parametrize("kill", [False, True], ids=["led on", "leader killed"])
def test_what_a_dry_run_shows_moves_and_no_host_notices(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb, kill: bool
) -> None:
    """A worker with one slot has a third of the hosts. `--dry-run` changes nothing and names the
    moves that `rebalance` makes. No host gets more requests at a time or faster than it allows, and
    each page is there once, also when the leader is killed in the middle of the moves."""
    with (
        many_sites(tmp_path, HOSTS, PAGES, delay_s=0.1) as sites,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=2, worker__slots=16) as made,
    ):
        made.add_worker("w3", worker__slots=1)
        made.wait_ready(3)
        run = submit_many(made, sites.seeds, PACED)
        made.wait_pages(run, 2 * HOSTS)
        before = owners(made)
        shown = command(made, "rebalance", "--dry-run")["moves"]
        assert shown, command(made, "nodes")
        assert {move["from"] for move in shown} == {"w3"}
        assert owners(made) == before, "a dry run moves nothing"
        leader = made.leader()
        moves = command(made, "rebalance")["moves"]
        if kill:
            leader.kill()
        assert [move["host"] for move in moves] == [move["host"] for move in shown]
        goals = {move["host"]: move["to"] for move in moves}

        def all_moved() -> bool:
            try:
                now = owners(made)
            except UnreachableError:
                return False
            return all(now.get(host, to) == to for host, to in goals.items())

        if not kill:
            wait_until(all_moved, 20)
            assert command(made, "rebalance", "--dry-run")["moves"] == []
        made.wait_done(run)
        for host, moments in sites.starts().items():
            never_more_than(PACED.rate, [Hit(at, host, {}, 0) for at in moments])
        assert set(requests_overlap(sites).values()) == {PACED.concurrency}
        _is_exact(made, run, sites)


def _is_exact(made: Cluster, run: int, sites: ManySites) -> None:
    """Each page of each host once in the database, and once in the site's log."""
    urls = Counter(
        bytes(url).decode()
        for (url,) in made.rows("SELECT url FROM requests WHERE run = %s AND state = 1", run)
    )
    assert len(urls) == HOSTS * PAGES
    assert set(urls.values()) == {1}
    counters = made.counters(run)
    assert (counters["done"], counters["pending"], counters["failed"]) == (HOSTS * PAGES, 0, 0)
    assert counters["items"] == HOSTS * PAGES
    starts = sum(map(len, sites.starts().values()))
    assert starts == HOSTS * PAGES, "a page was requested twice"


def test_hosts_go_to_the_worker_that_a_job_prefers_and_no_balance_takes_them_away(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """With one slot it has too much to do, and the other worker nothing: `prefer` decides, until
    the preferred worker is drained."""
    with (
        many_sites(tmp_path, 8, PAGES, delay_s=0.1) as sites,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=1, worker__slots=16) as made,
    ):
        made.add_worker("w2", worker__slots=1, worker__labels=["eu"])
        made.wait_ready(2)
        spec = JobSpec(
            "many",
            seeds=sites.seeds,
            politeness=PACED,
            placement=Placement(prefer=("eu",)),
            fetch=Fetch(allow_private=True),
        )
        args = {"spec": to_dict(spec), "mode": "new", "seeds": list(sites.seeds), "seeding": False}
        run = int(made.ask("submit", args)["run"])
        made.wait_pages(run, 8)
        assert set(owners(made).values()) == {"w2"}
        assert command(made, "rebalance", "--dry-run")["moves"] == []
        assert command(made, "rebalance")["moves"] == []
        assert command(made, "drain", "w2")["changed"] == 1
        wait_until(lambda: set(owners(made).values()) == {"w1"}, 30)
        made.wait_done(run)
        assert made.counters(run)["done"] == 8 * PAGES


def test_two_live_runs_of_a_job_are_steered_apart_and_the_next_leader_knows_it(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """`--run` pauses, tunes and cancels one of two runs of the same hosts; the other one goes on at
    its own pace. All of it holds after a kill -9 of the leader."""
    with (
        page_site(tmp_path, 300) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=2) as made,
    ):
        job, first = made.submit(site, Politeness(rate=20.0, concurrency=2, robots=False))
        reply = command(made, "submit", site.seed, "--name", "site", "--again")
        second = int(reply["run"])
        assert (int(reply["job"]), second) == (job, first + 1)
        for run in (first, second):
            made.wait_pages(run, 5)

        assert command(made, "pause", "site", "--run", first)["run"] == first
        assert command(made, "tune", "site", "--run", second, "--rate", 15)["run"] == second
        time.sleep(2.0)  # what was under way ends
        paused_at = made.counters(first)["done"]
        made.wait_pages(second, made.counters(second)["done"] + 20)
        assert made.counters(first)["done"] == paused_at < site.pages

        made.leader().kill()
        made.wait_ready(2)
        shown = {run: command(made, "job", "site", "--run", run) for run in (first, second)}
        assert [shown[run]["state"] for run in (first, second)] == ["paused", "running"]
        rates = [shown[run]["spec"]["politeness"]["rate"] for run in (first, second)]
        assert rates == [20.0, 15.0]
        made.wait_pages(second, made.counters(second)["done"] + 10)
        assert made.counters(first)["done"] == paused_at

        assert command(made, "cancel", "site", "--run", second)["state"] == "cancelled"
        assert command(made, "resume", "site", "--run", first)["run"] == first
        wait_until(lambda: made.counters(second)["state"] == "cancelled")
        made.wait_done(first)
        made.verify(first, site)
        assert made.counters(second)["done"] < site.pages
