"""Pages whose text is almost another's, through the whole crawler."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import crawl, items
from tests.unit.parse.test_fingerprint import prose
from tests.web.server import MisbehavingWeb
from tests.web.shelf import Document
from zcrawl.model.spec import Duplicates, JobSpec, Politeness, Recrawl
from zcrawl.roles.embedded import EmbeddedCluster

ONE_BY_ONE = Politeness(rate=0.0, concurrency=1, robots=False)  # so that the order is known
MENU = "<nav>" + " ".join(f"<a href='/shelf/top'>Category {n}</a>" for n in range(60)) + "</nav>"


def article(seed: int, words: int = 400, change: str = "") -> str:
    text = prose(seed, words)
    if change:
        text[words // 2] = change
    return f"{MENU}<h1>{' '.join(text[:5])}</h1><p>{' '.join(text)}</p>"


SITE = {
    "top": Document("<p>all articles</p>", links=("a", "a-print", "b", "a-today", "c", "copy")),
    "a": Document(article(1)),
    "a-print": Document(article(1).replace(MENU, "<nav>back</nav>"), links=("behind",)),
    "a-today": Document(article(1, change="2026")),
    "b": Document(article(2)),
    "c": Document(article(3, words=120)),
    "copy": Document(article(2)),
    "behind": Document(article(4)),
}
COPIES = {"a-print": "a", "a-today": "a", "copy": "b"}


async def run(tmp_path: Path, near: str, out: str = "o.jsonl", **changes: Any) -> dict[str, Any]:
    spec = JobSpec("site", politeness=ONE_BY_ONE, duplicates=Duplicates(near), **changes)
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        web.shelf = dict(SITE)
        return await crawl(cluster, spec, [web.url("/shelf/top")], tmp_path / out)


def name(url: str | None) -> str | None:
    return None if url is None else url.rpartition("/")[2]


async def test_near_duplicates_are_marked_with_the_first_page(tmp_path: Path) -> None:
    """Print view, changed date, copy; pages that share only the menu are not duplicates."""
    view = await run(tmp_path, "mark")
    assert view["pages"] == view["items"] == len(SITE)
    marks = {name(item["url"]): name(item["duplicate_of"]) for item in items(tmp_path / "o.jsonl")}
    assert marks == {page: COPIES.get(page) for page in SITE}


async def test_a_csv_file_has_the_mark_as_a_column(tmp_path: Path) -> None:
    """Although the first rows have none."""
    await run(tmp_path, "mark", "o.csv")
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {name(row["url"]) for row in rows if row["duplicate_of"]} == set(COPIES)


async def test_near_duplicates_are_skipped_when_asked_and_their_links_are_followed(
    tmp_path: Path,
) -> None:
    """They end with their reason, and what is behind them is found."""
    view = await run(tmp_path, "skip")
    assert view["skipped_reasons"] == {"near_duplicate": len(COPIES)}
    kept = {name(item["url"]) for item in items(tmp_path / "o.jsonl")}
    assert kept == SITE.keys() - COPIES.keys()


@pytest.mark.parametrize("near", ["mark", "skip"])
async def test_a_recrawl_and_duplicates_go_together(tmp_path: Path, near: str) -> None:
    """A second run knows unchanged pages as originals; copies that were skipped are compared
    anew, and what was kept stays unchanged."""
    every = Recrawl(True, 0.0, 0.0, 0.0)
    spec = JobSpec("site", politeness=ONE_BY_ONE, duplicates=Duplicates(near), recrawl=every)
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        web.shelf = dict(SITE)
        seeds = [web.url("/shelf/top")]
        await crawl(cluster, spec, seeds)
        second = await crawl(cluster, spec, seeds)
    skipped = len(COPIES) if near == "skip" else 0
    assert second["skipped"] == skipped
    assert second["unchanged"] == second["pages"] == len(SITE) - skipped
    assert second["items"] == 0


@pytest.mark.parametrize(("distance", "copies"), [(3, 0), (5, 1)])
async def test_a_job_chooses_how_much_two_texts_may_differ(
    tmp_path: Path, distance: int, copies: int
) -> None:
    """Every 80th word is another one: not the same page by default, and the same by its wish."""
    revised = prose(5)
    revised[::80] = [f"revised{n}" for n in range(len(revised[::80]))]
    politeness, near = ONE_BY_ONE, Duplicates("skip", distance)
    spec = JobSpec("site", politeness=politeness, duplicates=near)
    async with MisbehavingWeb() as web, EmbeddedCluster(tmp_path / "d", 1) as cluster:
        web.shelf = {
            "top": Document("<p>two articles</p>", links=("first", "second")),
            "first": Document(f"<p>{' '.join(prose(5))}</p>"),
            "second": Document(f"<p>{' '.join(revised)}</p>"),
        }
        view = await crawl(cluster, spec, [web.url("/shelf/top")])
    assert (view["pages"], view["skipped"]) == (3 - copies, copies)
