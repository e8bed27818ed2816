"""Standalone nodes that share URLs, or the ids of a job's own list; and SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.crawling import command, wait_until
from tests.integration.test_standalone import Nodes, Site
from zcrawl.model.states import RequestState
from zcrawl.ownership import owner_of

NAMES = ["node-1", "node-2", "node-3"]
LISTED = 45
LINKED = 15
WITHOUT_FILE = ("env", "-u", "ZCRAWL_STANDALONE__NODES_FILE")  # the configuration names it
RATE = 6.0  # of the host, for all nodes together


class OneHost:
    """A server of one host, which logs when each path came. Each page links to all linked ones."""

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.log: list[tuple[float, str]] = []
        self.seeds = [self.url(f"/page-{n}") for n in range(LISTED)]
        self.links = [self.url(f"/linked-{n}") for n in range(LINKED)]

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"


@pytest.fixture
def host() -> Iterator[OneHost]:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one_host.log.append((time.monotonic(), self.path))
            body = "".join(f'<a href="{link}">x</a>' for link in one_host.links).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    one_host = OneHost(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield one_host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    started = Nodes(tmp_path, Site(1))
    try:
        yield started
    finally:
        started.stop()


def test_nodes_that_share_urls_divide_a_host_and_its_rate(host: OneHost, nodes: Nodes) -> None:
    """Each URL is fetched by its owner alone; each node has a third of the host's rate; a link of
    another node is skipped with the name of that node."""
    nodes.job.write_text(
        f'name = "urls"\nseeds = {json.dumps(host.seeds)}\n[politeness]\nrobots = false\n'
        f"rate = {RATE}\n"
    )
    nodes.set_list(*NAMES)
    for name in NAMES:
        nodes.start(name, ZCRAWL_STANDALONE__RESOURCES="urls")
    every = [*host.seeds, *host.links]
    shares = {name: {url for url in every if owner_of(url, NAMES) == name} for name in NAMES}
    wait_until(lambda: all(nodes.done(name) == shares[name] for name in NAMES), 90)
    assert Counter(path for _, path in host.log) == Counter(
        url[len(host.url("")) :] for url in every
    )
    for name in NAMES:
        skipped = {
            url: why for url, state, why in nodes.rows(name) if state == RequestState.SKIPPED
        }
        assert skipped == {
            url: f"owned by {owner_of(url, NAMES)}" for url in every if url not in shares[name]
        }
        came = [at for at, path in host.log if host.url(path) in shares[name]]
        # The first second is left out: the rate is divided just after the job has begun.
        paced = [at for at in came if at > came[0] + 1.0]
        pace = (len(paced) - 1) / (paced[-1] - paced[0])
        assert RATE / 3 * 0.6 < pace < RATE / 3 * 1.15, (name, pace)


def test_each_node_does_the_tasks_of_its_ids(nodes: Nodes) -> None:
    """The list of a shell job: `${seed}` is the id. The ids of a node that leaves go to others."""
    ids = [f"feed {n}" for n in range(24)]
    out = nodes.folder / "out.txt"
    nodes.job.write_text(
        f'name = "ids"\nkind = "shell"\nresources = {json.dumps(ids)}\n[shell]\n'
        f'command = "/bin/sh"\nargs = ["-c", "echo \\"$0\\" >> {out}", "${{seed}}"]\n'
    )
    nodes.set_list(*NAMES)
    for name in NAMES[:2]:
        nodes.start(name, ZCRAWL_WORKER__SHELL__ANY="true")
    shares = {name: {id for id in ids if owner_of(id, NAMES) == name} for name in NAMES}
    wait_until(lambda: all(nodes.done(name) == shares[name] for name in NAMES[:2]), 90)
    assert Counter(out.read_text().splitlines()) == Counter(shares["node-1"] | shares["node-2"])
    assert shares["node-3"], "it has a share that nobody has done"
    nodes.set_list(*NAMES[:2])
    wait_until(lambda: nodes.done("node-1") | nodes.done("node-2") == set(ids), 60)
    assert Counter(out.read_text().splitlines()) == Counter(ids), "each once"
    answer = command("owner", ids[0], "--nodes", "node-1,node-2", "--json", cwd=nodes.folder)
    owner = json.loads(answer.stdout)["owner"]
    assert ids[0] in nodes.done(owner) or ids[0] not in shares["node-3"]


def test_the_ids_of_a_crawl_belong_to_nodes_and_links_stay(host: OneHost, nodes: Nodes) -> None:
    """All ids are on one host, and each node fetches its own; a link stays with the node."""
    ids = [f"page-{n}" for n in range(LISTED)]
    nodes.job.write_text(
        f'name = "pages"\nseeds = ["{host.url("/")}${{resource}}"]\nresources = {json.dumps(ids)}\n'
        "[politeness]\nrobots = false\nrate = 0\n"
    )
    nodes.set_list(*NAMES)
    for name in NAMES:
        nodes.start(name)
    shares = {
        name: {host.url(f"/{id}") for id in ids if owner_of(id, NAMES) == name} for name in NAMES
    }
    links = set(host.links)
    wait_until(lambda: all(nodes.done(name) == shares[name] | links for name in NAMES), 90)
    paths = Counter(path for _, path in host.log)
    assert all(paths[f"/{id}"] == 1 for id in ids)


def test_one_machine_does_all_ids(host: OneHost, tmp_path: Path) -> None:
    """`crawl` has no nodes: the list means the same as seeds."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'name = "pages"\nseeds = ["{host.url("/")}${{resource}}"]\nresources = ["a", "b"]\n'
        "[scope]\nmax_depth = 0\n[politeness]\nrobots = false\nrate = 0\n"
    )
    answer = command("crawl", str(job), "--data", "d", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert sorted(path for _, path in host.log) == ["/a", "/b"]


def hang_up(nodes: Nodes, name: str) -> None:
    os.kill(nodes.running[name].pid, signal.SIGHUP)


def fingerprints(nodes: Nodes, name: str) -> int:
    return nodes.log(name).count("node_list_changed")


def test_sighup_reads_the_list_in_the_configuration_again(nodes: Nodes) -> None:
    """A bad list, a bad file and a list that is gone leave the old one, with a warning."""
    config = nodes.folder / "node.toml"

    def write(text: str) -> None:
        config.write_text(text)

    write('[standalone]\nnodes = ["node-1", "node-2"]\n')
    nodes.start("node-1", *WITHOUT_FILE, ZCRAWL_CONFIG=str(config))
    wait_until(lambda: "job_submitted" in nodes.log("node-1"), 60)
    before = len(nodes.nodes_view("node-1")["nodes"])
    assert before == 2
    write('[standalone]\nnodes = ["node-1", "node-2", "node-3"]\n')
    hang_up(nodes, "node-1")
    wait_until(lambda: "changed: 3 nodes" in nodes.log("node-1"), 10)
    for text, words in (
        ('[standalone]\nnodes = ["node-1", "node-1"]\n', "more than once"),
        ("[standalone]\n", "there is no list of nodes any more"),
        ('[standalone]\nnodes = ["node-1"', "reload_refused"),
        ('[standalone]\nnods = ["node-1"]\n', "nods"),
        ('[standalone]\nnodes = ["a b"]\n', "not a node"),
    ):
        write(text)
        hang_up(nodes, "node-1")
        wait_until(lambda words=words: words in nodes.log("node-1"), 10)
    assert fingerprints(nodes, "node-1") == 1
    assert len(nodes.nodes_view("node-1")["nodes"]) == 3, "the last good list"
    write('[standalone]\nnodes = ["node-1"]\nresources = "urls"\n')
    hang_up(nodes, "node-1")
    wait_until(lambda: fingerprints(nodes, "node-1") == 2, 10)
    assert "standalone.resources" in nodes.log("node-1")
    assert nodes.running["node-1"].poll() is None


def test_sighup_reads_the_configuration_for_another_file_of_nodes(nodes: Nodes) -> None:
    """The name of the file may have changed; the new file is the one that is watched then."""
    config, other = nodes.folder / "node.toml", nodes.folder / "other.txt"
    nodes.set_list("node-1", "node-2")
    config.write_text(f'[standalone]\nnodes_file = "{nodes.list}"\n')
    nodes.start("node-1", *WITHOUT_FILE, ZCRAWL_CONFIG=str(config))
    wait_until(lambda: "job_submitted" in nodes.log("node-1"), 60)
    config.write_text(f'[standalone]\nnodes_file = "{other}"\n')
    hang_up(nodes, "node-1")
    wait_until(lambda: "node_list_kept" in nodes.log("node-1"), 10)
    assert len(nodes.nodes_view("node-1")["nodes"]) == 2
    other.write_text("node-1\nnode-2\nnode-3\n")
    wait_until(lambda: "changed: 3 nodes" in nodes.log("node-1"), 10)
    other.write_text("node-1\nnode-2\nnode-3\nnode-4\n")
    hang_up(nodes, "node-1")
    wait_until(lambda: "changed: 4 nodes" in nodes.log("node-1"), 10)


@pytest.mark.parametrize(
    "table",
    [
        'kind = "shell"\n[shell]\ncommand = "/bin/echo"\nargs = ["${seed}"]\n',
        'kind = "http"\n[politeness]\nrate = 0\n[http]\nurl = "HOST/${resource}"\n',
    ],
)
def test_tasks_on_one_machine_are_done_for_each_id(
    host: OneHost, tmp_path: Path, table: str
) -> None:
    """Neither `${seed}` nor `${resource}` is taken for a secret that is not set."""
    job, config = tmp_path / "job.toml", tmp_path / "zcrawl.toml"
    config.write_text("[worker.shell]\nany = true\n")
    top = 'name = "ids"\nresources = ["a", "b"]\n'
    job.write_text(top + table.replace("HOST", host.url("")))
    answer = command("crawl", str(job), "--data", "d", "--config", str(config), cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    items = command("export", "ids", "--data", "d", cwd=tmp_path).stdout.splitlines()
    assert sorted((item := json.loads(line)).get("seed") or item["url"][-1] for line in items) == [
        "a",
        "b",
    ]
