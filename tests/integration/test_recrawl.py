"""A job that runs again, through the whole crawler: conditional requests, changes, intervals."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command, crawl, items, start, wait_until
from tests.web.server import Hit, MisbehavingWeb, WebThread
from tests.web.shelf import Document
from zcrawl.model.extraction import Block, Field
from zcrawl.model.spec import Fetch, JobSpec, Politeness, Recrawl, Scope
from zcrawl.roles.embedded import EmbeddedCluster

EVERY = Recrawl(True, 0.0, 0.0, 0.0)  # every run looks at every page
KIND = Politeness(rate=0.0, concurrency=16, spread=True, robots=False)
DATE = "Tue, 03 Nov 2026 10:00:00 GMT"


def job(**changes: Any) -> JobSpec:
    return JobSpec("site", **{"politeness": KIND, "recrawl": EVERY, **changes})


class Site:
    """A shelf, a cluster, and runs of one job on it."""

    def __init__(self, web: MisbehavingWeb, cluster: EmbeddedCluster, folder: Path) -> None:
        self.web, self._cluster, self._folder = web, cluster, folder
        self._runs = 0

    async def run(self, *names: str, spec: JobSpec | None = None) -> dict[str, Any]:
        """The job's view after one more run from these pages."""
        self._runs += 1
        self.web.log.clear()
        self.out = self._folder / f"{self._runs}.jsonl"
        seeds = [self.web.url(f"/shelf/{name}") for name in names]
        return await crawl(self._cluster, spec or job(), seeds, self.out)

    def last_hits(self) -> dict[str, Hit]:
        """What the last run asked for, each page once."""
        hits = {hit.path.removeprefix("/shelf/"): hit for hit in self.web.log}
        assert len(hits) == len(self.web.log), [hit.path for hit in self.web.log]
        return hits

    def kept(self) -> set[str]:
        return {item["url"].rpartition("/shelf/")[2] for item in items(self.out)}


def counts(view: dict[str, Any]) -> tuple[int, int, int]:
    return view["pages"], view["unchanged"], view["items"]


@pytest.mark.parametrize("engine", ["http", "httpx"])
async def test_a_second_run_keeps_only_what_is_new_or_changed(tmp_path: Path, engine: str) -> None:
    """Unchanged pages are asked for with their ETag and counted; the page behind an unchanged one
    is looked at although nobody links to it in this run; a new link is found."""
    spec = job(fetch=Fetch(engine=engine))
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 2) as cluster:
        site = Site(web, cluster, tmp_path)
        web.shelf = {
            "top": Document(links=("a", "b"), etag='"top"'),
            "a": Document("a", links=("deep",), etag='"a"'),
            "b": Document("b", etag='"b"'),
            "deep": Document("deep", etag='"deep"'),
        }
        first = await site.run("top", spec=spec)
        assert counts(first) == (4, 0, 4)
        assert not any("if-none-match" in hit.headers for hit in web.log)

        web.shelf["b"] = Document("b, new", links=("newer",), etag='"b2"')
        web.shelf["deep"] = Document("deep, new", etag='"deep2"')
        web.shelf["newer"] = Document("newer")
        second = await site.run("top", spec=spec)
        assert counts(second) == (5, 2, 3)
        assert site.kept() == {"b", "deep", "newer"}
        sent = {name: hit.headers.get("if-none-match") for name, hit in site.last_hits().items()}
        assert sent == {"top": '"top"', "a": '"a"', "b": '"b"', "deep": '"deep"', "newer": None}
        assert second["statuses"] == {"200": 3, "304": 2}

        third = await site.run("top", spec=spec)
        assert counts(third) == (5, 5, 0)


