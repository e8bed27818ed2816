"""Tasks on a cluster: whose configuration allows a command, and which addresses a call reaches.

Real processes on a real Consul and a real MariaDB.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.web.task_site import TaskAnswer, task_site
from zcrawl.errors import RefusedError
from zcrawl.model.spec import Fetch, HttpTask, JobSpec, ShellTask
from zcrawl.submit.read import to_dict

ECHO = JobSpec("echo", kind="shell", shell=ShellTask("/bin/echo", ("hello",)))


def submit(made: Cluster, spec: JobSpec) -> tuple[int, int]:
    args = {"spec": to_dict(spec), "mode": "new", "seeds": [], "seeding": False}
    reply = made.ask("submit", args)
    return int(reply["job"]), int(reply["run"])


def item_of(made: Cluster, run: int) -> dict[str, Any]:
    ((data,),) = made.rows("SELECT data FROM items WHERE run = %s AND kind = 0", run)
    item: dict[str, Any] = json.loads(data)
    return item


def test_a_command_needs_the_masters_and_a_worker_that_allow_it(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Refused by name without the masters' right; with it, the job waits by name for a worker whose
    own configuration allows the command, begins by itself when one joins, and waits again under a
    leader without the right."""
    with cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made:
        with pytest.raises(RefusedError) as refused:
            submit(made, ECHO)
        assert refused.value.code == "shell_not_allowed"
        assert "cluster.allow_shell = true" in str(refused.value)
        assert made.rows("SELECT COUNT(*) FROM jobs") == [(0,)]
        for node in made.masters.values():
            node.stop()
        allows = made.add_master("allows", cluster__allow_shell=True)
        made.wait_ready(1)
        job, run = submit(made, ECHO)
        says = "waiting: no live worker has permission for /bin/echo yet"
        wait_until(lambda: made.job(job).get("reason") == says)
        made.add_worker("other", worker__shell__allow=["/bin/echo bye"])
        made.add_worker("allowing", worker__shell__allow=["/bin/echo hel*"])
        made.wait_done(run)
        assert item_of(made, run)["stdout"] == "hello\n"
        assert made.counters(run)["failed"] == 0
        later = JobSpec("later", kind="shell", shell=ShellTask("/bin/echo", ("no",)))
        job, run = submit(made, later)
        wait_until(lambda: made.job(job).get("reason", "").startswith("waiting: "))
        assert allows.stop() == 0
        made.add_master("refuses")
        made.wait_ready(1)
        wait_until(lambda: made.job(job)["reason"].startswith("shell_not_allowed: "))
        with pytest.raises(RefusedError) as refused:
            made.ask("act", {"ref": str(job), "action": "retry"})
        assert refused.value.code == "shell_not_allowed"


def test_a_call_on_a_cluster_does_not_reach_private_addresses(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Its URL opens nothing, whatever a client says; the job may ask only where the masters allow
    it."""
    with task_site() as site, cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made:
        url = site.answer("/a", TaskAnswer())
        spec = JobSpec("call", kind="http", http=HttpTask(url=url), fetch=Fetch(retries=0))
        args = {"spec": to_dict(spec), "mode": "new", "seeds": [url], "seeding": False}
        run = int(made.ask("submit", {**args, "vouched": [url], "opened": [url]})["run"])
        made.wait_done(run)
        assert made.counters(run)["failed"] == 1
        assert not site.requests
        opened = Fetch(retries=0, allow_private=True)
        job, run = submit(made, JobSpec("open", kind="http", http=HttpTask(url=url), fetch=opened))
        made.wait_done(run)
        assert item_of(made, run)["status"] == 200
        assert len(site.requests) == 1
        assert made.job(job)["pages"] == 1
