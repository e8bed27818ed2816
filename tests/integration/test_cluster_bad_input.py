"""Wrong settings, strange neighbours and broken clocks: each gets a message that names it, and what
can go on goes on.

Real processes on a real Consul and a real MariaDB.
"""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

from tests.integration.cluster import FAST, Cluster, Node, cluster
from tests.integration.crawling import command, wait_until
from tests.servers.consul import ConsulServer, consul_server
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from tests.servers.tcp_proxy import tcp_proxy
from zcrawl.model.spec import Fetch, Politeness

STEADY = Politeness(rate=100.0, concurrency=16, robots=False)
WRONG_TOKEN = "99999999-8888-7777-6666-555555555555"


def ends(node: Node) -> tuple[int, str]:
    """The exit code and the last line of a node that gives up."""
    assert node.process is not None
    code = node.process.wait(60)
    return code, node.text().strip().splitlines()[-1]


# ------------------------------------------------------------ Consul


def test_a_token_without_rights_is_told_with_what_is_missing(
    tmp_path: Path, mysql: Mariadb
) -> None:
    """The master waits and says which rights it needs; one with the right token leads."""
    with (
        consul_server(acl=True) as guarded,
        cluster(tmp_path, guarded.url, mysql, masters=0, workers=0) as made,
    ):
        wrong = made.add_master("m1", consul__token=WRONG_TOKEN)
        wait_until(lambda: "denies access" in wrong.text())
        assert "token 9999…" in wrong.text()
        assert 'session_prefix "" write' in wrong.text()
        assert WRONG_TOKEN not in wrong.text(), "a secret in the log"
        made.values["consul.token"] = guarded.make_token()
        made.config = made.write_config("client", {})[1]
        made.add_master("m2")
        made.add_worker("w1")
        made.wait_ready(1)
        assert made.leader().name == "m2"
        assert wrong.process is not None, "it went on trying"
        assert wrong.process.poll() is None, "it went on trying"


