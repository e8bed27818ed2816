"""Frames that are none, at the sockets of a cluster that is crawling."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import zmq

from tests.contract.test_mesh import fuzzed
from tests.integration.crawling import FAST, OVER, items, run_of, submission, until
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import demo_site
from zcrawl.model.snapshot import MishapsView
from zcrawl.model.spec import JobSpec
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.place import read_mesh_file

FRAMES = 100_000
BOOKS = DemoCatalogue(books=1500, tags=20)


async def test_a_cluster_that_is_sent_100_000_fuzzed_frames_crawls_on(tmp_path: Path) -> None:
    """From noise to results in a worker's name, at both sockets on which a master listens, with its
    real loop and machines behind them. They cost epochs, since some of them claim a later one; the
    crawl is whole in the end, each page once, and the leader failed at nothing."""
    out, data, rng = tmp_path / "o.jsonl", tmp_path / "data", random.Random(6)
    with demo_site(BOOKS) as shop, zmq.Context() as context:
        async with EmbeddedCluster(data, 2) as cluster:
            mesh_file = read_mesh_file(data)
            assert mesh_file is not None
            ends = mesh_file.endpoints
            with context.socket(zmq.DEALER) as asking, context.socket(zmq.PUB) as reporting:
                for socket, endpoint in ((asking, ends.control), (reporting, ends.reports)):
                    socket.setsockopt(zmq.LINGER, 0)
                    socket.setsockopt(zmq.SNDHWM, 0)
                    socket.connect(endpoint)
                spec = JobSpec("books", politeness=FAST)
                reply = await cluster.ask("submit", submission(spec, [shop.url], out))
                # A result that happens to be right is taken, whoever sends it. The requests that
                # these can name, up to the 127th, are final by now.
                await until(lambda: run_of(cluster, reply["run"]).get("pages", 0) >= 250)
                for sent in range(FRAMES):
                    rng.choice((asking, reporting)).send_multipart(fuzzed(rng))
                    if sent % 200 == 0:
                        await asyncio.sleep(0.002)  # the cluster's loop is this one
                await until(lambda: run_of(cluster, reply["run"]).get("state") in OVER)
            await cluster.flush_outputs()
            view = await cluster.ask("job", {"ref": str(reply["job"])})
            counters, mishaps = cluster.snapshot().counters, cluster.snapshot().mishaps
        assert mishaps == MishapsView()
        assert counters["bad_frame"] > FRAMES // 10
        assert counters["bad_body"] > 1_000
        assert (view["failed"], view["state"]) == (0, "completed")
        urls = [item["url"] for item in items(out)]
        assert len(urls) == len(set(urls))
        assert set(urls) == {shop.url.rstrip("/") + path for path in BOOKS.paths()}
