"""A changed configuration reaches running masters and workers, without a restart, as a whole or
not at all. Masters and workers are real processes on a real Consul and a real MariaDB.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Node, cluster, seconds_until
from tests.integration.crawling import command, wait_until
from tests.integration.keyed import keyed
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.errors import RefusedError, UnreachableError
from zcrawl.model.spec import Politeness

STEADY = Politeness(rate=150.0, concurrency=16, robots=False)
# Each node looks at its file twice a second, and a worker process at its settings once a second.
CROWDED_S = 3.0  # that a crowded machine may take more
SOON_S = 10.0


def slots(made: Cluster) -> list[int]:
    rows = made.ask("nodes", {})["workers"]
    return [row["slots"] for row in rows if row["state"] in ("idle", "busy")]


def reload(made: Cluster, *args: str) -> tuple[int, dict[str, Any]]:
    """Run `zcrawl reload --json`; return its exit code and its answer."""
    done = command(
        "reload", "--json", "--config", made.folder / "client.toml", *args, cwd=Path.cwd()
    )
    return done.returncode, json.loads(done.stdout)


def has_line(node: Node, event: str, text: str) -> bool:
    return any(f" {event} " in line and text in line for line in node.text().splitlines())


def test_new_limits_reach_running_processes(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """After SIGHUP, without a new process: nothing that runs is interrupted. A wrong file changes
    nothing, and the log names its key and its line."""
    with (
        page_site(tmp_path, 2500) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=0) as made,
    ):
        worker = made.add_worker("w", processes=2)
        made.wait_ready(2)
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 100)
        before = worker.worker_pids()
        path, _ = made.write_config("w", {"worker.slots": 5})
        worker.signal(signal.SIGHUP)
        wait_until(lambda: slots(made) == [5, 5])
        assert has_line(worker, "config_changed", "worker.slots: 8 → 5")
        assert worker.worker_pids() == before

        def starts_in_two_seconds() -> int:
            moment = time.monotonic()
            time.sleep(2.0)
            return sum(what == "start" and at > moment for what, at, _ in site.requests())

        made.write_config("w", {"worker.slots": 5, "worker.rate": 10.0})
        worker.signal(signal.SIGHUP)
        wait_until(lambda: has_line(worker, "config_changed", "worker.rate: 0 → 10"))
        time.sleep(1.5)  # each process looks once a second
        assert starts_in_two_seconds() <= 2 * 2 * 10 + 4
        made.write_config("w", {"worker.slots": 5})
        worker.signal(signal.SIGHUP)
        wait_until(lambda: has_line(worker, "config_changed", "worker.rate: 10 → 0"))
        path.write_text("[worker]\nrate = 3.0\nslots = 0\n")
        worker.signal(signal.SIGHUP)
        wait_until(lambda: has_line(worker, "reload_refused", "worker.slots is 0"))
        assert has_line(worker, "reload_refused", "(line 3 of w.toml)")
        made.complete(run)
        assert slots(made) == [5, 5]
        assert worker.stop() == 0


def test_a_changed_file_is_enough_on_masters_and_workers(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Renamed over the old one, or behind a link that is swapped, as in a ConfigMap. Values that
    need a restart are named, and stay."""
    with cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        master = made.add_master("m1", start=False)
        (tmp_path / "m1.toml").rename(tmp_path / "one" / "m1.toml")
        (tmp_path / "..data").symlink_to("one")
        (tmp_path / "m1.toml").symlink_to("..data/m1.toml")
        master.start()
        worker = made.add_worker("w1")
        made.wait_ready(1)

        aside, _ = made.write_config("aside", {"worker.slots": 6})
        text = aside.read_text().replace(str(tmp_path / "aside"), str(tmp_path / "w1"))
        aside.write_text(text)
        aside.replace(tmp_path / "w1.toml")
        assert seconds_until(lambda: slots(made) == [6]) < SOON_S

        old = (tmp_path / "one" / "m1.toml").read_text()
        assert "[cluster]\n" in old
        new = old.replace("[cluster]\n", "[cluster]\nallow_code = true\n")
        new = new.replace("urls = [", 'urls = ["mysql://u:geheim@127.0.0.1:1/x", ')
        (tmp_path / "two" / "m1.toml").write_text(new)
        (tmp_path / "..data_tmp").symlink_to("two")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        line = "cluster.allow_code: false → true"
        assert seconds_until(lambda: has_line(master, "config_changed", line)) < SOON_S
        waits = "database.urls needs a restart; still the old value"
        wait_until(lambda: has_line(master, "config_needs_restart", waits))
        assert "geheim" not in master.text()
        assert [node.process.poll() for node in (master, worker) if node.process] == [None, None]


