"""SIGHUP: a worker takes new limits from its file without losing what it does."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.cluster import cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.model.spec import Politeness

STEADY = Politeness(rate=150.0, concurrency=16, robots=False)


def test_new_limits_reach_one_process_after_another(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Each process finishes what it began; a wrong file changes nothing."""
    with (
        page_site(tmp_path, 1500) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=0) as made,
    ):
        worker = made.add_worker("w", processes=2)
        made.wait_ready(2)
        _, run = made.submit(site, STEADY)
        made.wait_pages(run, 100)
        path, _ = made.write_config("w", {"worker.slots": 5})
        worker.signal(signal.SIGHUP)

        def renewed() -> bool:
            rows = made.ask("nodes", {})["workers"]
            return [row["slots"] for row in rows if row["state"] in ("idle", "busy")] == [5, 5]

        wait_until(renewed)
        path.write_text("[worker]\nslots = 0\n")
        worker.signal(signal.SIGHUP)
        wait_until(lambda: "reload_refused" in worker.text())
        made.complete(run)
        assert worker.stop() == 0
