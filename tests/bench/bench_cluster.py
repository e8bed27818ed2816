"""`make bench-cluster`: how fast a cluster fails over, what Consul and MariaDB cost, what a
follower's forward adds, how long servers are asked for nothing while another leader takes over.

Failover: a leader under load gets a signal; the time until another leader's first assignment is
taken from that leader's log. Throughput: the same crawl of the PostgreSQL manual, in turns, on the
embedded form and on the cluster, by the run's own clock. Gap: 60 hosts at 2 a second, two workers,
kill -9 of the leader again and again; the server's log tells the longest pause and whether any host
was asked too soon. BEFORE has what the same measurement gave before workers held URLs ahead.
`--keys` does all of it with encrypted sockets and a key for each node. A measurement, never a test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.measure import Spread
from tests.integration.cluster import Cluster, Node, cluster
from tests.integration.crawling import ZCRAWL, wait_until
from tests.servers.consul import consul_server
from tests.servers.mariadb import Mariadb, mariadb
from tests.servers.nginx_site import nginx_site
from tests.servers.page_site import many_sites, page_site
from tests.servers.reference_set import POSTGRES_MANUAL
from zcrawl.mesh.roles import KeyRole
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.keys import AllowList, new_pair, write_key_file
from zcrawl.model.spec import Fetch, JobSpec, OutputSpec, Politeness
from zcrawl.roles import cluster as roles
from zcrawl.roles.client import MeshClient
from zcrawl.submit.read import to_dict

PARTS = ["failover", "gap", "throughput", "forward"]
PAGES = 200_000  # more than a series of trials can fetch
LOAD = Politeness(rate=200.0, concurrency=32, robots=False, spread=True)
SETTLE_S = 2.0
HOSTS = 60
PACED = Politeness(rate=2.0, concurrency=2, robots=False)
WATCHED_S = 8.0  # before and after each kill
BEFORE = "2.1 s, at most 2.8 s (two idle cores)"
CRAWL = Politeness(rate=0.0, concurrency=32, spread=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10, help="of each kind of failover")
    parser.add_argument("--rounds", type=int, default=5, help="of each crawl")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--keys", action="store_true", help="encrypted, with a key for each node")
    options = parser.parse_args()
    parts = [options.only] if options.only else PARTS
    with consul_server() as consul, mariadb(durable=True) as database:
        with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as folder:
            if "failover" in parts:
                failover(Path(folder), consul.url, database, options.trials, options.keys)
        with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as folder:
            if "gap" in parts:
                gap(Path(folder), consul.url, database, options.trials, options.keys)
        with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as folder:
            if "throughput" in parts:
                throughput(Path(folder), consul.url, database, options.rounds, options.keys)
        with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as folder:
            if "forward" in parts:
                forward(Path(folder), consul.url, database, options.keys)


@contextlib.contextmanager
def nodes(
    folder: Path,
    consul: str,
    database: Mariadb,
    masters: int,
    workers: int,
    *,
    keys: bool,
    **changes: Any,
) -> Iterator[Cluster]:
    """A cluster; with keys each worker and the client has its own, with one role."""
    if not keys:
        with cluster(folder, consul, database, masters, workers, **changes) as made:
            yield made
        return
    names = {f"w{n}": KeyRole.WORKER for n in range(1, workers + 1)} | {"client": KeyRole.OPERATOR}
    allowed, pairs = AllowList(folder / "allowed"), {}
    for name in ("masters", *names):
        pairs[name] = new_pair()
        write_key_file(folder / f"{name}.key", pairs[name])
    for name, role in names.items():
        allowed.add(pairs[name].public, name, [role])
    with cluster(folder, consul, database, 0, 0, **changes) as made:
        made.values["mesh.server_key"] = pairs["masters"].public
        client = {"mesh.key_file": str(folder / "client.key")}
        made.config = made.write_config("client", client)[1]
        key_file, allow_file = str(folder / "masters.key"), str(folder / "allowed")
        for n in range(1, masters + 1):
            made.add_master(f"m{n}", mesh__key_file=key_file, mesh__allow_file=allow_file)
        for n in range(1, workers + 1):
            made.add_worker(f"w{n}", mesh__key_file=str(folder / f"w{n}.key"))
        made.wait_ready(workers)
        yield made


# ---------------------------------------------------------------- failover


def failover(folder: Path, consul: str, database: Mariadb, trials: int, keys: bool) -> None:
    with page_site(folder, PAGES) as site, nodes(folder, consul, database, 3, 2, keys=keys) as made:
        made.submit(site, LOAD, output=OutputSpec())
        for name in ("SIGTERM", "SIGKILL", "SIGSTOP"):
            took = [one_failover(made, signal.Signals[name]) for _ in range(trials)]
            print(
                f"failover after {name:8} until the first assignment: "
                f"{Spread.of(took).text(2)} s over {trials} trials",
                flush=True,
            )


def one_failover(made: Cluster, how: signal.Signals) -> float:
    time.sleep(SETTLE_S)
    leader = made.leader()
    others = [node for node in made.masters.values() if node is not leader]
    seen = {node.name: len(first_assignments(node)) for node in others}
    began = time.time()
    leader.signal(how)

    def taken() -> bool:
        return any(len(first_assignments(node)) > seen[node.name] for node in others)

    wait_until(taken)
    took = min(
        moment - began for node in others for moment in first_assignments(node)[seen[node.name] :]
    )
    leader.signal(signal.SIGCONT)
    if how is not signal.SIGSTOP:
        leader.kill()
        leader.start()
    made.wait_ready(2)
    return took


def first_assignments(node: Node) -> list[float]:
    moments = re.findall(r"^(\S+) \S+ first_assignment ", node.text(), re.MULTILINE)
    return [datetime.datetime.fromisoformat(moment).timestamp() for moment in moments]


# ---------------------------------------------------------------- the gap at the servers


def gap(folder: Path, consul: str, database: Mariadb, trials: int, keys: bool) -> None:
    with (
        many_sites(folder, HOSTS, 5_000) as sites,
        nodes(folder, consul, database, 3, 2, keys=keys, worker__slots=32) as made,
    ):
        submit_many(made, sites.seeds, PACED)
        time.sleep(10 * SETTLE_S)
        calm, gaps = [], []
        for _ in range(trials):
            begin = time.monotonic()
            time.sleep(WATCHED_S)
            killed = time.monotonic()
            leader = made.leader()
            leader.kill()
            time.sleep(WATCHED_S)
            calm.append(sites.longest_gap(begin, killed))
            gaps.append(sites.longest_gap(killed, killed + WATCHED_S))
            leader.start()
            made.wait_ready(2)
        starts = sites.starts()
    early = max(requests_too_early(moments, PACED.rate) for moments in starts.values())
    print(
        f"gap of fetches at {HOSTS} hosts with {PACED.rate:g} a second, two workers, kill -9 of "
        f"the leader, {trials} trials\n"
        f"  before  {BEFORE}\n"
        f"  now     {Spread.of(gaps).text(2)} s, at most {max(gaps):.2f} s\n"
        f"  without a failover {Spread.of(calm).text(2)} s\n"
        f"  requests beyond the pace of a host, in any window: {early:.2f} (1: the pace is broken; "
        "less: some were noted late)",
        flush=True,
    )


def requests_too_early(moments: list[float], rate: float) -> float:
    """By how many requests the worst window of any length is beyond what the rate allows."""
    worst = least = 0.0  # of n - rate * t, over the starts so far
    for n, at in enumerate(moments):
        beyond = n - rate * (at - moments[0])
        worst, least = max(worst, beyond - least), min(least, beyond)
    return worst


def submit_many(
    made: Cluster, seeds: tuple[str, ...], politeness: Politeness, name: str = "many"
) -> int:
    """One job with a seed on each host; its run."""
    spec = JobSpec(name, seeds=seeds, politeness=politeness, fetch=Fetch(allow_private=True))
    args = {"spec": to_dict(spec), "mode": "new", "seeds": list(seeds), "seeding": False}
    return int(made.ask("submit", args)["run"])


# ---------------------------------------------------------------- throughput


def throughput(folder: Path, consul: str, database: Mariadb, rounds: int, keys: bool) -> None:
    rates: dict[str, list[float]] = {"embedded": [], "cluster": []}
    with (
        nginx_site(POSTGRES_MANUAL.parent) as site,
        nodes(folder, consul, database, 1, 2, keys=keys, worker__slots=32) as made,
    ):
        url = site.url + POSTGRES_MANUAL.name
        for number in range(rounds):
            rates["embedded"].append(embedded_crawl(url, folder / f"e{number}"))
            rates["cluster"].append(cluster_crawl(made, url, f"manual-{number}"))
    for name, speeds in rates.items():
        print(f"{name:9} {Spread.of(speeds).text()} pages/s over {rounds} crawls, 2 workers")
    ratio = statistics.median(rates["cluster"]) / statistics.median(rates["embedded"])
    print(f"cluster / embedded: {ratio:.2f}", flush=True)


def embedded_crawl(url: str, folder: Path) -> float:
    folder.mkdir()
    command = [*ZCRAWL, "crawl", url, "--rate", "0", "--concurrency", "32", "--workers", "2"]
    command += ["--data", str(folder / "data"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return float(json.loads(done.stdout.splitlines()[-1])["pages_per_second"])


def cluster_crawl(made: Cluster, url: str, name: str) -> float:
    spec = JobSpec(name, seeds=(url,), politeness=CRAWL, fetch=Fetch(allow_private=True))
    args = {"spec": to_dict(spec), "mode": "new", "seeds": [url], "seeding": False}
    reply = made.ask("submit", args)
    made.wait_done(reply["run"])
    return float(made.job(reply["job"])["pages_per_second"])


# ---------------------------------------------------------------- a follower's forward


def forward(folder: Path, consul: str, database: Mariadb, keys: bool, asks: int = 300) -> None:
    with nodes(folder, consul, database, 2, 1, keys=keys) as made:
        leader = made.leader().name
        masters = asyncio.run(roles.find_masters(made.config))
        own = roles.client_keys(made.config)
        direct = [master.control for master in masters if master.master == leader]
        other = [master.control for master in masters if master.master != leader]
        took: dict[str, list[float]] = {"leader": [], "follower": []}
        for _ in range(asks // 50):  # in turns
            took["leader"] += asyncio.run(round_trips(direct, own, 50))
            took["follower"] += asyncio.run(round_trips(other, own, 50))
    medians = {name: statistics.median(times) * 1000 for name, times in took.items()}
    print(
        f"a request at the leader {medians['leader']:.2f} ms, at a follower "
        f"{medians['follower']:.2f} ms: the forward adds "
        f"{medians['follower'] - medians['leader']:.2f} ms (medians of {asks})",
        flush=True,
    )


async def round_trips(controls: list[str], keys: MeshKeys | None, asks: int) -> list[float]:
    async with MeshClient(controls, keys=keys) as client:
        await client.ask("nodes", {})
        took = []
        for _ in range(asks):
            began = time.perf_counter()
            reply: dict[str, Any] = await client.ask("nodes", {})
            took.append(time.perf_counter() - began)
            assert "stale" not in reply
        return took


if __name__ == "__main__":
    main()
