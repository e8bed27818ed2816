"""Whole crawls that are lured inside: what strangers write does not lead to private addresses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from tests.integration.crawling import FAST, command, crawl, submission, until
from tests.unit.fetch.test_guard import CASES
from tests.web import MisbehavingWeb, WebThread
from tests.web.shelf import Document
from zcrawl.model.spec import Fetch, JobSpec, Scope
from zcrawl.roles.client import MeshClient, controls_in
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.offline import open_readonly
from zcrawl.store.queries import Failures, JobList, ListJobs, ReadFailed

JOB = msgspec.json.Decoder(JobSpec)
LURES = {
    "http://169.254.169.254/latest/meta-data/": "metadata (169.254.169.254)",
    "http://metadata.google.internal/": "metadata (metadata.google.internal)",
    "http://10.1.2.3/": "private (10.1.2.3)",
    "http://[::1]:9/": "port (9)",
    "http://[::ffff:127.0.0.1]/": "loopback (::ffff:7f00:1)",
    "http://2130706433/": "loopback (127.0.0.1)",
    "http://example.com:6379/": "port (6379)",
    "http://localhost:1/": "port (1)",
}


def reasons(data: Path, run: int, most: int = 100) -> dict[str, str]:
    store = open_readonly(data)
    try:
        reply = store.query(ReadFailed(run, 0, most))
    finally:
        store.close()
    assert isinstance(reply, Failures)
    return {row.url: row.reason for row in reply.rows}


async def test_redirects_and_robots_into_private_ranges_end_by_name(tmp_path: Path) -> None:
    """A seed may redirect anywhere; where that is inside, nothing is asked for and the row says
    why. The server inside sees no request, not even for robots.txt."""
    spec = JobSpec("lure", politeness=FAST, fetch=Fetch(retries=0), scope=Scope(max_depth=1))
    async with MisbehavingWeb() as web, MisbehavingWeb() as inside:
        lures = {**LURES, inside.url("/status/200"): "loopback (127.0.0.1)"}
        seeds = [web.url(f"/redirect-to?{url}") for url in lures]
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, seeds)
        reasons_by_url = reasons(tmp_path, view["run"])
        assert not inside.log
    blocked = {why for why in reasons_by_url.values() if why.startswith("blocked_address")}
    assert blocked == {f"blocked_address: {why}" for why in lures.values()}
    assert view["skipped_reasons"] == {"redirected": len(seeds)}
    assert view["failed"] == len(lures)


def header(word: str) -> str:
    """As a Location has it: headers are ASCII."""
    return word if word.isascii() else quote(word)


@pytest.mark.parametrize("engine", ["http", "httpx"])
async def test_no_spelling_of_a_closed_address_leads_inside(tmp_path: Path, engine: str) -> None:
    """All spellings of tests/unit/fetch/test_guard, each as a link of a page and as a redirect's
    target, in a job that may go to every host: each ends by the name of its kind, and there is no
    other failure, so nothing was looked up or connected to."""
    paths = {f"/{way}/{n}": kind for n, (kind, _) in enumerate(CASES) for way in ("link", "moved")}
    links = (f'<a href="http://{word}/link/{n}">x</a>' for n, (_, word) in enumerate(CASES))
    page = "".join(links).encode("ascii", "xmlcharrefreplace").decode()
    fetch = Fetch(retries=0, engine=engine)
    scope = Scope(hosts=("*",), max_depth=1)
    spec = JobSpec("spelt", politeness=FAST, fetch=fetch, scope=scope)
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path, 1) as cluster:
        web.shelf = {"page": Document(page)}
        moved = [
            web.url(f"/redirect-to?{quote(f'http://{header(word)}/moved/{n}')}")
            for n, (_, word) in enumerate(CASES)
        ]
        view = await crawl(cluster, spec, [web.url("/shelf/page"), *moved])
    assert (view["pages"], view["skipped_reasons"]) == (1, {"redirected": len(CASES)})
    reasons_by_path = {
        urlsplit(url).path: why for url, why in reasons(tmp_path, view["run"], 1_000).items()
    }
    assert reasons_by_path.keys() >= paths.keys()
    for path, kind in paths.items():
        assert reasons_by_path[path].startswith(f"blocked_address: {kind} ("), (
            path,
            reasons_by_path[path],
        )


async def test_links_into_private_ranges_end_by_name(tmp_path: Path) -> None:
    """A job that crawls every host still goes to public ones only."""
    scope = Scope(hosts=("*",), max_depth=1)
    spec = JobSpec("links", politeness=FAST, fetch=Fetch(retries=0), scope=scope)
    async with MisbehavingWeb() as web, MisbehavingWeb() as inside:
        link = web.url(f"/links-to?{inside.url('/status/200')}")
        async with EmbeddedCluster(tmp_path, 1) as cluster:
            view = await crawl(cluster, spec, [link])
        assert view["pages"] == 1
        assert view["failed_reasons"] == {"blocked_address: loopback (127.0.0.1)": 1}
        assert not inside.log


async def test_only_what_was_typed_is_vouched_for(tmp_path: Path) -> None:
    """The same seeds out of a file, or out of a job's own list, are refused."""
    spec = JobSpec("untyped", politeness=FAST, fetch=Fetch(retries=0))
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path, 1) as cluster:
        args = {**submission(spec, [web.url("/status/200")], None), "vouched": []}
        run = (await cluster.ask("submit", args))["run"]
        view = await crawl(cluster, JobSpec("typed", politeness=FAST), [web.url("/status/200")])
        assert view["pages"] == 1
        assert web.hits("/status/200") == 1
    assert set(reasons(tmp_path, run).values()) == {"blocked_address: loopback (127.0.0.1)"}


