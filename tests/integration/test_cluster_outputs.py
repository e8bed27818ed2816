"""Output files of a cluster through failovers: each item once in the file that `job` names.

Real masters and workers on a real Consul and a real MariaDB. `Cluster.complete` reads the files
that `job` names and compares them with the known page set, here for all formats; in all other tests
of clusters it does so for JSON lines.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import cluster
from tests.integration.crawling import wait_until
from tests.integration.output_files import outputs_of, verify_files
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.model.spec import OutputSpec, Politeness

pytest.importorskip("pyarrow.parquet")
pytest.importorskip("warcio.archiveiterator")

STEADY = Politeness(rate=100.0, concurrency=16, robots=False)
ALL = ("jsonl", "csv", "parquet", "warc")
PAGES = 800


@pytest.mark.parametrize("rotate", [0, 20_000])
def test_masters_with_disks_of_their_own_leave_one_whole_file_each(
    rotate: int, tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The leader is killed twice, the second time while parts end if the files rotate; nobody has
    the pieces of all leaders. `job` names the master that has the file."""
    bodies: dict[str, Any] = {"bodies__url": str(tmp_path / "bodies"), "bodies__shared": True}
    with (
        page_site(tmp_path, PAGES) as site,
        cluster(tmp_path, consul.url, mysql, **bodies) as made,
    ):
        job, run = made.submit(site, STEADY, output=OutputSpec(to=ALL, rotate_bytes=rotate))
        made.wait_pages(run, 150)
        for _ in range(2):
            leader, epoch = made.leader(), made.epoch()
            leader.kill()
            wait_until(lambda epoch=epoch: made.epoch() > epoch)
            leader.start()
            made.wait_more(run, 150)
        made.complete(run)
        assert all(output["problem"] == "" for output in outputs_of(made, job).values())


# A master that stops itself (SIGSTOP) before the effect of an output that PAUSE names: after the
# fence, before anything is written. Once, and not in the first epoch.
PAUSING = """
import os, signal, sys
from pathlib import Path
from zcrawl.cli.main import main
from zcrawl.master.driver.output_writer import Following
where, least, paused = {where!r}, {least}, Path({paused!r})
perform = Following._perform
async def pausing(self, effect, row, epoch):
    name = getattr(effect, "what", type(effect).__name__)
    if name == where and epoch >= least and not paused.exists():
        paused.write_text(str(epoch))
        os.kill(os.getpid(), signal.SIGSTOP)
    return await perform(self, effect, row, epoch)
Following._perform = pausing
main(sys.argv[1:])
"""


@pytest.mark.parametrize(("where", "least"), [("Open", 2), ("writing", 2), ("publishing", 1)])
def test_a_leader_that_sleeps_between_its_fence_and_the_file_does_no_harm(
    where: str, least: int, tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Three leaders on one shared folder: the second sleeps after its fence, the third completes
    the file, the second wakes up and goes on where it was. The file stays as it is."""
    paused = tmp_path / "paused"
    program = PAUSING.format(where=where, least=least, paused=str(paused))
    shared = {
        "bodies__url": str(tmp_path / "bodies"),
        "bodies__shared": True,
        "outputs__dir": str(tmp_path / "out"),
        "outputs__shared": True,
    }
    with (
        page_site(tmp_path, PAGES) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0, **shared) as made,
    ):
        for name in ("m1", "m2", "m3"):
            made.add_master(name, program=program)
        made.add_worker("w1")
        made.wait_ready(1)
        job, run = made.submit(site, STEADY, output=OutputSpec(to=ALL))
        made.wait_pages(run, 150)
        if least > 1:
            leader, epoch = made.leader(), made.epoch()
            leader.kill()
            wait_until(lambda: made.epoch() > epoch)
            leader.start()
        wait_until(paused.exists)
        wait_until(lambda: made.epoch() > int(paused.read_text()))
        sleepers = [node for node in made.masters.values() if is_stopped(node.pid)]
        assert len(sleepers) == 1
        made.complete(run)
        before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("site*")}
        sleepers[0].resume()
        wait_until(lambda: "deposed" in sleepers[0].text() or "step_down" in sleepers[0].text())
        time.sleep(2.0)  # it goes on with whatever it was about to do
        after = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("site*")}
        assert after == before
        verify_files(made, job, site)
        assert all(output["master"] == "" for output in outputs_of(made, job).values())


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 32 KB, too small for the output."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=32k,mode=700", "tmpfs", str(folder)]
    subprocess.run(["mount", *options], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_told_and_the_file_is_whole_when_there_is_room(
    tmp_path: Path, small_disk: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The crawl goes on and completes in the database; the leader is killed meanwhile; `job` says
    why the file is not written; then it is written, with each item once."""
    shared = {"outputs__dir": str(small_disk), "outputs__shared": True}
    with (
        page_site(tmp_path, PAGES) as site,
        cluster(tmp_path, consul.url, mysql, masters=2, workers=1, **shared) as made,
    ):
        job, run = made.submit(site, STEADY, output=OutputSpec(to=("jsonl", "csv")))
        wait_until(
            lambda: any(
                "disk_full" in output_view["problem"] for output_view in made.job(job)["outputs"]
            )
        )
        leader, epoch = made.leader(), made.epoch()
        leader.kill()
        wait_until(lambda: made.epoch() > epoch)
        leader.start()
        made.wait_done(run)
        wait_until(
            lambda: any(
                "disk_full" in output_view["problem"] for output_view in made.job(job)["outputs"]
            )
        )
        subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
        made.complete(run)
        assert all(output["problem"] == "" for output in outputs_of(made, job).values())
        left = [path.name for path in small_disk.glob(".*") if path.name != ".zcrawl-shared"]
        assert left == [], "no piece is left behind"
