"""Output files of a cluster through failovers: each item once in the file that `job` names.

Real masters and workers on a real Consul and a real MariaDB; `verify_files` reads the files that
`job` names and compares them with the known page set.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import PageSite, page_site
from zcrawl.submit.outputs import part_path
from zcrawl.submit.spec import Output, Politeness

pq = pytest.importorskip("pyarrow.parquet")
warcio = pytest.importorskip("warcio.archiveiterator")

STEADY = Politeness(rate=100.0, concurrency=16, robots=False)
ALL = ("jsonl", "csv", "parquet", "warc")
PAGES = 800


def urls_in(form: str, data: bytes) -> list[str]:
    match form:
        case "jsonl":
            return [json.loads(line)["url"] for line in data.splitlines()]
        case "csv":
            return [row["url"] for row in csv.DictReader(io.StringIO(data.decode()))]
        case "parquet":
            return list(pq.read_table(io.BytesIO(data))["url"].to_pylist())
        case _:
            records = warcio.ArchiveIterator(io.BytesIO(data), check_digests="raise")
            found = [(one.rec_type, one.rec_headers["WARC-Target-URI"]) for one in records]
            return [url for kind, url in found if kind == "response"]


def outputs_of(made: Cluster, job: int) -> dict[str, dict[str, Any]]:
    return {one["format"]: one for one in made.job(job)["outputs"]}


def files_of(made: Cluster, output: dict[str, Any], rotates: bool) -> list[Path]:
    """All complete parts, as `job` names them: each on the disk of its master."""
    found = []
    for place in output["places"]:
        last = Path(place["file"])
        if place["master"]:
            assert last.is_relative_to(made.folder / place["master"]), place
        for part in range(place["first"], place["last"] + 1):
            name = Path(part_path(output["path"], part, rotates)).name
            found.append(last if part == place["last"] else last.parent / name)
    return found


def verify_files(made: Cluster, job: int, site: PageSite, *, rotates: bool = False) -> None:
    expected = Counter(site.urls())
    for form, output in outputs_of(made, job).items():
        files = files_of(made, output, rotates)
        assert len(files) == output["parts"], output
        urls = [url for file in files for url in urls_in(form, file.read_bytes())]
        assert Counter(urls) == expected, f"{form}: an item is missing or there twice"


def wait_written(made: Cluster, job: int, run: int) -> None:
    """All that is committed is in complete files."""

    def written() -> bool:
        rows = made.rows(
            "SELECT progress, item_cursor, (SELECT MAX(id) FROM items WHERE items.run = o.run AND "
            "kind = IF(o.format = 'warc', 3, 0)) FROM outputs o WHERE run = %s",
            run,
        )
        return all(
            cursor == last and "pieces" not in json.loads(bytes(progress or b'{"pieces":[]}'))
            for progress, cursor, last in rows
        )

    try:
        wait_until(written)
    except AssertionError:
        logs = "\n".join(f"== {node.name}\n{node.text()[-1500:]}" for node in made.masters.values())
        raise AssertionError(f"not written: {outputs_of(made, job)}\n{logs}") from None


@pytest.mark.parametrize("rotate", [0, 20_000])
def test_masters_with_disks_of_their_own_leave_one_whole_file_each(
    rotate: int, tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The leader is killed twice, the second time while parts end if the files rotate; nobody has
    the pieces of all leaders. `job` names the master that has the file."""
    bodies = {"bodies__url": str(tmp_path / "bodies"), "bodies__shared": True}
    with (
        page_site(tmp_path, PAGES) as site,
        cluster(tmp_path, consul.url, mysql, **bodies) as made,
    ):
        job, run = made.submit(site, STEADY, output=Output(to=ALL, rotate_bytes=rotate))
        made.wait_pages(run, 150)
        for _ in range(2):
            leader, epoch = made.leader(), made.epoch()
            leader.kill()
            wait_until(lambda epoch=epoch: made.epoch() > epoch)
            leader.start()
            made.wait_more(run, 150)
        made.complete(run)
        wait_written(made, job, run)
        verify_files(made, job, site, rotates=bool(rotate))
        assert all(one["problem"] == "" for one in outputs_of(made, job).values())


# A master that stops itself (SIGSTOP) before the effect of an output that PAUSE names: after the
# fence, before anything is written. Once, and not in the first epoch.
PAUSING = """
import os, signal, sys
from pathlib import Path
from zcrawl.cli.main import main
from zcrawl.master.output_following_loop import Following
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
        job, run = made.submit(site, STEADY, output=Output(to=ALL))
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
        wait_written(made, job, run)
        verify_files(made, job, site)
        before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("site*")}
        sleepers[0].resume()
        wait_until(lambda: "deposed" in sleepers[0].text() or "step_down" in sleepers[0].text())
        time.sleep(2.0)  # it goes on with whatever it was about to do
        after = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("site*")}
        assert after == before
        verify_files(made, job, site)
        assert all(one["master"] == "" for one in outputs_of(made, job).values())


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
