"""Jobs that are added, changed and deleted while hundreds of requests are in flight on a slow site:
workers follow within two seconds, on a cluster in one process and on a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.integration.cluster import cluster
from tests.integration.crawling import submission, until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import PageSite, page_site
from zcrawl.errors import RefusedError
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Scope
from zcrawl.roles import cluster as roles
from zcrawl.roles.client import MeshClient
from zcrawl.roles.embedded import EmbeddedCluster

SLOW_S = 4.0  # that each page takes, so requests are in flight for long
SLOTS = 150  # of each of two workers
FOLLOW_S = 2.0  # within this time workers follow
PAGES = 2_000
FAST = Politeness(rate=0.0, concurrency=SLOTS, spread=True, robots=False)

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Running(Protocol):
    """A way to start a cluster for a test."""

    def __call__(self) -> contextlib.AbstractAsyncContextManager[Ask]: ...


@pytest.fixture(params=["embedded", "cluster"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """Two workers with many slots, in both forms that zcrawl has."""
    if request.param == "embedded":

        @contextlib.asynccontextmanager
        async def in_folder() -> AsyncIterator[Ask]:
            async with EmbeddedCluster(tmp_path / "data", 2, slots=SLOTS) as made:
                yield made.ask

        yield in_folder
        return
    consul: ConsulServer = request.getfixturevalue("consul")
    mysql: Mariadb = request.getfixturevalue("mysql")
    slots = {"worker__slots": SLOTS}
    with cluster(tmp_path, consul.url, mysql, masters=2, workers=2, **slots) as made:

        @contextlib.asynccontextmanager
        async def on_hosts() -> AsyncIterator[Ask]:
            controls = [master.control for master in await roles.find_masters(made.config)]
            async with MeshClient(controls) as client:
                yield client.ask

        yield on_hosts


def submitted(site: PageSite, name: str = "site", **more: Any) -> dict[str, Any]:
    spec = JobSpec(
        name,
        seeds=tuple(site.url(n) for n in range(2 * SLOTS)),
        politeness=FAST,
        fetch=Fetch(allow_private=True),
        scope=Scope(**more),
    )
    return submission(spec, list(spec.seeds), None)


async def in_flight(site: PageSite, count: int) -> None:
    """Wait until so many requests are at the site."""

    def are_there() -> bool:
        events = [event for event, _, _ in site.requests()]
        return events.count("start") - events.count("end") >= count

    await until(are_there)


def starts_after(site: PageSite, moment: float) -> list[str]:
    return [path for event, at, path in site.requests() if event == "start" and at > moment]


async def test_a_deleted_job_stops_and_its_name_is_free_at_once(
    tmp_path: Path, running: Running
) -> None:
    """With hundreds of requests in flight: nothing is requested later than two seconds after the
    answer, no result is stored, and a job of the same name starts within two seconds and is not
    disturbed by what the old one left behind."""
    with page_site(tmp_path, PAGES, SLOW_S) as site:
        async with running() as ask:
            old = await ask("submit", submitted(site))
            await in_flight(site, SLOTS)
            reply = await ask("act", {"ref": "site", "action": "delete"})
            assert reply["state"] == "deleted"
            deleted_at = time.monotonic()
            with pytest.raises(RefusedError):
                await ask("job", {"ref": "site"})
            with pytest.raises(RefusedError):
                await ask("add_seeds", {"run": old["run"], "seeds": [site.url(999)], "last": True})
            new = await ask("submit", submitted(site, max_pages=3 * SLOTS))
            assert new["job"] != old["job"]
            await until(lambda: bool(starts_after(site, deleted_at)), FOLLOW_S + 3.0)
            first = min(
                at for event, at, _ in site.requests() if event == "start" and at > deleted_at
            )
            assert first - deleted_at < FOLLOW_S

            async def ended() -> dict[str, Any]:
                while True:
                    view = await ask("job", {"ref": "site"})
                    if view["state"] == "completed":
                        return view
                    await asyncio.sleep(0.1)

            view = await asyncio.wait_for(ended(), 60.0)
            assert (view["job"], view["pages"]) == (new["job"], 3 * SLOTS)
            rows = (await ask("items", {"run": new["run"], "limit": 500}))["rows"]
            assert len(rows) == 3 * SLOTS
            with pytest.raises(RefusedError):
                await ask("job", {"ref": str(old["job"])})


async def test_nothing_is_requested_for_a_deleted_job(tmp_path: Path, running: Running) -> None:
    """What was in flight is cut off; after two seconds the site sees no new request, and no slot of
    a worker is in use."""
    with page_site(tmp_path, PAGES, SLOW_S) as site:
        async with running() as ask:
            await ask("submit", submitted(site))
            await in_flight(site, SLOTS)
            await ask("act", {"ref": "site", "action": "delete"})
            deleted_at = time.monotonic()
            await asyncio.sleep(FOLLOW_S)
            nodes = await ask("nodes", {})
            assert [row["running"] for row in nodes["workers"]] == [0, 0]
            await asyncio.sleep(SLOW_S)
            assert starts_after(site, deleted_at + FOLLOW_S) == []


async def test_other_limits_of_a_job_count_at_once(tmp_path: Path, running: Running) -> None:
    """`tune` under load: a lower pace holds within two seconds, a raised one is used within two
    seconds, and a run that is given as many pages as it has ends."""
    with page_site(tmp_path, PAGES, 0.05) as site:
        async with running() as ask:
            submitted_run = await ask("submit", submitted(site, max_pages=PAGES))
            await until(lambda: len(site.requests()) > 400)
            await ask("tune", {"ref": "site", "rate": 5.0, "concurrency": 1})
            await asyncio.sleep(FOLLOW_S)
            moment = time.monotonic()
            await asyncio.sleep(2.0)
            slow = len(starts_after(site, moment))
            assert slow <= 14, "5 a second"
            await ask("tune", {"ref": "site", "rate": 50.0, "burst": 5, "concurrency": 20})
            await asyncio.sleep(FOLLOW_S)
            moment = time.monotonic()
            await asyncio.sleep(2.0)
            fast = len(starts_after(site, moment))
            assert 50 <= fast <= 130, "50 a second"
            done = (await ask("job", {"ref": "site"}))["pages"]
            await ask("tune", {"ref": "site", "max_pages": done, "tags": ["ended-early"]})
            view = await ask("job", {"ref": "site"})
            assert (view["run"], view["state"]) == (submitted_run["run"], "completed")
            assert done <= view["pages"] <= done + 20
