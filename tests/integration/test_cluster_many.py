"""One master and 150 workers. The workers are real but for their pipeline, which answers at once:
real machines, real loops, sockets of their own, in one process that shares nothing with the master.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import FAN, PageSite
from zcrawl.frontier.url import DEFAULT
from zcrawl.mesh.messages import Assignment, PageRecord, RunConfig
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.model.spec import Politeness
from zcrawl.runtime import clock
from zcrawl.worker.driver.loop import WorkerLoop
from zcrawl.worker.machine import WorkerMachine
from zcrawl.worker.pipeline.pipeline import Pipeline
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.items import default_item

WORKERS = 150
PAGES = 2_500
IDLE_S = 5.0
# Room for all of them on the one host.
WIDE = Politeness(rate=0.0, concurrency=1_200, spread=True, robots=False)


class AtOnce:
    """In the place of `Pipeline`: knows every page by its number, and needs no time."""

    def __init__(self, site: PageSite, on_end: Callable[[int, Attempt], None]) -> None:
        self._site, self._on_end = site, on_end

    def adopt(self, config: RunConfig) -> None: ...

    def forget(self, run: int) -> None: ...

    def permit(self, seq: int) -> None: ...

    def cancel(self, seq: int) -> None: ...

    async def close(self) -> None: ...

    def start(self, assignment: Assignment, *_: object) -> None:
        n = int(assignment.url.rpartition("/")[2])
        children = range(FAN * n + 1, min(FAN * n + FAN + 1, self._site.pages))
        urls = [self._site.url(child) for child in children]
        page = PageRecord(assignment.url, f"page {n}", "text/html", 100, time.time(), 1.0)
        attempt = Attempt(assignment)
        attempt.done(page, 200, [default_item(assignment, page, 200)])
        attempt.links = [(url, DEFAULT.key(url)) for url in urls]
        asyncio.get_running_loop().call_soon(self._on_end, assignment.seq, attempt)


async def run_worker(id: str, endpoints: Endpoints, site: PageSite) -> None:
    machine = WorkerMachine(
        id, hash(id) & 0xFFFFFFFF | 1, slots=8, version="t", hostname="h", pid=os.getpid()
    )
    with ZmqWorkerMesh(id, machine.incarnation) as mesh:
        mesh.connect(endpoints)
        loop = WorkerLoop(
            machine,
            mesh,
            clock=clock.now,
            rss_bytes=lambda: 0,
            cpu_percent=lambda: None,
            log=lambda name, detail, **fields: None,
        )
        await loop.run(cast(Pipeline, AtOnce(site, loop.fetch_ended)))


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_one_master_leads_150_workers(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb, capsys: pytest.CaptureFixture[str]
) -> None:
    """All are present at once, all get work, each page is there once; idle ones cost little."""
    site = PageSite(9, PAGES, 0.0, tmp_path / "none")
    clock.raise_file_limit()
    with cluster(tmp_path, consul.url, mysql, masters=1, workers=0) as made:
        measured = asyncio.run(crawl(made, site))
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {value:.3g}" for name, value in measured.items()))
    assert measured["idle CPU"] < 0.5, "heartbeats of idle workers eat the master"


async def crawl(made: Cluster, site: PageSite) -> dict[str, float]:
    (master,) = (await asyncio.to_thread(made.ask, "masters", {}))["masters"]
    endpoints = Endpoints(**master)
    tasks = [
        asyncio.create_task(run_worker(f"w{n}", endpoints, site)) for n in range(1, WORKERS + 1)
    ]
    try:
        await asyncio.to_thread(made.wait_ready, WORKERS)
        pid = (await asyncio.to_thread(made.leader)).pid
        before, began = cpu_s(pid), time.monotonic()
        await asyncio.sleep(IDLE_S)
        idle = (cpu_s(pid) - before) / (time.monotonic() - began)
        before, began = cpu_s(pid), time.monotonic()
        _, run = await asyncio.to_thread(made.submit, site, WIDE)
        busy: set[str] = set()

        def ended() -> bool:
            return bool(made.counters(run)["state"] == "completed")

        while not await asyncio.to_thread(ended):
            nodes = await asyncio.to_thread(made.ask, "nodes", {})
            busy |= {worker["id"] for worker in nodes["workers"] if worker["state"] == "busy"}
            assert time.monotonic() - began < 120, "too slow"
        seconds = time.monotonic() - began
        used = cpu_s(pid) - before
        nodes = await asyncio.to_thread(made.ask, "nodes", {})
        assert {worker["state"] for worker in nodes["workers"]} == {"idle"}, "somebody was lost"
        await asyncio.to_thread(made.verify, run, site)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(busy) > WORKERS / 2, f"only {len(busy)} of the workers had work"
    return {
        "workers": WORKERS,
        "idle CPU": idle,
        "pages/s": PAGES / seconds,
        "master's CPU ms/page": used / PAGES * 1000,
    }
