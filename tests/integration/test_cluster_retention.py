"""Old runs of a cluster: archived and removed once, also by a leader that was replaced meanwhile.

Real masters and workers on a real Consul and a real MariaDB.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.integration.test_cluster_outputs import is_stopped
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import PageSite, page_site
from zcrawl.model.spec import Politeness, Retention

PAGES = 80
QUICK = Politeness(rate=0.0, concurrency=16, robots=False)
# A master that stops itself (SIGSTOP), once, when the items of an archive are written and not yet
# published: before its fence.
SLEEPING = """
import os, signal, sys
from pathlib import Path
from zcrawl.cli.main import main
from zcrawl.master.driver.retention import _LeaderReader
slept = Path({slept!r})
fence = _LeaderReader.fence
def sleeping(self):
    if not slept.exists():
        slept.write_text(str(self._epoch))
        os.kill(os.getpid(), signal.SIGSTOP)
    fence(self)
_LeaderReader.fence = sleeping
main(sys.argv[1:])
"""


def crawl_twice(made: Cluster, site: PageSite) -> tuple[int, int]:
    """Two runs of a job that keeps one."""
    job, first = made.submit(site, QUICK, retention=Retention(keep_runs=1, archive="old"))
    made.complete(first)
    second = int(made.ask("submit", {"mode": "again", "ref": str(job), "seeds": []})["run"])
    wait_until(lambda: bool(made.rows("SELECT 1 FROM runs WHERE id = %s AND ended_at > 0", second)))
    wait_until(lambda: not made.ask("prune", {"dry_run": True})["runs"][0]["unwritten"])
    return job, first


def archived(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_leader_that_sleeps_before_it_publishes_an_archive_does_no_harm(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The next leader archives the run, deletes it and removes its rows. Then the first one wakes
    up: it replaces nothing, and the run was deleted once."""
    slept = tmp_path / "slept"
    shared = {"outputs__dir": str(tmp_path / "out"), "outputs__shared": True}
    with (
        page_site(tmp_path, PAGES) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0, **shared) as made,
    ):
        for name in ("m1", "m2"):
            made.add_master(name, program=SLEEPING.format(slept=str(slept)))
        made.add_worker("w1")
        made.wait_ready(1)
        job, run = crawl_twice(made, site)
        (items,) = made.rows("SELECT items FROM runs WHERE id = %s", run)[0]
        assert [view["run"] for view in made.ask("prune", {})["runs"]] == [run]
        wait_until(slept.exists)
        wait_until(lambda: made.epoch() > int(slept.read_text()))
        folder = tmp_path / f"out/old/site/run-{run}"
        assert not (folder / "items.jsonl").exists()
        (sleeper,) = [node for node in made.masters.values() if is_stopped(node.pid)]
        assert [view["run"] for view in made.ask("prune", {})["runs"]] == [run]
        wait_until(lambda: not made.rows("SELECT 1 FROM runs WHERE id = %s", run))
        before = archived(folder)
        sleeper.resume()
        wait_until(lambda: "deposed" in sleeper.text() or "step_down" in sleeper.text())
        time.sleep(2.0)  # it goes on with whatever it was about to do
        assert archived(folder) == before
        assert sorted(before) == ["failed.jsonl", "items.jsonl", "manifest.json"]
        manifest = json.loads(before["manifest.json"])
        for file in manifest["files"]:
            assert file["sha256"] == hashlib.sha256(before[file["name"]]).hexdigest()
        assert manifest["files"][0]["rows"] == items == before["items.jsonl"].count(b"\n")
        assert [view["run"] for view in made.job(job)["runs"]] == [run + 1]
        select = "SELECT what FROM client_requests WHERE asked_by = 'retention'"
        assert made.rows(select) == [("delete",)]
        assert not made.rows("SELECT 1 FROM items WHERE run = %s LIMIT 1", run)
