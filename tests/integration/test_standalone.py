"""Standalone nodes: each crawls its share of the hosts in its own store, and asks nobody."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command, wait_until
from tests.servers import namespaces
from zcrawl.model.states import RequestState
from zcrawl.ownership import owner_of

HOSTS = 24
FIRST = 100  # last number of the first host's address
HOSTS_OF: dict[int, int] = {}  # port of a server → its hosts
PAGES = 3  # of each host, besides its first page


class _Pages(BaseHTTPRequestHandler):
    """Each host links to its own pages and to the first page of the next host."""

    def do_GET(self) -> None:
        name, _, port = self.headers["Host"].partition(":")
        net, _, last = name.rpartition(".")
        number = int(last) - FIRST
        links = [f"/{n}" for n in range(PAGES)]
        following = FIRST + (number + 1) % HOSTS_OF[int(port)]
        links.append(f"http://{net}.{following}:{port}/")
        body = "".join(f'<a href="{link}">x</a>' for link in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class Site:
    def __init__(self, port: int, net: str = "127.0.7", hosts: int = HOSTS) -> None:
        self.hosts = [f"{net}.{FIRST + number}:{port}" for number in range(hosts)]
        self.seeds = [f"http://{host}/" for host in self.hosts]
        self.pages = {*self.seeds, *(f"{seed}{n}" for seed in self.seeds for n in range(PAGES))}

    def share(self, node: str, nodes: Sequence[str]) -> set[str]:
        return {
            page
            for host in self.hosts
            if owner_of(host, nodes) == node
            for page in self.pages
            if page.startswith(f"http://{host}/")
        }


@pytest.fixture
def site() -> Iterator[Site]:
    with served() as site:
        yield site


@contextlib.contextmanager
def served(net: str = "127.0.7", hosts: int = HOSTS) -> Iterator[Site]:
    """Serve all hosts of a site, which are addresses of this machine, on one port."""
    server = ThreadingHTTPServer(("0.0.0.0", 0), _Pages)
    HOSTS_OF[server.server_port] = hosts
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Site(server.server_port, net, hosts)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Nodes:
    """The processes of standalone nodes, and their stores."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.list = folder / "nodes.txt"
        self.job = folder / "job.toml"
        self.job.write_text(
            f'name = "shares"\nseeds = {json.dumps(site.seeds)}\n[scope]\nhosts = ["*"]\n'
            "[politeness]\nrobots = false\nrate = 0\n"
        )

    def set_list(self, *names: str) -> None:
        """Replace the file as Kubernetes does: by another link."""
        kept = self.folder / f"list-{len(list(self.folder.glob('list-*')))}"
        kept.write_text("".join(f"- {name}\n" for name in names))
        link = self.folder / "new-link"
        link.symlink_to(kept)
        link.rename(self.list)

    def start(self, name: str, *before: str, **environ: str) -> None:
        """Start a node; `before` is what the command begins with, to run it on another host."""
        environ = {
            **os.environ,
            "ZCRAWL_NODE_ID": name,
            "ZCRAWL_STANDALONE__NODES_FILE": str(self.list),
            **environ,
        }
        words = ["-m", "zcrawl", "worker", "--standalone", "--processes", "1"]
        words += ["--data", str(self.folder / name), "--job", str(self.job)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*before, sys.executable, *words], stderr=log, env=environ
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def rows(self, name: str) -> list[tuple[str, int, str]]:
        """Return URL, state and reason of all requests in a node's store."""
        path = self.folder / name / "zcrawl.db"
        if not path.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            try:
                rows = database.execute("SELECT url, state, reason FROM requests").fetchall()
            except sqlite3.OperationalError:  # not made yet, or being written
                return []
        return [(bytes(url).decode(), state, reason) for url, state, reason in rows]

    def done(self, name: str) -> set[str]:
        return {url for url, state, _ in self.rows(name) if state == RequestState.DONE}

    def waiting(self, name: str) -> int:
        return sum(state == RequestState.QUEUED for _, state, _ in self.rows(name))

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def nodes_view(self, name: str) -> dict[str, Any]:
        """Return what `zcrawl nodes` shows of the list of a node."""
        answer = command("nodes", "--data", name, "--json", cwd=self.folder)
        view: dict[str, Any] = json.loads(answer.stdout)["standalone"]
        return view

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@pytest.fixture
def nodes(tmp_path: Path, site: Site) -> Iterator[Nodes]:
    started = Nodes(tmp_path, site)
    try:
        yield started
    finally:
        started.stop()


def test_nodes_crawl_each_page_once_over_all_stores(site: Site, nodes: Nodes) -> None:
    """And what a node leaves out has the name of its owner."""
    names = ["node-1", "node-2", "node-3", "node-4"]
    nodes.set_list(*names)
    for name in names:
        nodes.start(name)
    shares = {name: site.share(name, names) for name in names}
    wait_until(lambda: all(nodes.done(name) == shares[name] for name in names), 90)
    pages = Counter(page for name in names for page in nodes.done(name))
    assert set(pages) == site.pages
    assert set(pages.values()) == {1}
    for name in names:
        for url, state, reason in nodes.rows(name):
            host = url.partition("//")[2].partition("/")[0]
            if state == RequestState.SKIPPED:
                assert reason == f"owned by {owner_of(host, names)}"
        answer = command(
            *("owner", site.seeds[0], "--nodes", f"@{nodes.list}", "--json"), cwd=nodes.folder
        )
        assert json.loads(answer.stdout)["owner"] == owner_of(site.hosts[0], names)