def test_a_master_waits_for_consul_and_for_the_database_and_says_so(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Neither is there when it starts; it leads when they come, the database first."""
    with (
        page_site(tmp_path, 50) as site,
        tcp_proxy(consul.ports["http"]) as to_consul,
        tcp_proxy(mysql.port) as to_mysql,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        to_consul.refuse()
        to_mysql.refuse()
        master = made.add_master(
            "m1",
            consul__address=f"127.0.0.1:{to_consul.port}",
            database__urls=[mysql.url(made.database_name, port=to_mysql.port)],
        )
        wait_until(lambda: "database_away waiting for the database: cannot reach" in master.text())
        to_mysql.accept_again()
        wait_until(lambda: "consul_away" in master.text())
        assert f"127.0.0.1:{to_consul.port} cannot be reached" in master.text()
        to_consul.accept_again()
        wait_until(lambda: "m1 leads in epoch" in master.text())
        made.add_worker("w1")
        made.wait_ready(1)
        _, run = made.submit(site, FAST)
        made.complete(run)


def test_a_stranger_in_our_lock_and_garbage_in_our_key_are_named_and_outlived(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Who holds the lock is told; when it lets go, a master leads; a later write of garbage into
    the key ends no crawl."""
    with (
        page_site(tmp_path, 800) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        key = f"/v1/kv/zcrawl/{made.name}/leader"
        session = consul.put("/v1/session/create", {"LockDelay": "0s"})["ID"]
        assert consul.put(f"{key}?acquire={session}", b"\xff not ours")
        masters = [made.add_master("m1"), made.add_master("m2")]
        for master in masters:
            wait_until(lambda master=master: "which is not a zcrawl master" in master.text())
            assert f"zcrawl/{made.name}/leader is held by session {session}" in master.text()
        assert made.epoch() == 0, "somebody leads without the lock"
        consul.put(f"/v1/session/destroy/{session}")
        made.add_worker("w1")
        made.wait_ready(1)
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 100)
        consul.put(key, b"\x00 garbage \xff")
        made.wait_pages(run, 300)
        made.complete(run)


# ------------------------------------------------------------ the database


def test_a_wrong_password_and_a_missing_database_end_a_master_with_2(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Waiting would not help. The message says what does; `--create-database` is one such thing."""
    with cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made:
        right = mysql.url(made.database_name)
        wrong = made.add_master("m1", database__urls=[right.replace("s3cret", "secret")])
        missing = made.add_master("m2", database__urls=[mysql.url(made.database_name + "x")])
        code, line = ends(wrong)
        assert (code, "store_denied" in line, "zcrawl" in line) == (2, True, True), line
        assert "secret" not in wrong.text(), "a password in the log"
        code, line = ends(missing)
        assert (code, "--create-database" in line, "no_database" in line) == (2, True, True), line
        maker = made.add_master("m3", start=False, database__urls=[right + "x"])
        maker._command.append("--create-database")
        maker.start()
        wait_until(lambda: "m3 leads in epoch 1" in maker.text())
        mysql.drop(made.database_name + "x")


# ------------------------------------------------------------ names, ports, versions, keys


def test_a_second_master_of_the_same_name_is_refused_and_the_first_leads_on(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Its message names the pid of the first, which keeps its epoch."""
    with cluster(tmp_path, consul.url, mysql, masters=1, workers=0) as made:
        first, epoch = made.masters["m1"], made.epoch()
        second = made.add_master("double", start=False)
        del made.masters["double"]
        second._command = ["m1" if word == "double" else word for word in second._command]
        second.start()
        code, line = ends(second)
        assert code == 2
        assert f"another living master is registered as m1: pid {first.pid} on" in line
        assert (made.epoch(), made.leader()) == (epoch, first)
        assert "deposed" not in first.text()


def test_masters_refuse_taken_ports_and_open_addresses_without_keys(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Both name the address; `insecure` is the way to say that it is meant."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        port = taken.getsockname()[1]
        crowded = made.add_master("m1", mesh__control_port=port)
        naked = made.add_master("m2", mesh__bind="0.0.0.0")
        meant = made.add_master("m3", mesh__bind="0.0.0.0", mesh__insecure=True)
        code, line = ends(crowded)
        assert code == 1, line
        assert f"tcp://127.0.0.1:{port}" in line, line
        assert "address_in_use" in line, line
        code, line = ends(naked)
        assert code == 2, line
        assert "insecure = true" in line, line
        assert "insecure_bind" in line, line
        wait_until(lambda: "m3 leads in epoch" in meant.text())


# A master of another protocol version.
OTHER_VERSION = """
import sys
import zcrawl.mesh.messages as messages
messages.PROTOCOL_VERSION = 3
from zcrawl.cli.main import main
main(sys.argv[1:])
"""


def test_worker_and_master_of_different_protocols_name_both(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Nobody loops in silence: the worker ends with a message, the master logs it, a command says
    it too."""
    with cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made:
        master = made.add_master("m1", program=OTHER_VERSION)
        wait_until(lambda: "m1 leads in epoch" in master.text())
        worker = made.add_worker("w1")
        code, line = ends(worker)
        assert code == 2, line
        assert "this worker w1 speaks protocol 2, m1 speaks 3" in line, line
        wait_until(lambda: "this master m1 speaks protocol 3, w1 speaks 2" in master.text())
        done = command("jobs", "--config", tmp_path / "client.toml", cwd=tmp_path)
        assert done.returncode == 1
        assert "[version]" in done.stderr
        assert "speaks protocol 2, m1 speaks 3" in done.stderr


def test_a_cluster_with_keys_lets_in_who_is_listed_and_nobody_else(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """All of it by the commands of the documentation. A worker that is listed later gets in."""

    def new_key(name: str) -> str:
        done = command("keys", "new", tmp_path / f"{name}.key", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def allow(public: str, name: str) -> None:
        done = command(
            *("keys", "allow", public, "--name", name, "--file", tmp_path / "allowed"), cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr

    server, workers_key = new_key("masters"), new_key("w1")
    stranger_key = new_key("w2")
    allow(workers_key, "w1")
    allow(new_key("client"), "client")
    with (
        page_site(tmp_path, 200) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        made.values["mesh.server_key"] = server

        def mine(name: str) -> dict[str, Any]:
            return {"mesh.key_file": str(tmp_path / f"{name}.key")}

        made.config = made.write_config("client", mine("client"))[1]
        for name in ("m1", "m2"):
            made.add_master(
                name,
                mesh__bind="0.0.0.0",
                mesh__advertise="127.0.0.1",
                mesh__allow_file=str(tmp_path / "allowed"),
                **mine("masters"),
            )
        made.add_worker("w1", **mine("w1"))
        stranger = made.add_worker("w2", **mine("w2"))
        made.wait_ready(1)
        _, run = made.submit(site, FAST)
        made.complete(run)
        wait_until(lambda: "key_refused" in stranger.text() and stranger_key in stranger.text())
        wait_until(lambda: f"with the key {stranger_key}" in made.leader().text())
        assert [worker["id"] for worker in made.ask("nodes", {})["workers"]] == ["w1"]
        allow(stranger_key, "w2")
        made.wait_ready(2)


# ------------------------------------------------------------ clocks

# A master whose wall clock is wrong from the start by the hours in its name's place, and moves an
# hour on with SIGUSR1 and back with SIGUSR2.
CLOCK = """
import signal, sys, time
real, shift = time.time, [{hours} * 3600.0]
time.time = lambda: real() + shift[0]
def move(by):
    shift[0] += by
signal.signal(signal.SIGUSR1, lambda *_: move(3600.0))
signal.signal(signal.SIGUSR2, lambda *_: move(-3600.0))
from zcrawl.cli.main import main
main(sys.argv[1:])
"""


def test_masters_with_wrong_clocks_lead_one_after_the_other(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """An hour ahead, an hour behind, and stepping while they lead: the stored leases still end in
    time. The worker that held the host dies with its leader, so only the lease frees the host."""
    with (
        page_site(tmp_path, 1000) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        ahead = made.add_master("m1", program=CLOCK.format(hours=1))
        made.add_worker("w1")
        made.wait_ready(1)
        made.add_master("m2", program=CLOCK.format(hours=-1))
        hasty = Fetch(timeout=3.0, connect_timeout=3.0, read_timeout=3.0)
        _, run = made.submit(site, STEADY, fetch=hasty)
        made.wait_pages(run, 50)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2):
            ahead.signal(number)
            made.wait_more(run, 50)
        epoch = made.epoch()
        made.workers["w1"].kill()
        ahead.kill()
        made.add_worker("w2")
        wait_until(lambda: made.epoch() > epoch)
        made.complete(run)


# ------------------------------------------------------------ any master takes any request


def test_nodes_shows_masters_and_where_consul_and_the_mesh_differ(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """A worker's supervisor sleeps, so Consul misses it; its process goes on, the mesh knows."""
    with cluster(tmp_path, consul.url, mysql, masters=2, workers=2) as made:
        leader = made.leader()
        made.workers["w1"].pause()
        config = tmp_path / "client.toml"

        def differs() -> bool:
            return bool(made.ask("nodes", {})["differences"])

        wait_until(differs)
        done = command("nodes", "--config", config, cwd=tmp_path)
        made.workers["w1"].resume()
        assert done.returncode == 0, done.stderr
        shown = done.stdout + done.stderr
        assert f"leader  {leader.name}, epoch {made.epoch()}" in shown
        assert "w1: present in the mesh, critical in Consul" in shown
        rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
        assert {"m1", "m2", "w1", "w2"} <= rows.keys()
        assert "leader" in rows[leader.name]
        assert "passing" in rows[leader.name]
        (other,) = made.followers()
        assert "follower" in rows[other.name]
        assert str(other.pid) in rows[other.name]
        wait_until(lambda: not differs())
        plain = json.loads(command("nodes", "--json", "--config", config, cwd=tmp_path).stdout)
        assert plain["differences"] == []
        assert len(plain["masters"]) == 2

        def memory_is_known() -> bool:
            return all(master.get("rss_bytes") for master in made.ask("nodes", {})["masters"])

        wait_until(memory_is_known)  # the follower's memory too, by VITALS


def test_a_job_that_is_submitted_through_a_follower_during_a_failover_is_there_once(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Two commands, each of which knows one follower only; the leader is killed as they begin."""
    with (
        page_site(tmp_path, 100) as site,
        cluster(tmp_path, consul.url, mysql, masters=3, workers=1) as made,
    ):
        wait_until(lambda: len(made.ask("masters", {})["masters"]) == 3)
        controls = {
            master["master"]: master["control"] for master in made.ask("masters", {})["masters"]
        }
        leader, followers = made.leader(), made.followers()
        made.leader().kill()
        answers = [submit_through(made, controls[node.name], site.seed) for node in followers]
        assert len({job for job, _ in answers}) == 2
        jobs = made.ask("jobs", {})["jobs"]
        assert sorted(job["job"] for job in jobs) == sorted(job for job, _ in answers)
        for _, run in answers:
            made.wait_done(run)
            made.verify(run, site)
        assert leader.name not in {made.leader().name}


def submit_through(made: Cluster, control: str, seed: str) -> tuple[int, int]:
    name = f"only-{control.rpartition(':')[2]}"
    config, _ = made.write_config(name, {"consul.address": "", "cluster.masters": [control]})
    done = command(
        *("submit", seed, "--name", name, "--no-robots", "--rate", "0", "--json"),
        "--allow-private",
        *("--config", config),
        cwd=made.folder,
    )
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    return int(reply["job"]), int(reply["run"])