CASES: dict[str, tuple[Document, Document, tuple[str | None, str | None], bool, int]] = {
    # before, after, (If-None-Match, If-Modified-Since) of the second run, unchanged, status
    "a strong ETag": (
        Document("x", etag='"1"'),
        Document("x", etag='"1"'),
        ('"1"', None),
        True,
        304,
    ),
    "a weak ETag": (
        Document("x", etag='W/"1"'),
        Document("x", etag='W/"1"'),
        ('W/"1"', None),
        True,
        304,
    ),
    "an ETag without quotes": (
        Document("x", etag="abc"),
        Document("x", etag="abc"),
        ("abc", None),
        True,
        304,
    ),
    "an ETag that matches everything": (
        Document("x", etag="*"),
        Document("y", etag="*"),
        (None, None),
        False,
        200,
    ),
    "a date": (
        Document("x", last_modified=DATE),
        Document("x", last_modified=DATE),
        (None, DATE),
        True,
        304,
    ),
    "both": (
        Document("x", etag='"1"', last_modified=DATE),
        Document("x", etag='"1"', last_modified=DATE),
        ('"1"', DATE),
        True,
        304,
    ),
    "a date that is none": (
        Document("x", last_modified="last tuesday"),
        Document("x", last_modified="last tuesday"),
        (None, None),
        True,
        200,
    ),
    "a huge ETag": (
        Document("x", etag='"' + "1" * 600 + '"'),
        Document("x", etag='"' + "1" * 600 + '"'),
        (None, None),
        True,
        200,
    ),
    "no validator": (Document("x"), Document("x"), (None, None), True, 200),
    "no validator, and a change": (Document("x"), Document("y"), (None, None), False, 200),
    "another ETag, the same page": (
        Document("x", etag='"1"'),
        Document("x", etag='"2"'),
        ('"1"', None),
        True,
        200,
    ),
    "another ETag and another page": (
        Document("x", etag='"1"'),
        Document("y", etag='"2"'),
        ('"1"', None),
        False,
        200,
    ),
    "the same date, another page": (
        Document("x", last_modified=DATE),
        Document("y", last_modified=DATE),
        (None, DATE),
        True,  # the server says so; there is nothing to be done
        304,
    ),
    "a server that always says 304": (
        Document("x", etag='"1"'),
        Document("y", honest=False),
        ('"1"', None),
        True,
        304,
    ),
}


async def test_every_kind_of_server_is_understood(tmp_path: Path) -> None:
    """What is sent, and what becomes of the answer, by what the server gives."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        names = [f"p{n}" for n in range(len(CASES))]
        web.shelf = {name: case[0] for name, case in zip(names, CASES.values(), strict=True)}
        first = await site.run(*names)
        assert counts(first) == (len(CASES), 0, len(CASES))
        web.shelf = {name: case[1] for name, case in zip(names, CASES.values(), strict=True)}
        second = await site.run(*names)
        hits, kept = site.last_hits(), site.kept()
        statuses: dict[str, int] = {}
        for name, (title, case) in zip(names, CASES.items(), strict=True):
            _, _, (tag, date), unchanged, status = case
            headers = hits[name].headers
            sent = headers.get("if-none-match"), headers.get("if-modified-since")
            assert sent == (tag, date), title
            assert (name not in kept) is unchanged, title
            statuses[str(status)] = statuses.get(str(status), 0) + 1
        assert second["statuses"] == statuses
        assert second["unchanged"] == len(CASES) - len(kept)
        third = await site.run(*names)
        assert third["unchanged"] == len(CASES)  # with the newer validators


async def test_a_redirects_target_gets_no_validators_of_another_url(tmp_path: Path) -> None:
    """Neither the target's at the first URL nor the other way round; the hash still tells."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        alone = job(scope=Scope(collapse_redirects=False))  # only what is redirected is asked for
        web.shelf = {
            "old": Document(location="/shelf/new", etag='"old"'),
            "new": Document("x", etag='"new"', last_modified=DATE),
        }
        await site.run("old", spec=alone)
        second = await site.run("old", spec=alone)
        assert counts(second) == (1, 1, 0)
        for hit in site.last_hits().values():
            assert not {"if-none-match", "if-modified-since"} & hit.headers.keys(), hit
        web.shelf["here"] = Document("h", etag='"h"')
        await site.run("here", spec=alone)
        web.shelf["here"].location = "/shelf/there"
        web.shelf["there"] = Document("t", etag='"h"')
        moved = await site.run("here", spec=alone)
        assert site.last_hits()["here"].headers["if-none-match"] == '"h"'
        assert "if-none-match" not in site.last_hits()["there"].headers
        assert "there" in site.last_hits()
        assert moved["failed"] == 0
        web.shelf["moved"] = Document("y", honest=False)
        web.shelf["old"].location = "/shelf/moved"
        third = await site.run("old", spec=alone)
        assert third["failed_reasons"] == {"http_304": 1}