def test_a_new_node_takes_over_its_share_by_a_change_of_the_file(site: Site, nodes: Nodes) -> None:
    """The others begin nothing of it any more; a node that leaves gives its share back."""
    names = ["node-1", "node-2"]
    nodes.set_list(*names)
    for name in names:
        nodes.start(name)
    wait_until(lambda: all(nodes.done(n) == site.share(n, names) for n in names), 90)
    first = {name: nodes.done(name) for name in names}

    nodes.set_list("node-3", *names)
    nodes.start("node-3")
    more = [*names, "node-3"]
    wait_until(lambda: nodes.done("node-3") == site.share("node-3", more), 90)
    assert {name: nodes.done(name) for name in names} == first, "what is done stays done"

    nodes.set_list("node-1", "node-3")
    rest = ["node-1", "node-3"]
    lost = site.share("node-2", more)
    wait_until(lambda: lost <= nodes.done("node-1") | nodes.done("node-3"), 90)
    wait_until(lambda: "the list does not have this node, node-2" in nodes.log("node-2"), 10)
    gained = nodes.done("node-3") - site.share("node-3", more)
    assert gained == site.share("node-3", rest) - site.share("node-3", more)
    assert not any(nodes.waiting(name) for name in more)
    prints = [
        re.findall(r"node_list_changed .*fingerprint (\w+)", nodes.log(name))[-1] for name in more
    ]
    assert len(set(prints)) == 1, "all have the fingerprint of the same list"


