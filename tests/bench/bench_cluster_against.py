"""`make bench-cluster-against TREE=../before`: clusters of two checkouts, with keys, in turns.

Each checkout has a master and two workers of its own, with CURVE keys, on one Consul and one
MariaDB; both clusters stay up, and crawls of the same manual alternate between them. So both have
the same servers, the same machine and the same minute. Prints the ratio of CPU time a page (of
master and workers, by /proc) and of the runs' own duration. Everything is done by the commands of
the checkout itself, because older ones speak another protocol. A measurement, never a test.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench_against import MANUALS, REPOSITORY
from tests.bench.measure import Spread, tree
from tests.servers.consul import consul_server
from tests.servers.mariadb import Mariadb, mariadb
from tests.servers.nginx_site import nginx_site

WORKERS = ("w1", "w2")
READY_S = 30.0
JOB = """\
name = "crawl"
seeds = ["{url}"]
[politeness]
rate = 0
concurrency = 32
spread = true
[fetch]
allow_private = true
"""


class KeyedCluster:
    """A master and two workers of one checkout, with keys, in a folder of their own."""

    def __init__(self, code: Path, folder: Path, consul: str, database: Mariadb) -> None:
        self._code, self._folder = code, folder
        self._consul, self._database = consul, database
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {"master": [], "worker": []}

    def start(self) -> None:
        folder = self._folder
        folder.mkdir()
        public = {name: self._new_key(name) for name in ("masters", "client", *WORKERS)}
        allowed = folder / "allowed"
        for name in ("client", *WORKERS):
            self._zcrawl("keys", "allow", public[name], "--name", name, "--file", str(allowed))
        url = self._database.url(self._database.new_database())
        shared = (  # the site is on this machine, so jobs may reach private addresses
            f'[cluster]\nname = "{folder.name}"\nallow_private = true\n'
            f'[consul]\naddress = "{self._consul}"\n'
            f'[database]\nurls = ["{url}"]\n[data]\ndir = "{folder}/data"\n'
            "[worker]\nslots = 32\n"
            f'[mesh]\nbind = "127.0.0.1"\ncontrol_port = 0\nreports_port = 0\nevents_port = 0\n'
            f'server_key = "{public["masters"]}"\n'
        )
        for name in ("masters", "client", *WORKERS):
            text = f'{shared}key_file = "{folder}/{name}.key"\n'
            if name == "masters":
                text += f'allow_file = "{allowed}"\n'
            text = text.replace(f'dir = "{folder}/data"', f'dir = "{folder}/{name}.data"')
            (folder / f"{name}.toml").write_text(text)
        for kind, name in (("master", "masters"), *(("worker", name) for name in WORKERS)):
            self._start_node(kind, name)
        self._wait_ready()

    def stop(self) -> None:
        processes = [process for kind in self._processes.values() for process in kind]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)

    def crawl(self, url: str) -> dict[str, float]:
        """Return the CPU times and the wall time of one crawl, in ms a page."""
        job = self._folder / "job.toml"
        job.write_text(JOB.format(url=url))
        again = ["--again"] if (self._folder / "submitted").exists() else []
        (self._folder / "submitted").touch()
        before = self._cpu_s()
        summary = json.loads(
            self._zcrawl("submit", str(job), *again, "--wait", "--json", *self._client())
        )
        spent = {kind: cpu_s - before[kind] for kind, cpu_s in self._cpu_s().items()}
        seconds = {
            "wall": summary["seconds"],
            "CPU": sum(spent.values()),
            **{f"CPU of {kind}": cpu_s for kind, cpu_s in spent.items()},
        }
        return {what: 1000 * value / summary["pages"] for what, value in seconds.items()}

    # ------------------------------------------------------------ its commands

    def _new_key(self, name: str) -> str:
        return self._zcrawl("keys", "new", str(self._folder / f"{name}.key")).strip()

    def _client(self) -> list[str]:
        return ["--config", str(self._folder / "client.toml")]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self._code)}

    def _zcrawl(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "zcrawl", *words],
            cwd=self._folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise RuntimeError(f"zcrawl {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    def _start_node(self, kind: str, name: str) -> None:
        command = [sys.executable, "-m", "zcrawl", kind, "--id", name]
        command += ["--config", str(self._folder / f"{name}.toml")]
        command += ["--processes", "1"] if kind == "worker" else []
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[kind].append(
                subprocess.Popen(
                    command, cwd=self._folder, env=self._environment(), stdout=log, stderr=log
                )
            )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(RuntimeError):
                nodes = json.loads(self._zcrawl("nodes", "--json", *self._client()))
                if sum(worker["state"] == "idle" for worker in nodes["workers"]) >= len(WORKERS):
                    return
            if time.monotonic() > deadline:
                logs = [path.read_text()[-2000:] for path in self._folder.glob("*.log")]
                raise RuntimeError("the cluster does not come up:\n" + "\n".join(logs))
            time.sleep(0.2)

    def _cpu_s(self) -> dict[str, float]:
        """Return the CPU time of the nodes of each kind and their children until now."""
        return {kind: sum(map(_cpu_s, nodes)) for kind, nodes in self._processes.items()}


def _cpu_s(node: subprocess.Popen[bytes]) -> float:
    ticks = 0
    for pid in tree(node.pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(clusters: dict[str, KeyedCluster]) -> Iterator[None]:
    try:
        for keyed in clusters.values():
            keyed.start()
        yield
    finally:
        for keyed in clusters.values():
            keyed.stop()


def compare(clusters: dict[str, KeyedCluster], url: str, rounds: int) -> None:
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in clusters}
    for keyed in clusters.values():
        keyed.crawl(url)  # warms both up
    for number in range(rounds):
        for name in sorted(clusters, reverse=bool(number % 2)):
            costs[name].append(clusters[name].crawl(url))
    for what in costs["this"][0]:
        that, this = (Spread.of([cost[what] for cost in costs[name]]) for name in ("that", "this"))
        print(f"{what:13} ms a page, with keys  that tree {that.text(3)}  this {this.text(3)}")
        print(
            f"              this : that   median {this.median / that.median:.3f}"
            f"   lowest {this.low / that.low:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="another checkout of zcrawl")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--site", choices=sorted(MANUALS), default="postgres")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as temporary,
        consul_server() as consul,
        mariadb(durable=True) as database,
        nginx_site(MANUALS[arguments.site]) as site,
    ):
        codes = {"that": arguments.tree.resolve(), "this": REPOSITORY}
        clusters = {
            name: KeyedCluster(code, Path(temporary) / f"{name}-tree", consul.url, database)
            for name, code in codes.items()
        }
        with running(clusters):
            compare(clusters, f"{site.url}index.html", arguments.rounds)


if __name__ == "__main__":
    main()
