"""`make cluster`: Consul, MariaDB, three masters and four workers on this machine, to play with.

They run until Ctrl-C, in a temporary folder that goes away with them.
"""

from __future__ import annotations

import shlex
import signal
import tempfile
from pathlib import Path

from tests.integration.cluster import Cluster, cluster
from tests.servers.consul import consul_server
from tests.servers.mariadb import mariadb

MASTERS, WORKERS = 3, 4


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="zcrawl-cluster-") as folder:
        print("starting Consul and MariaDB ...", flush=True)
        with consul_server() as consul, mariadb() as database:
            print(f"starting {MASTERS} masters and {WORKERS} workers ...", flush=True)
            with cluster(Path(folder), consul.url, database, MASTERS, WORKERS) as made:
                tell(made, consul.url)
                signal.sigwait({signal.SIGINT, signal.SIGTERM})
                print("stopping")


def tell(made: Cluster, consul: str) -> None:
    config = shlex.quote(str(made.folder / "client.toml"))
    pids = ", ".join(f"{node.name} {node.pid}" for node in made.nodes())
    print(
        f"""
Consul's UI     {consul}/ui
leader          {made.leader().name}
process ids     {pids}
logs            {made.folder}/*.log

In another terminal:

  export ZCRAWL_CONFIG={config}
  .venv/bin/zcrawl nodes
  .venv/bin/zcrawl console
  .venv/bin/zcrawl demo --help              # or serve a site of your own, then:
  .venv/bin/zcrawl submit http://127.0.0.1:PORT/ --allow-private --rate 0 --wait
  .venv/bin/zcrawl jobs
  kill -9 PID                               # any of the above; nodes shows who takes over
  kill -STOP PID; sleep 30; kill -CONT PID  # the old leader wakes up, and is told

Ctrl-C ends all of it.
""",
        flush=True,
    )


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
