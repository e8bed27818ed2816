"""Standalone nodes: each crawls its share of the hosts in its own store, and asks nobody."""

from __future__ import annotations

import contextlib
import json
import os
import re
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
from zcrawl.model.states import RequestState
from zcrawl.ownership import owner_of

HOSTS = 24
PAGES = 3  # of each host, besides its first page


class _Pages(BaseHTTPRequestHandler):
    """Each host links to its own pages and to the first page of the next host."""

    def do_GET(self) -> None:
        name, _, port = self.headers["Host"].partition(":")
        number = int(name.rpartition(".")[2])
        links = [f"/{n}" for n in range(PAGES)]
        links.append(f"http://127.0.7.{number % HOSTS + 1}:{port}/")
        body = "".join(f'<a href="{link}">x</a>' for link in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class Site:
    def __init__(self, port: int) -> None:
        self.hosts = [f"127.0.7.{number}:{port}" for number in range(1, HOSTS + 1)]
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
    server = ThreadingHTTPServer(("0.0.0.0", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Site(server.server_port)
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

    def start(self, name: str, **environ: str) -> None:
        environ = {
            **os.environ,
            "ZCRAWL_NODE_ID": name,
            "ZCRAWL_STANDALONE__NODES_FILE": str(self.list),
            **environ,
        }
        words = ["-m", "zcrawl", "worker", "--standalone", "--processes", "1"]
        words += ["--data", str(self.folder / name), "--job", str(self.job)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen([sys.executable, *words], stderr=log, env=environ)

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
        wait_until(lambda words=words: words in nodes.log("node-1"), 10)  # type: ignore[misc]
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
