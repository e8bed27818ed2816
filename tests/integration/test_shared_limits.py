"""Limits per registered domain and per address as a server sees them: its log, through a cluster.

Each port of the server is a host of its own; half of them are asked for by a name that has to be
looked up first. Real processes on a real Consul and a real MariaDB.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.web.arrivals import never_more_than
from tests.web.server import MisbehavingWeb, WebThread
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.submit.read import to_dict

HOSTS = 8
RATE = 5.0
AT_ONCE = 2


def submit(made: Cluster, name: str, seeds: list[str], politeness: Politeness) -> int:
    fetch = Fetch(allow_private=True)
    spec = JobSpec(name, seeds=tuple(seeds), politeness=politeness, fetch=fetch)
    args = {"spec": to_dict(spec), "mode": "new", "seeds": seeds, "seeding": False}
    return int(made.ask("submit", args)["run"])


def seeds(web: MisbehavingWeb, names: list[str], pages: int, wait_ms: int) -> list[str]:
    """Pages that take their time, each of them once, on every port."""
    return [
        f"http://{names[at % len(names)]}:{port}/slow/{wait_ms + page}"
        for page in range(pages)
        for at, port in enumerate(web.ports)
    ]


@pytest.mark.parametrize(
    ("names", "strict", "loose"),
    [
        (
            ["127.0.0.1", "localhost"],
            Politeness(rate=20.0, address_rate=RATE),
            Politeness(rate=20.0, address_rate=3 * RATE),
        ),
        (
            ["127.0.0.1", "localhost"],
            Politeness(rate=0.0, address_concurrency=AT_ONCE),
            Politeness(rate=0.0, address_concurrency=2 * AT_ONCE),
        ),
        (
            ["127.0.0.1"],
            Politeness(rate=20.0, domain_rate=RATE),
            Politeness(rate=20.0, domain_rate=3 * RATE),
        ),
        (
            ["127.0.0.1"],
            Politeness(rate=0.0, domain_concurrency=AT_ONCE),
            Politeness(rate=0.0, domain_concurrency=2 * AT_ONCE),
        ),
    ],
    ids=["address-rate", "address-concurrency", "domain-rate", "domain-concurrency"],
)
def test_a_killed_leader_breaks_no_shared_limit(
    names: list[str],
    strict: Politeness,
    loose: Politeness,
    tmp_path: Path,
    consul: ConsulServer,
    mysql: Mariadb,
) -> None:
    """Two jobs, three workers, eight hosts of one server, kill -9 of the leader in the middle: the
    server never gets more than the stricter job allows to all of them together."""
    with (
        WebThread(MisbehavingWeb(hosts=HOSTS)) as web,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=3) as made,
    ):
        seed_lists = [seeds(web, names, 4, 100), seeds(web, names, 3, 300)]
        runs = [
            submit(made, "strict", seed_lists[0], strict),
            submit(made, "loose", seed_lists[1], loose),
        ]
        request_count = HOSTS * 8  # robots.txt and seven pages each
        wait_until(lambda: len(web.log) > request_count // 3)
        made.leader().kill()
        for run in runs:
            made.wait_done(run)
            assert made.counters(run)["failed"] == 0
        fetched = {(hit.headers["host"], hit.path) for hit in web.log}
        assert len(fetched) == request_count
        if strict.address_concurrency or strict.domain_concurrency:
            assert web.most_at_once == AT_ONCE, "used in full, and never more"
        else:
            never_more_than(RATE, web.log)


def test_a_killed_leader_breaks_no_hosts_pace_while_its_workers_live(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The workers go on with what they have and are adopted by the next leader: each host is asked
    at the pace of the slower job throughout."""
    with (
        WebThread(MisbehavingWeb(hosts=3)) as web,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=3) as made,
    ):
        runs = [
            submit(made, "slow", seeds(web, ["127.0.0.1"], 9, 20), Politeness(rate=2.0)),
            submit(made, "fast", seeds(web, ["127.0.0.1"], 3, 60), Politeness(rate=20.0)),
        ]
        wait_until(lambda: len(web.log) > 12)
        made.leader().kill()
        for run in runs:
            made.wait_done(run)
        for port in web.ports:
            hits = [hit for hit in web.log if hit.headers["host"].endswith(f":{port}")]
            assert len({hit.path for hit in hits}) == 13
            never_more_than(2.0, hits)
