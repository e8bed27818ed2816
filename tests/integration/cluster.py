"""A whole cluster for tests: masters and workers as the processes that a user would start, on a
real Consul and a real MariaDB, and the checker that compares the database with a known page set.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from signal import Signals
from typing import Any

import msgspec

from tests.integration.crawling import OVER, ZCRAWL, children, wait_until
from tests.integration.output_files import verify_files, wait_written
from tests.servers.mariadb import Mariadb
from tests.servers.namespaces import Hosts
from tests.servers.page_site import PageSite
from zcrawl.config import Config, resolve
from zcrawl.errors import RefusedError, UnreachableError
from zcrawl.model.spec import Fetch, JobSpec, OutputSpec, Politeness
from zcrawl.roles import cluster as roles
from zcrawl.roles.client import MeshClient
from zcrawl.submit.read import to_dict

FAST = Politeness(rate=0.0, concurrency=16, spread=True, robots=False)
STOP_TIMEOUT_S = 40.0


class Node:
    """One daemon; `kind` is master or worker."""

    def __init__(self, kind: str, name: str, command: list[str], log: Path, cwd: Path) -> None:
        self.kind, self.name, self.log = kind, name, log
        self._command, self._cwd = command, cwd
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self._cwd, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """-9, and it is reaped."""
        self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        return self._end(signal.SIGTERM, STOP_TIMEOUT_S)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def worker_pids(self) -> list[int]:
        return children(self.pid)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _end(self, number: Signals, patience_s: float) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
        try:
            return self.process.wait(patience_s)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


class Cluster:
    def __init__(self, folder: Path, consul: str, database: Mariadb, name: str) -> None:
        self.folder = folder
        self.name = name
        self.database = database
        self.database_name = database.new_database()
        self.values: dict[str, Any] = {
            "cluster.name": name,
            "cluster.allow_private": True,  # the sites of tests are on this machine
            "consul.address": consul,
            "database.urls": [database.url(self.database_name)],
            "mesh.control_port": 0,
            "mesh.reports_port": 0,
            "mesh.events_port": 0,
            "worker.slots": 8,
        }
        self.hosts: Hosts | None = None  # each node runs on the host of its name
        self.masters: dict[str, Node] = {}
        self.workers: dict[str, Node] = {}
        self._rotates: dict[int, bool] = {}
        self._submitted: dict[int, tuple[int, PageSite]] = {}  # run: its job and what it crawls
        self.config = self.write_config("client", {})[1]

    # ------------------------------------------------------------ nodes

    def write_config(self, name: str, changes: Mapping[str, Any]) -> tuple[Path, Config]:
        values = {**self.values, "data.dir": str(self.folder / name), **changes}
        sections: dict[str, list[str]] = {}
        for key, value in values.items():
            section, _, word = key.partition(".")
            sections.setdefault(section, []).append(f"{word} = {json.dumps(value)}")
        text = "".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path, resolve(text, str(path), {}).config

    def add_master(
        self, name: str, *, start: bool = True, program: str = "", **changes: Any
    ) -> Node:
        """`program`: Python that runs zcrawl's main itself, to do something else beside it."""
        self.masters[name] = self._node("master", name, [], start, changes, program)
        return self.masters[name]

    def add_worker(
        self, name: str, *, processes: int = 1, start: bool = True, **changes: Any
    ) -> Node:
        more = ["--processes", str(processes)]
        self.workers[name] = self._node("worker", name, more, start, changes)
        return self.workers[name]

    def _node(
        self,
        kind: str,
        name: str,
        more: list[str],
        start: bool,
        changes: Mapping[str, Any],
        program: str = "",
    ) -> Node:
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        config, _ = self.write_config(name, dotted)
        zcrawl = [sys.executable, "-c", program] if program else ZCRAWL
        inside = self.hosts.inside(name) if self.hosts is not None else []
        command = [*inside, *zcrawl, kind, "--config", str(config), "--id", name, *more]
        node = Node(kind, name, command, self.folder / f"{name}.log", Path.cwd())
        if start:
            node.start()
        return node

    def nodes(self) -> list[Node]:
        return [*self.masters.values(), *self.workers.values()]

    def close(self) -> None:
        for node in self.nodes():
            if node.process is not None and node.process.poll() is None:
                node.kill()

    # ------------------------------------------------------------ as a client

    def ask(self, op: str, args: dict[str, Any], patience_s: float = 40.0) -> dict[str, Any]:
        """Of any master that is registered, as a command does it."""

        async def ask() -> dict[str, Any]:
            masters = await roles.find_masters(self.config)
            controls = [master.control for master in masters]
            keys = roles.client_keys(self.config)
            async with MeshClient(controls, keys=keys, give_up_s=patience_s) as client:
                return await client.ask(op, args)

        return asyncio.run(ask())

    def wait_ready(self, workers: int) -> None:
        """A leader leads, and so many worker processes are there."""

        def ready() -> bool:
            try:
                reply = self.ask("nodes", {}, patience_s=2.0)
            except UnreachableError:
                return False
            here = [worker for worker in reply["workers"] if worker["state"] in ("idle", "busy")]
            return bool(reply["leader"]["id"]) and len(here) >= workers

        wait_until(ready)

    def leader(self) -> Node:
        """The master that leads now, by its own word."""
        ids: list[str] = []

        def has_leader() -> bool:
            with contextlib.suppress(UnreachableError):
                ids[:] = [self.ask("nodes", {}, patience_s=5.0)["leader"]["id"]]
            return bool(ids and ids[0])

        wait_until(has_leader)
        return self.masters[ids[0]]

    def followers(self) -> list[Node]:
        leader = self.leader()
        return [node for node in self.masters.values() if node is not leader]

    def submit(
        self, site: PageSite, politeness: Politeness = FAST, name: str = "site", **more: Any
    ) -> tuple[int, int]:
        # On a cluster a typed URL opens nothing, and the site is on loopback.
        fetch = msgspec.structs.replace(more.pop("fetch", Fetch()), allow_private=True)
        output = more.setdefault("output", OutputSpec(to=("jsonl",)))  # `complete` looks at it
        spec = JobSpec(name, seeds=(site.seed,), politeness=politeness, fetch=fetch, **more)
        args = {"spec": to_dict(spec), "mode": "new", "seeds": [site.seed], "seeding": False}
        reply = self.ask("submit", args)
        job, run = int(reply["job"]), int(reply["run"])
        self._submitted[run] = (job, site)
        self._rotates[run] = bool(output.rotate_bytes or output.rotate_seconds)
        return job, run

    def job(self, job: int) -> dict[str, Any]:
        return self.ask("job", {"ref": str(job)})

    def wait_pages(self, run: int, pages: int) -> None:
        """So many are committed; asked of the database, which needs no leader."""
        wait_until(lambda: self.counters(run)["done"] >= pages)

    def wait_more(self, run: int, pages: int) -> None:
        """So many more than now, or all that there are."""
        _, site = self._submitted[run]
        self.wait_pages(run, min(site.pages, self.counters(run)["done"] + pages))

    def complete(self, run: int) -> None:
        """To its end, and checked. The pace was for what the test does to the cluster: what is
        left when that is over goes without one."""
        job, site = self._submitted[run]
        # It has ended already, or nobody can take the order: then it keeps its pace.
        with contextlib.suppress(RefusedError, UnreachableError):
            self.ask("tune", {"ref": str(job), "rate": 0}, patience_s=10.0)
        self.wait_done(run)
        self.verify(run, site)
        wait_written(self, job, run)
        verify_files(self, job, site, rotates=self._rotates[run])

    def wait_done(self, run: int, patience_s: float = 120.0) -> None:
        def ended() -> bool:
            return self.counters(run)["state"] in OVER

        try:
            wait_until(ended, patience_s)
        except AssertionError:
            logs = "\n".join(f"== {node.name}\n{node.text()[-1500:]}" for node in self.nodes())
            said = f"not finished: {self.counters(run)}\n{self._by_the_leader()}\n{logs}"
            raise AssertionError(said) from None

    def _by_the_leader(self) -> str:
        """What it would tell an operator: hosts with the reason why they wait, and workers."""
        try:
            return "\n".join(str(self.ask(op, {}, patience_s=5.0)) for op in ("hosts", "nodes"))
        except (RefusedError, UnreachableError) as error:
            return f"the leader does not answer: {error}"

    # ------------------------------------------------------------ as the database sees it

    def rows(self, sql: str, *values: object) -> list[Any]:
        with contextlib.closing(self.database.admin(self.database_name)) as connection:
            cursor = connection.cursor()
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def counters(self, run: int) -> dict[str, Any]:
        names = ("state", "pending", "done", "failed", "skipped", "admitted", "items")
        rows = self.rows(f"SELECT {', '.join(names)} FROM runs WHERE id = %s", run)
        return dict(zip(names, rows[0], strict=True)) if rows else dict.fromkeys(names, 0)

    def epoch(self) -> int:
        rows = self.rows("SELECT epoch FROM leaders")
        return int(rows[0][0]) if rows else 0

    def verify(self, run: int, site: PageSite) -> None:
        """Each page once, each item once, nothing lost, nothing invented, epochs only rise."""
        rows = self.rows("SELECT url, state FROM requests WHERE run = %s", run)
        urls = Counter(bytes(url).decode() for url, _ in rows)
        assert set(urls) == site.urls(), "the page set differs"
        assert max(urls.values()) == 1, "a page is there twice"
        assert {state for _, state in rows} == {1}, "a page is not done"
        items = Counter(
            json.loads(data)["url"]
            for (data,) in self.rows("SELECT data FROM items WHERE run = %s AND kind = 0", run)
        )
        assert items == Counter(site.urls()), "an item is missing or there twice"
        pages = self.rows(
            "SELECT COUNT(*) FROM pages JOIN requests USING (seq) WHERE run = %s", run
        )
        assert pages[0][0] == site.pages, "page rows differ"
        counters = self.counters(run)
        assert counters["pending"] == 0
        assert counters["done"] == site.pages
        assert counters["failed"] == counters["skipped"] == 0
        assert counters["admitted"] == counters["items"] == site.pages
        epochs = self.epochs()
        assert epochs == sorted(set(epochs)), f"epochs went back or were used twice: {epochs}"

    def epochs(self) -> list[int]:
        """Of all leaders, in the order in which they began, from the masters' logs."""
        elections = []
        for node in self.masters.values():
            for line in node.text().splitlines():
                match = re.search(r"^(\S+) \S+ leader \S+ leads in epoch (\d+)", line)
                if match:
                    elections.append((match[1], int(match[2])))
        return [epoch for _, epoch in sorted(elections)]


@contextlib.contextmanager
def cluster(
    folder: Path, consul: str, database: Mariadb, masters: int = 3, workers: int = 2, **changes: Any
) -> Iterator[Cluster]:
    """Ready: a leader leads and all workers have joined. Without masters: made, not started."""
    made = Cluster(folder, consul, database, f"t{os.getpid()}-{time.monotonic_ns()}")
    made.values |= {key.replace("__", "."): value for key, value in changes.items()}
    made.config = made.write_config("client", {})[1]
    try:
        for n in range(1, masters + 1):
            made.add_master(f"m{n}")
        for n in range(1, workers + 1):
            made.add_worker(f"w{n}")
        if masters:
            made.wait_ready(workers)
        yield made
    finally:
        made.close()


def seconds_until(what: Callable[[], bool], patience_s: float = 60.0) -> float:
    began = time.monotonic()
    wait_until(what, patience_s)
    return time.monotonic() - began