async def test_a_page_behind_a_redirect_is_kept_once_in_all_runs(tmp_path: Path) -> None:
    """First by the redirect; then it is asked for by itself, unchanged, and the redirect is its
    duplicate. When it changes it is kept once more, not twice."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        web.shelf = {"old": Document(location="/shelf/new"), "new": Document("x", etag='"new"')}
        assert counts(await site.run("old")) == (1, 0, 1)
        second = await site.run("old")
        assert counts(second) == (1, 1, 0)
        assert second["skipped_reasons"] == {"duplicate": 1}
        web.shelf["new"] = Document("y", etag='"newer"')
        assert counts(await site.run("old")) == (1, 0, 1)
        assert site.kept() == {"new"}


async def test_a_304_that_nobody_asked_for_is_a_failure(tmp_path: Path) -> None:
    """It has a name, and the page is tried again by the next run."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        web.shelf = {"x": Document("x", honest=False)}
        first = await site.run("x")
        assert (first["pages"], first["failed_reasons"]) == (0, {"http_304": 1})
        web.shelf["x"].honest = True
        assert counts(await site.run("x")) == (1, 0, 1)


async def test_a_page_that_is_gone_is_not_started_from_again(tmp_path: Path) -> None:
    """404 once: the next run does not ask; a page that only failed is asked for again."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        web.shelf = {
            "top": Document(links=("gone", "ill"), etag='"1"'),
            "gone": Document("g"),
            "ill": Document("i", etag='"i"'),
        }
        spec = job(fetch=Fetch(retries=0))
        await site.run("top", spec=spec)
        web.shelf["gone"].status, web.shelf["ill"].status = 404, 500
        web.shelf["ill"].etag = ""
        second = await site.run("top", spec=spec)
        assert second["failed_reasons"] == {"http_404": 1, "http_500": 1}
        web.shelf["ill"] = Document("i", etag='"i"')
        third = await site.run("top", spec=spec)
        assert site.last_hits().keys() == {"top", "ill"}
        assert site.last_hits()["ill"].headers["if-none-match"] == '"i"'
        assert counts(third) == (2, 2, 0)


async def test_what_is_not_due_is_not_asked_for(tmp_path: Path) -> None:
    """By default a page is fetched again after a day; new pages are still found."""
    spec = job(recrawl=Recrawl(True))
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        web.shelf = {"top": Document(links=("a",)), "a": Document("a"), "b": Document("b")}
        await site.run("top", spec=spec)
        second = await site.run("top", "b", spec=spec)
        assert site.last_hits().keys() == {"b"}
        assert second["skipped_reasons"] == {"not_due": 2}
        assert counts(second) == (1, 0, 1)


async def test_a_job_with_other_rules_reads_every_page_again(tmp_path: Path) -> None:
    """An unchanged page has other items when the rules are others."""
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        site = Site(web, cluster, tmp_path)
        web.shelf = {"top": Document("<h1>one</h1>", links=("a",), etag='"1"'), "a": Document("a")}
        await site.run("top")
        rules = (Block(fields={"name": Field(css="h1")}),)
        second = await site.run("top", spec=job(extract=rules))
        assert counts(second)[1] == 0
        assert "one" in {item.get("name") for item in items(site.out)}
        assert not any("if-none-match" in hit.headers for hit in web.log)
        assert counts(await site.run("top", spec=job(extract=rules)))[1] == 2


def test_the_command_tells_what_was_unchanged(tmp_path: Path) -> None:
    """In the closing line, in the summary and in `zcrawl job`, run by run in one data folder."""
    toml = """