def test_a_broken_list_leaves_the_old_one_in_force(nodes: Nodes) -> None:
    """Empty, not valid, gone: one warning each, and the node goes on."""
    nodes.set_list("node-1", "node-2")
    nodes.start("node-1")
    wait_until(lambda: "job_submitted" in nodes.log("node-1"), 60)
    for text, words in (("", "is empty"), ('["node-1"', "not valid JSON"), ("a b", "not a node")):
        nodes.list.unlink()
        nodes.list.write_text(text)
        wait_until(lambda words=words: words in nodes.log("node-1"), 10)
    nodes.list.unlink()
    wait_until(lambda: "cannot be read" in nodes.log("node-1"), 10)
    assert "node_list_changed" not in nodes.log("node-1")
    assert nodes.running["node-1"].poll() is None


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({"ZCRAWL_NODES": '["a", "b"]'}, "node_id_unset"),
        ({"ZCRAWL_NODE_ID": "a"}, "empty_node_list"),
        ({"ZCRAWL_NODE_ID": "a", "ZCRAWL_NODES": "[]"}, "empty_node_list"),
        ({"ZCRAWL_NODE_ID": "a", "ZCRAWL_NODES": '["b"]'}, "node_not_listed"),
        ({"ZCRAWL_NODE_ID": "a", "ZCRAWL_NODES": '["a", "b", "a"]'}, "duplicate_nodes"),
        ({"ZCRAWL_NODE_ID": "a", "ZCRAWL_NODES": '["a", 3]'}, "bad_node_list"),
        ({"ZCRAWL_NODE_ID": "a", "ZCRAWL_STANDALONE__NODES_FILE": "gone"}, "bad_node_list"),
    ],
)
def test_a_bad_list_ends_the_start_with_its_name(
    tmp_path: Path, environ: dict[str, str], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, before anything is made."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    outcome: Any = command("worker", "--standalone", "--data", "d", "--json", cwd=tmp_path)
    assert outcome.returncode == 2
    assert f"{code}" in outcome.stdout + outcome.stderr
    assert not (tmp_path / "d").exists()


def addresses(*names: str, base: int) -> list[str]:
    return [f"{name}=tcp://127.0.0.1:{base + at}" for at, name in enumerate(names)]


def test_a_dead_node_loses_its_share_and_gets_it_back(site: Site, nodes: Nodes) -> None:
    """The others begin its share anew in their stores; it comes back to exactly its own."""
    names = ["node-1", "node-2", "node-3"]
    nodes.set_list(*addresses(*names, base=free_ports(3)))
    for name in names:
        nodes.start(name)
    shares = {name: site.share(name, names) for name in names}
    wait_until(lambda: all(nodes.done(name) == shares[name] for name in names), 90)
    wait_until(lambda: all(row["fingerprint"] for row in nodes.nodes_view("node-1")["nodes"]), 20)
    assert not any(row["differs"] for row in nodes.nodes_view("node-1")["nodes"])

    nodes.kill("node-3")
    living = ["node-1", "node-2"]
    wait_until(lambda: all(nodes.done(n) >= site.share(n, living) for n in living), 60)
    states = {row["id"]: row["alive"] for row in nodes.nodes_view("node-2")["nodes"]}
    assert states == {"node-1": True, "node-2": True, "node-3": False}
    assert not nodes.done("node-1") & nodes.done("node-2"), "each resource has one of the living"

    nodes.start("node-3")
    wait_until(lambda: all("node_back" in nodes.log(name) for name in living), 40)
    skipped = [url for url, state, _ in nodes.rows("node-1") if state == RequestState.SKIPPED]
    assert "node-1" not in {owner_of(url.split("/")[2], names) for url in skipped}
    assert nodes.done("node-3") == shares["node-3"]


def test_lists_that_differ_are_shown(nodes: Nodes) -> None:
    """In the log and by `zcrawl nodes`, on each of the nodes that hear each other."""
    entries = addresses("node-1", "node-2", "node-3", base=free_ports(3))
    nodes.start("node-1", ZCRAWL_NODES=json.dumps(entries))
    nodes.start("node-2", ZCRAWL_NODES=json.dumps(entries[:2]))
    wait_until(lambda: "node_lists_differ node-2" in nodes.log("node-1"), 60)
    wait_until(lambda: "node_lists_differ node-1" in nodes.log("node-2"), 60)
    differing = {row["id"]: row["differs"] for row in nodes.nodes_view("node-1")["nodes"]}
    assert differing == {"node-1": False, "node-2": True, "node-3": False}


def test_an_open_address_without_keys_is_refused(tmp_path: Path) -> None:
    """Others could forge beats there."""
    environ = {
        **os.environ,
        "ZCRAWL_NODE_ID": "a",
        "ZCRAWL_NODES": '{"a": "tcp://10.9.9.8:7700", "b": "tcp://10.9.9.9:7700"}',
    }
    outcome: Any = command("worker", "--standalone", "--data", "d", cwd=tmp_path, env=environ)
    assert outcome.returncode == 2
    assert "insecure_bind" in outcome.stderr


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that nobody uses now."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            base: int = first.getsockname()[1]
            try:
                for port in range(base + 1, base + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return base


EIGHT = [f"node-{n}" for n in range(1, 9)]
NINE = [*EIGHT, "node-9"]
SEEDS = 64


def test_eight_nodes_on_hosts_of_their_own(tmp_path: Path) -> None:
    """A crash, a return, a ninth node, a partition: at rest each resource has one owner again."""
    if not namespaces.available():
        pytest.skip("this machine makes no network namespaces")
    with namespaces.hosts(*NINE) as hosts:
        net = hosts.outside.rpartition(".")[0]
        for number in range(SEEDS):
            namespaces.ip("addr", "add", f"{net}.{FIRST + number}/24", "dev", hosts.bridge)
        with served(net, SEEDS) as site:
            nodes = Nodes(tmp_path, site)
            try:
                _play(hosts, site, nodes)
            finally:
                nodes.stop()


def _play(hosts: namespaces.Hosts, site: Site, nodes: Nodes) -> None:
    def start(name: str) -> None:
        nodes.start(name, *hosts.inside(name), ZCRAWL_MESH__INSECURE="true")

    def at_rest(names: list[str]) -> bool:
        return all(nodes.done(name) >= site.share(name, names) for name in names)

    entries = [f"{name}=tcp://{hosts.addresses[name]}:7700" for name in NINE]
    nodes.set_list(*entries[:8])
    for name in EIGHT:
        start(name)
    wait_until(lambda: at_rest(EIGHT), 150)
    pages = Counter(page for name in EIGHT for page in nodes.done(name))
    assert set(pages) == site.pages, "the pages are those of the site"
    assert set(pages.values()) == {1}, "each once over all stores"

    nodes.kill("node-5")
    rest = [name for name in EIGHT if name != "node-5"]
    wait_until(lambda: at_rest(rest), 90)
    pages = Counter(page for name in rest for page in nodes.done(name))
    assert set(pages) == site.pages
    assert set(pages.values()) == {1}
    start("node-5")
    wait_until(lambda: all("node-5 is heard again" in nodes.log(name) for name in rest), 90)
    assert nodes.done("node-5") == site.share("node-5", EIGHT)

    nodes.set_list(*entries)
    start("node-9")
    wait_until(lambda: nodes.done("node-9") == site.share("node-9", NINE), 90)

    hosts.cut("node-1", "node-2")  # each now computes without the other
    wait_until(lambda: "nothing heard of node-2" in nodes.log("node-1"), 60)
    without = [name for name in NINE if name != "node-2"]
    wait_until(lambda: nodes.done("node-1") >= site.share("node-1", without), 90)
    hosts.mend()
    wait_until(lambda: "node-2 is heard again" in nodes.log("node-1"), 90)
    wait_until(lambda: "node-1 is heard again" in nodes.log("node-2"), 90)
    wait_until(lambda: not any(nodes.waiting(name) for name in NINE), 30)
    for name in NINE:
        reasons = {reason for _, state, reason in nodes.rows(name) if state == RequestState.SKIPPED}
        assert f"owned by {name}" not in reasons