async def test_a_job_may_ask_for_private_addresses_here(tmp_path: Path) -> None:
    """The user who runs the master has the right to crawl private addresses."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path, 1) as cluster:
        for number, fetch in enumerate(
            (Fetch(allow_private=True), Fetch(private_hosts=(f"127.0.0.1:{web.port}",)))
        ):
            spec = JobSpec(f"private{number}", politeness=FAST, fetch=fetch)
            seeds = [web.url(f"/status/20{number}")]
            args = {**submission(spec, seeds, None), "vouched": []}
            await cluster.ask("submit", args)
            view = await crawl(cluster, spec, seeds)
            assert view["pages"] == 1
        assert web.hits("/status/200") == 2


def test_typed_seeds_and_the_lists_of_a_local_crawl_vouch_for_themselves(tmp_path: Path) -> None:
    """By the command: what the operator names opens its own host and port."""
    with WebThread() as web:
        typed = command(
            *("crawl", web.url("/good/3/0"), "--rate", 0, "--workers", 1, "--json"), cwd=tmp_path
        )
        assert json.loads(typed.stdout.splitlines()[-1])["pages"] == 3, typed.stderr
        (tmp_path / "seeds").write_text(web.url("/good/3/0") + "\n")
        listed = command(
            *("crawl", "--seeds", "seeds", "--rate", 0, "--workers", 1, "--json"), cwd=tmp_path
        )
        summary = json.loads(listed.stdout.splitlines()[-1])
        assert (listed.returncode, summary["pages"], summary["failed"]) == (0, 3, 0)


async def test_a_client_of_the_data_folder_has_its_names_looked_up_by_the_master(
    tmp_path: Path,
) -> None:
    """Over the socket, as by `submit` to `up`: what the client itself says to be open is thrown
    away."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path, 1):
        seed = f"http://localhost:{web.port}/status/200"
        spec = JobSpec("asked", politeness=FAST, fetch=Fetch(retries=0))
        args = {**submission(spec, [seed], None), "opened": ["10.0.0.1:80", f"x:{web.port}"]}
        async with MeshClient(controls_in(tmp_path)) as client:
            replies = await asyncio.gather(*(client.ask("submit", args) for _ in range(2)))
            assert len({reply["job"] for reply in replies}) == 1
            await until(lambda: web.hits("/status/200") >= 1)
    specs = [JOB.decode(data) for data in stored_specs(tmp_path)]
    for stored in specs:
        bound = f"localhost:{web.port}=127.0.0.0/24"
        assert bound in stored.fetch.private_hosts
        assert all(
            entry.startswith(f"localhost:{web.port}=") for entry in stored.fetch.private_hosts
        )


def stored_specs(data: Path) -> list[bytes]:
    store = open_readonly(data)
    try:
        listed = store.query(ListJobs())
    finally:
        store.close()
    assert isinstance(listed, JobList)
    return [run.spec for job in listed.jobs for run in job.runs]