def test_the_log_level_changes_while_a_node_runs(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Of the supervising process, of its worker processes, and of masters."""
    with (
        page_site(tmp_path, 200) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made,
    ):
        master, worker = made.masters["m1"], made.workers["w1"]
        for node in (master, worker):
            made.write_config(node.name, {"log.level": "error"})
            wait_until(lambda node=node: has_line(node, "config_changed", "info → error"))
        time.sleep(1.5)  # a worker process looks once a second
        before = master.text(), worker.text()
        _, run = made.submit(site)
        made.wait_done(run)
        assert (master.text(), worker.text()) == before
        for node in (master, worker):
            made.write_config(node.name, {"log.level": "info", "worker.slots": 3})
        wait_until(lambda: slots(made) == [3])
        _, run = made.submit(site, name="again")
        made.wait_done(run)
        wait_until(lambda: has_line(master, "run_ended", "again"))


def test_rights_of_jobs_change_on_a_leader(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """`outputs.allow` is given and taken away again; each submission goes by it."""
    with (
        page_site(tmp_path, 5) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made,
    ):
        allowed = tmp_path / "exports"
        allowed.mkdir()
        spec = {"name": "out", "seeds": [site.seed], "fetch": {"allow_private": True}}
        submit = {
            "spec": spec,
            "mode": "update",
            "seeds": [site.seed],
            "seeding": False,
            "output": [str(allowed / "x.jsonl"), "jsonl"],
        }
        with pytest.raises(RefusedError, match="not allowed here"):
            made.ask("submit", submit)
        made.write_config("m1", {"outputs.allow": [f"{allowed}/"]})
        code, reply = reload(made, "--node", "m1")
        (row,) = reply["nodes"]
        assert (code, row["error"]) == (0, "")
        assert has_line(made.masters["m1"], "config_changed", "outputs.allow: [] → [")
        run = int(made.ask("submit", submit)["run"])
        made.wait_done(run)
        wait_until(lambda: (allowed / "x.jsonl").exists())
        made.write_config("m1", {})
        reload(made, "--node", "m1")
        with pytest.raises(RefusedError, match="not allowed here"):
            made.ask("submit", submit)


def test_reload_reaches_every_node_and_tells_what_changed(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Followers too, and each node once, however many processes it has. `--node` is for one node;
    a name that nobody has is refused. One wrong file makes the exit code 1 and changes nothing on
    that node."""
    with cluster(tmp_path, consul.url, mysql, masters=2, workers=1) as made:
        made.add_worker("w", processes=2)
        made.wait_ready(3)
        for node in made.nodes():
            node.pause()
        for node in made.nodes():  # none sees the file before the request
            made.write_config(node.name, {"log.level": "warning"})
        for node in made.nodes():
            node.resume()
        code, reply = reload(made)
        nodes = {(row["kind"], row["node"]) for row in reply["nodes"]}
        names = {(node.kind, node.name) for node in made.nodes()}
        assert (code, nodes, reply["waiting"]) == (0, names, [])
        for node in made.nodes():
            assert has_line(node, "config_changed", "log.level: info → warning")

        (tmp_path / "w.toml").write_text("[worker]\nslots = 0\n")
        code, reply = reload(made, "--node", "w")
        (row,) = reply["nodes"]
        assert (code, row["node"], row["changed"]) == (1, "w", [])
        assert "worker.slots is 0" in row["error"]

        done = command(
            "reload", "--config", tmp_path / "client.toml", "--node", "w9", cwd=Path.cwd()
        )
        assert done.returncode != 0
        assert "no worker 'w9'" in done.stderr

        made.write_config("w", {"worker.slots": 4, "worker.processes": 7})
        done = command(
            "reload", "--config", tmp_path / "client.toml", "--node", "w", cwd=Path.cwd()
        )
        assert done.returncode == 0, done.stderr
        wait_until(lambda: slots(made).count(4) == 2)


def test_a_revoked_key_is_cut_off_within_two_seconds_and_a_viewer_may_not_reload(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The key of a worker that is connected: its messages are refused and it gets no more beats, so
    it starts nothing more. A new connection is refused, too. The other nodes go on."""
    with keyed(tmp_path, consul, mysql) as made:
        code, _, error = made.run("ann", "reload")
        assert code != 0
        assert "may only watch" in error
        code, _, error = made.run("bob", "reload")
        assert (code, error.count("nothing has changed")) == (0, 3), error
        leader = made.made.leader()
        allowed = tmp_path / "allowed"
        lines = allowed.read_text().splitlines(keepends=True)
        kept = [line for line in lines if " w1 " not in line and " ann " not in line]
        assert len(kept) == len(lines) - 2
        aside = tmp_path / "aside"
        aside.write_text("".join(kept))
        aside.replace(allowed)
        public = made.publics["w1"]
        took_s = seconds_until(lambda: has_line(leader, "peer_refused", public))
        refused = "is no longer in the list"
        took_s += seconds_until(lambda: has_line(leader, "frame_refused", refused))
        assert took_s < 2.0 + CROWDED_S
        with pytest.raises(UnreachableError, match="do not allow this key"):
            made.ask("ann", leader.name, "nodes", {})
        gone = ("offline", "lost")
        wait_until(lambda: made.made.ask("nodes", {})["workers"][0]["state"] in gone)