name = "site"
seeds = ["{seed}"]
[politeness]
rate = 0
[recrawl]
incremental = true
interval = 0
min_interval = 0
"""
    with WebThread() as web:
        web.shelf = {"top": Document(links=("a",), etag='"1"'), "a": Document("a")}
        (tmp_path / "job.toml").write_text(toml.format(seed=web.url("/shelf/top")))
        run = ("crawl", "--job", "job.toml", "--workers", 1, "--data", "d")
        first = command(*run, "--json", cwd=tmp_path)
        assert json.loads(first.stdout.splitlines()[-1])["unchanged"] == 0, first.stderr
        second = command(*run, cwd=tmp_path)
        assert "2 pages (2 unchanged), 0 failed" in second.stderr
        shown = command("job", "site", "--data", "d", cwd=tmp_path)
        assert ["unchanged", "2"] in [line.split() for line in shown.stdout.splitlines()]
        third = command(*run, "--json", cwd=tmp_path)
        assert json.loads(third.stdout.splitlines()[-1])["unchanged"] == 2


PAGES = 2_500  # more than two chunks of what a leader recalls at once


@pytest.mark.parametrize("requests", [1, 200, 1_000])
def test_a_recrawl_that_is_killed_goes_on_and_looks_at_each_page_once(
    tmp_path: Path, requests: int
) -> None:
    """kill -9 of the whole crawl in the middle of its second run, also while it still recalls what
    it knows: after --resume every page was looked at, one look is counted for each, and only the
    changed ones are kept."""
    toml = """
name = "site"
seeds = ["{seed}"]
[politeness]
rate = 800
concurrency = 32
robots = false
[recrawl]
incremental = true
interval = 0
min_interval = 0
"""
    with WebThread() as web:
        names = [f"p{n}" for n in range(PAGES)]
        web.shelf = {name: Document(name, etag=f'"{name}"') for name in names}
        web.shelf["top"] = Document(links=tuple(names), etag='"top"')
        (tmp_path / "job.toml").write_text(toml.format(seed=web.url("/shelf/top")))
        run = ("crawl", "--job", "job.toml", "--workers", 1, "--data", "d")
        first = command(*run, "--json", cwd=tmp_path)
        assert json.loads(first.stdout.splitlines()[-1])["pages"] == PAGES + 1, first.stderr
        changed = names[::100]
        for name in changed:
            web.shelf[name] = Document(f"{name}, new", etag=f'"{name}-2"')
        web.log.clear()
        process = start(*run, cwd=tmp_path)
        wait_until(lambda: len(web.log) >= requests)
        process.kill()
        process.communicate()
        resumed = command("crawl", "--resume", "--data", "d", "--json", cwd=tmp_path)
        assert resumed.returncode == 0, resumed.stderr
        summary = json.loads(resumed.stdout.splitlines()[-1])
        assert (summary["run"], summary["failed"]) == (2, 0)
        assert (summary["pages"], summary["items"]) == (PAGES + 1, len(changed))
        assert summary["unchanged"] == PAGES + 1 - len(changed)
        request_counts = Counter(hit.path for hit in web.log)
        assert len(request_counts) == PAGES + 1
        assert all("if-none-match" in hit.headers for hit in web.log)
    with contextlib.closing(sqlite3.connect(tmp_path / "d" / "zcrawl.db")) as database:
        looks = database.execute("SELECT checks, changes, COUNT(*) FROM known_pages GROUP BY 1, 2")
        assert {row[:2]: row[2] for row in looks} == {
            (2, 0): PAGES + 1 - len(changed),
            (2, 1): len(changed),
        }
