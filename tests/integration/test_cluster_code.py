"""Jobs that bring code to a cluster: only where its masters allow it, and then on any worker.

Real processes on a real Consul and a real MariaDB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.web.echo_site import EchoSite, echo_site
from zcrawl.errors import RefusedError
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.submit.code import code_of
from zcrawl.submit.read import to_dict

SOURCE = b"""
from zcrawl.spider import Request, Spider

class Test(Spider):
    def __init__(self, origin):
        self.origin = origin

    def start(self):
        for n in range(5):
            yield Request(f"{self.origin}/{n}", meta={"n": n})

    def parse(self, page):
        yield {"n": page.meta["n"]}
"""


def brought(made: Cluster, site: EchoSite) -> dict[str, Any]:
    spec = JobSpec(
        "spider",
        spider="test.py:Test",
        spider_args={"origin": site.origin},
        code=code_of(SOURCE, "test.py"),
        fetch=Fetch(allow_private=True),
    )
    args = {"spec": to_dict(spec), "mode": "new", "seeds": [], "seeding": False}
    return made.ask("submit", args)


def test_a_cluster_takes_a_spiders_file_only_if_its_masters_say_so(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Refused by name before anything is stored; allowed, it reaches a worker that never saw it."""
    with echo_site() as site:
        closed, open_ = tmp_path / "closed", tmp_path / "open"
        closed.mkdir()
        open_.mkdir()
        with cluster(closed, consul.url, mysql, masters=1, workers=1) as made:
            with pytest.raises(RefusedError) as refused:
                brought(made, site)
            assert refused.value.code == "code_not_allowed"
            assert made.rows("SELECT COUNT(*) FROM jobs") == [(0,)]
            assert not site.requests
        allowed = {"cluster__allow_code": True}
        with cluster(open_, consul.url, mysql, masters=1, workers=2, **allowed) as made:
            run = int(brought(made, site)["run"])
            made.wait_done(run)
            rows = made.rows("SELECT data FROM items WHERE run = %s", run)
            assert sorted(bytes(row[0]) for row in rows) == [b'{"n":%d}' % n for n in range(5)]


SLOW = b"""
from zcrawl.spider import Request, Spider

class Test(Spider):
    def __init__(self, origin):
        self.origin = origin

    def start(self):
        for n in range(40):
            yield Request(f"{self.origin}/{n}", meta={"n": n})

    def parse(self, page):
        yield {"n": page.meta["n"]}
"""


def test_a_right_that_is_withdrawn_stops_stored_code(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The run waits by name under a leader without the right, and cannot be begun again; it goes
    on under one that has it."""
    with (
        echo_site() as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=1) as made,
    ):
        allows = made.add_master("m1", cluster__allow_code=True)
        made.wait_ready(1)
        spec = JobSpec(
            "spider",
            spider="test.py:Test",
            spider_args={"origin": site.origin},
            code=code_of(SLOW, "test.py"),
            politeness=Politeness(rate=4.0, robots=False),
            fetch=Fetch(allow_private=True),
        )
        args = {"spec": to_dict(spec), "mode": "new", "seeds": [], "seeding": False}
        run = int(made.ask("submit", args)["run"])
        made.wait_pages(run, 3)
        assert allows.stop() == 0
        refuses = made.add_master("m2")
        made.wait_ready(1)
        wait_until(lambda: made.job(1)["in_flight"] == 0)  # what the worker had begun is kept
        done = made.counters(run)["done"]
        view = made.job(1)
        assert view["state"] == "running"
        assert view["reason"].startswith("code_not_allowed: "), view["reason"]
        plain = to_dict(JobSpec("spider", seeds=(site.origin + "/",)))
        again = {**args, "spec": plain, "mode": "again", "seeds": [site.origin + "/"]}
        with pytest.raises(RefusedError) as refused:
            made.ask("submit", again)
        assert refused.value.code == "code_not_allowed"
        with pytest.raises(RefusedError) as refused:
            made.ask("act", {"ref": "1", "action": "retry"})
        assert refused.value.code == "code_not_allowed"
        assert made.counters(run)["done"] == done < 40
        assert made.rows("SELECT COUNT(*) FROM runs") == [(1,)]
        assert refuses.stop() == 0
        made.add_master("m3", cluster__allow_code=True)
        made.wait_ready(1)
        made.wait_done(run)
        assert made.counters(run)["items"] == 40
