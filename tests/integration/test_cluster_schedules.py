"""Jobs that run by themselves on a real cluster: the leader is killed around due times."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.cluster import FAST, cluster
from tests.integration.crawling import wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.model.spec import After, Fetch, JobSpec, Schedule, Scope
from zcrawl.submit.read import to_dict

EVERY_S = 3
KILLS = (-0.3, -0.02, 0.0, 0.02, 0.3)  # seconds, from a due time


@pytest.mark.timeout(300)
def test_each_due_time_fires_once_although_the_leader_is_killed_around_it(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """None is left out, none starts twice, and each run of the parent starts one of its child."""
    with (
        page_site(tmp_path, 1) as site,
        cluster(tmp_path, consul.url, mysql, masters=3, workers=2) as made,
    ):
        base = JobSpec(
            "beat",
            seeds=(site.seed,),
            politeness=FAST,
            fetch=Fetch(allow_private=True),
            scope=Scope(max_depth=0),
        )
        for name, schedule in (
            ("beat", Schedule(every=f"{EVERY_S}s", overlap="allow")),
            ("child", Schedule(after=(After("beat", "end"),), after_mode="any")),
        ):
            spec = {**to_dict(base), "name": name, "schedule": to_schedule(schedule)}
            made.ask("submit", {"spec": spec, "mode": "new", "seeds": [], "no_run": True})
        ((created,),) = made.rows("SELECT created_at FROM jobs WHERE name = 'beat'")
        for offset in KILLS:
            leader = made.leader()
            passed = (time.time() - int(created)) % EVERY_S
            time.sleep((EVERY_S - passed + offset) % EVERY_S)
            leader.kill()
            made.leader()
            leader.start()
            time.sleep(1.0)
        made.ask("change_job", {"ref": "beat", "state": "paused"})
        runs = "SELECT COUNT(*) FROM runs WHERE state IN ('pending', 'running')"
        of = "(SELECT id FROM jobs WHERE name = '{}')"
        counted = "SELECT COUNT(*) FROM runs WHERE job = " + of
        wait_until(
            lambda: (
                made.rows(runs) == [(0,)]
                and made.rows(counted.format("beat")) == made.rows(counted.format("child"))
            ),
            120,
        )
        beats = made.rows(
            "SELECT due_at FROM runs WHERE job = " + of.format("beat") + " ORDER BY 1"
        )
        due = [int(at) for (at,) in beats]
        assert due == list(range(due[0], due[-1] + 1, EVERY_S)), "a due time is missing, or twice"
        assert due[0] == int(created) + EVERY_S
        used = made.rows("SELECT parent FROM run_parents")
        assert len(used) == len({parent for (parent,) in used}) == len(due)
        epochs = made.epochs()
        assert len(epochs) > len(KILLS), "the leaders were killed"


def to_schedule(schedule: Schedule) -> dict[str, object]:
    plain: dict[str, object] = to_dict(JobSpec("x", schedule=schedule))["schedule"]
    return plain
