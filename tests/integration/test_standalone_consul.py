"""Standalone nodes whose list is Consul's: who lives is in it. Real Consul, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import command, wait_until
from tests.integration.test_standalone import Nodes, Site, served
from tests.servers.consul import ConsulServer
from zcrawl.model.states import RequestState
from zcrawl.ownership import owner_of

CHECKS_EXPIRE_S = 4.0  # Consul starts again with all checks critical
NAMES = ["node-1", "node-2", "node-3"]


class ConsulNodes(Nodes):
    def __init__(self, folder: Path, site: Site, consul: ConsulServer) -> None:
        super().__init__(folder, site)
        self.config = folder / "zcrawl.toml"
        self.config.write_text(
            f'[standalone]\nconsul = true\n[consul]\naddress = "{consul.url}"\n'
            '[cluster]\nname = "shares"\n'
        )

    def begin(self, name: str, folder: str = "") -> None:
        """Start a node in a process group of its own, which a test can pause as a whole."""
        folder = folder or name
        words = ["-m", "zcrawl", "worker", "--standalone", "--processes", "1", "--id", name]
        words += ["--config", str(self.config), "--job", str(self.job)]
        words += ["--data", str(self.folder / folder)]
        with (self.folder / f"{folder}.log").open("ab") as log:
            self.running[folder] = subprocess.Popen(
                [sys.executable, *words], stderr=log, process_group=0
            )

    def lists(self, name: str) -> list[str]:
        return [row["id"] for row in self.nodes_view(name)["nodes"]]

    def owned(self, name: str) -> set[str]:
        """Return the hosts whose pages this node does not leave to others."""
        return {
            url.split("/")[2] for url, state, _ in self.rows(name) if state != RequestState.SKIPPED
        }


@pytest.fixture
def site() -> Iterator[Site]:
    with served("127.0.8") as site:
        yield site


@pytest.fixture
def nodes(tmp_path: Path, site: Site, own_consul: ConsulServer) -> Iterator[ConsulNodes]:
    started = ConsulNodes(tmp_path, site, own_consul)
    try:
        yield started
    finally:
        for process in started.running.values():
            os.killpg(process.pid, signal.SIGCONT)
        started.stop()


def registered(consul: ConsulServer) -> dict[str, str]:
    """Return the state of each registered node, by its id."""
    rows = consul.get("/v1/health/service/zcrawl-standalone") or []
    return {
        row["Service"]["Meta"]["id"]: "passing"
        if all(check["Status"] == "passing" for check in row["Checks"])
        else "critical"
        for row in rows
    }


def at_rest(nodes: ConsulNodes, site: Site, names: list[str]) -> bool:
    return all(nodes.done(name) >= site.share(name, names) for name in names)


def test_three_nodes_find_each_other_in_consul(
    site: Site, nodes: ConsulNodes, own_consul: ConsulServer
) -> None:
    """Each host has one owner at rest: after the start, a kill -9, a return, a restart of Consul
    and a SIGTERM."""
    for name in NAMES:
        nodes.begin(name)
    wait_until(lambda: at_rest(nodes, site, NAMES), 90)
    pages = Counter(page for name in NAMES for page in nodes.done(name))
    assert set(pages) == site.pages
    assert set(pages.values()) == {1}, "they knew each other before they began"
    for name in NAMES:
        assert nodes.lists(name) == NAMES
        assert nodes.owned(name) == {host for host in site.hosts if owner_of(host, NAMES) == name}
    (row, *_) = own_consul.get("/v1/health/service/zcrawl-standalone")
    wait_until(lambda: _lists_in_meta(own_consul) == 1, 30)
    assert row["Service"]["Meta"]["cluster"] == "shares"

    nodes.kill("node-3")
    living = NAMES[:2]
    wait_until(lambda: at_rest(nodes, site, living), 60)
    assert nodes.lists("node-1") == nodes.lists("node-2") == living
    assert registered(own_consul)["node-3"] == "critical"

    nodes.begin("node-3")
    wait_until(lambda: all(nodes.lists(name) == NAMES for name in living), 60)
    wait_until(lambda: nodes.log("node-3").count("node_list_changed") == 2, 30)
    assert nodes.done("node-3") == site.share("node-3", NAMES)
    for name in living:
        skipped = [url for url, state, _ in nodes.rows(name) if state == RequestState.SKIPPED]
        assert name not in {owner_of(url.split("/")[2], NAMES) for url in skipped}

    changes = {name: nodes.log(name).count("node_list_changed") for name in NAMES}
    own_consul.stop()
    wait_until(lambda: all("consul_away" in nodes.log(name) for name in NAMES), 30)
    time.sleep(CHECKS_EXPIRE_S)
    own_consul.start()
    own_consul.wait_ready()
    wait_until(lambda: all("consul_back" in nodes.log(name) for name in NAMES), 60)
    wait_until(lambda: list(registered(own_consul).values()) == ["passing"] * 3, 30)
    answer = command(
        *("owner", site.seeds[0], "--json", "--config", str(nodes.config)), cwd=nodes.folder
    )
    assert json.loads(answer.stdout)["owner"] == owner_of(site.hosts[0], NAMES)
    wait_until(lambda: all(nodes.lists(name) == NAMES for name in NAMES), 30)

    leaving = nodes.running.pop("node-1")
    leaving.terminate()
    assert leaving.wait(30) == 0
    assert "node-1" not in registered(own_consul), "it deregistered"
    rest = NAMES[1:]
    wait_until(lambda: at_rest(nodes, site, rest), 60)
    for name in rest:
        now = nodes.log(name).count("node_list_changed")
        assert now == changes[name] + 1, "the restart of Consul changed no list"
        assert nodes.log(name).count("consul_away") == 1


def _lists_in_meta(consul: ConsulServer) -> int:
    rows = consul.get("/v1/health/service/zcrawl-standalone")
    return len({row["Service"]["Meta"].get("list") for row in rows})


def test_a_second_node_with_an_id_ends_with_its_name(
    nodes: ConsulNodes, own_consul: ConsulServer
) -> None:
    """Exit code 2, and the first one keeps its entry."""
    nodes.begin("node-1")
    wait_until(lambda: "job_submitted" in nodes.log("node-1"), 60)
    nodes.begin("node-1", "double")
    assert nodes.running.pop("double").wait(60) == 2
    assert "another living standalone is registered as node-1" in nodes.log("double")
    assert "ZCRAWL_NODE_ID" in nodes.log("double")
    assert registered(own_consul) == {"node-1": "passing"}
    assert nodes.running["node-1"].poll() is None


def test_a_node_waits_for_a_consul_that_is_away(
    site: Site, nodes: ConsulNodes, own_consul: ConsulServer
) -> None:
    """It says so once, begins nothing, and ends at once when asked; it begins when Consul comes."""
    own_consul.stop()
    for name in ("node-1", "node-2"):
        nodes.begin(name)
    wait_until(lambda: all("consul_away" in nodes.log(name) for name in nodes.running), 60)
    leaving = nodes.running.pop("node-2")
    leaving.terminate()
    assert leaving.wait(30) == 0
    assert not nodes.done("node-1")
    own_consul.start()
    own_consul.wait_ready()
    wait_until(lambda: nodes.done("node-1") == site.pages, 60)
    assert nodes.log("node-1").count("consul_away") == 1


def test_a_paused_node_loses_its_share_and_gets_it_back(
    site: Site, nodes: ConsulNodes, own_consul: ConsulServer
) -> None:
    """Paused for longer than its check: the other takes over; it asks Consul when it wakes."""
    pair = ["node-1", "node-2"]
    for name in pair:
        nodes.begin(name)
    wait_until(lambda: at_rest(nodes, site, pair), 90)
    os.killpg(nodes.running["node-2"].pid, signal.SIGSTOP)
    wait_until(lambda: nodes.done("node-1") == site.pages, 60)
    os.killpg(nodes.running["node-2"].pid, signal.SIGCONT)
    wait_until(lambda: nodes.lists("node-1") == pair == nodes.lists("node-2"), 30)
    assert nodes.done("node-2") == site.share("node-2", pair), "nothing twice after it woke"
    assert registered(own_consul) == dict.fromkeys(pair, "passing")
