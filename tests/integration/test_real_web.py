"""Traps, page directives, canonical links and sitemaps, through the whole crawler."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.crawling import command
from tests.web.server import MisbehavingWeb, WebThread

JOB = """
name = "j"
seeds = [{seeds}]
[politeness]
rate = 0
concurrency = 8
{more}
"""


class Story:
    """One crawl by command: the state and reason of each path, and what the server saw."""

    def __init__(
        self, folder: Path, web: MisbehavingWeb, *paths: str, more: str = "", swept: bool = True
    ) -> None:
        seeds = ", ".join(json.dumps(web.url(path)) for path in paths)
        (folder / "job.toml").write_text(JOB.format(seeds=seeds, more=more))
        done = command(
            "crawl", "--job", "job.toml", "--workers", 1, "--data", "d", "--json", cwd=folder
        )
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout, done.stderr
        with contextlib.closing(sqlite3.connect(folder / "d" / "zcrawl.db")) as database:
            rows = database.execute("SELECT url, state, reason, prio FROM requests").fetchall()
            pages = database.execute("SELECT final_url, canonical, alternates FROM pages")
            self.recorded = {
                url.decode().removeprefix(web.origin): (canonical, alternates)
                for url, canonical, alternates in pages
            }
        self.reasons = {url.decode().removeprefix(web.origin): reason for url, _, reason, _ in rows}
        self.done = {url.decode().removeprefix(web.origin) for url, s, _, _ in rows if s == 1}
        assert not swept or all(state != 0 for _, state, _, _ in rows)

    def count(self) -> Counter[str]:
        return Counter(self.reasons.values())


@pytest.mark.parametrize(
    ("path", "reason", "most"),
    [
        ("/calendar/2025/1", "trap_calendar", 60),
        ("/deeper/", "trap_repetition", 10),
        ("/facets", "trap_variants", 60),
        ("/longer", "trap_url_length", 10),
        ("/wider", "trap_parameters", 40),
        ("/winding/", "trap_segments", 40),
    ],
)
def test_an_endless_site_ends(tmp_path: Path, path: str, reason: str, most: int) -> None:
    """Each trap ends in a few pages, and the link that was not followed has its reason."""
    with WebThread() as web:
        story = Story(tmp_path, web, path, more="[traps]\nmax_variants = 50")
        assert story.count()[reason] >= 1
        assert len(web.log) <= most + 1


def test_an_endless_calendar_that_no_pattern_describes_ends(tmp_path: Path) -> None:
    """After 200 pages of its shape and 200 more in a row that say nothing new. The rest of what was
    found is skipped with that reason, without being fetched."""
    with WebThread() as web:
        story = Story(tmp_path, web, "/almanac/2031/5", more="[traps]\ncalendars = false")
        assert story.count()["trap_shape"] >= 1
        assert 400 <= len(story.done) <= 600
        assert len(web.log) == len(story.done) + 1  # robots.txt


def test_an_archive_of_articles_is_read_to_its_end(tmp_path: Path) -> None:
    """600 articles of one shape, and no page of them is taken for a trap."""
    with WebThread() as web:
        story = Story(tmp_path, web, "/journal/0")
        assert len(story.done) == 630
        assert set(story.count()) == {""}


def test_the_pages_of_a_host_can_be_limited(tmp_path: Path) -> None:
    """Ten pages, and every other URL says why it was not fetched."""
    with WebThread() as web:
        story = Story(tmp_path, web, "/fan/40", more="[scope]\nmax_pages_per_host = 10")
        assert len(story.done) == 10
        assert story.count()["host_page_limit"] == 31


def test_a_site_that_lies_about_missing_pages_is_found_out(tmp_path: Path) -> None:
    """Soft 404s are skipped; a page about 404 on an honest site is kept."""
    lying = MisbehavingWeb(catch_all="lying")
    with WebThread(lying):
        story = Story(tmp_path, lying, "/lying")
        assert story.done == {"/lying", "/lying/good"}
        assert story.count()["soft_404"] == 2
    with WebThread() as honest:
        (tmp_path / "h").mkdir()
        assert Story(tmp_path / "h", honest, "/about-404").done == {"/about-404"}


def test_what_pages_ask_of_robots_is_obeyed_unless_the_job_says_no(tmp_path: Path) -> None:
    """noindex: not kept, but followed. nofollow: kept, but not followed."""
    with WebThread() as web:
        story = Story(tmp_path, web, "/tagged")
        unkept = {path for path, reason in story.reasons.items() if reason == "noindex"}
        assert unkept == {"/tagged/meta-noindex", "/tagged/header-noindex"}
        leaves = {path for path in story.reasons if path.endswith("/leaf")}
        names = ("meta-noindex", "header-noindex", "other")  # not: rel-nofollow and its like
        assert leaves == {f"/tagged/{name}/leaf" for name in names}
    with WebThread() as web:
        (tmp_path / "all").mkdir()
        more = "nofollow = false\nnoindex = false"
        assert len(Story(tmp_path / "all", web, "/tagged", more=more).done) == 13


def test_canonical_links_are_recorded_and_collapse_when_asked(tmp_path: Path) -> None:
    """By default every spelling is a page; a job may want the canonical one only."""
    with WebThread() as web:
        plain = Story(tmp_path, web, "/variants")
        assert len(plain.done) == 4
        canonical, alternates = plain.recorded["/variants/two"]
        assert canonical.decode() == web.url("/variants/one")
        assert json.loads(alternates) == [["de", web.url("/variants/eins")]]
    with WebThread() as web:
        (tmp_path / "c").mkdir()
        more = "[scope]\ncollapse_canonical = true"
        story = Story(tmp_path / "c", web, "/variants", more=more)
        assert story.done == {"/variants", "/variants/one"}
        assert story.count()["canonical"] == 2


@pytest.mark.parametrize("pages", [2, 3, 7])
def test_of_pages_that_name_each_other_as_canonical_one_stays(tmp_path: Path, pages: int) -> None:
    """Whichever is read last; the others give way."""
    with WebThread() as web:
        more = "[scope]\ncollapse_canonical = true"
        story = Story(tmp_path, web, f"/ring/{pages}", more=more)
        assert len(story.done) == 2
        assert story.count()["canonical"] == pages - 1
        assert len(web.log) == pages + 2


def test_http_and_www_variants_collapse_when_asked(tmp_path: Path) -> None:
    """The first one found is crawled, and none twice; see also tests/unit/frontier/test_url."""
    with WebThread() as web:
        www = web.url("/fan/2").replace("127.0.0.1", "www.localhost")
        (tmp_path / "job.toml").write_text(
            f'name = "j"\nseeds = ["{www}", "{www.replace("www.", "")}"]\n'
            "[scope]\ncollapse_www = true\n[politeness]\nrate = 0\n"
        )
        done = command("crawl", "--job", "job.toml", "--workers", 1, "--json", cwd=tmp_path)
        summary = json.loads(done.stdout.splitlines()[-1])
        assert summary["pages"] + summary["failed"] <= 3


@pytest.mark.parametrize("by", ["job", "robots"])
def test_sitemaps_bring_their_pages(tmp_path: Path, by: str) -> None:
    """An index with gzip, text, RSS and a broken one, named by the job or by robots.txt."""
    with WebThread() as web:
        index = web.url("/maps/index.xml")
        web.robots = f"Sitemap: {index}\n".encode()
        more = f'[sitemaps]\nurls = ["{index}"]' if by == "job" else "[sitemaps]\nrobots = true"
        story = Story(tmp_path, web, "/good/1/0", more=more)
        listed = {"/fan/3/0", "/fan/3/1", "/fan/3/2", "/good/2/0", "/good/2/1", "/fan/4/0"}
        assert story.done == {"/good/1/0", *listed}
        assert story.count()["sitemap"] == 6
        paths = [hit.path for hit in web.log]
        assert paths.index("/fan/3/1") < paths.index("/fan/3/0"), "the newer one goes first"


def test_a_sitemap_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """50,000 entries are of the run, the rest is not; nothing of that takes the crawl down."""
    with WebThread() as web:
        more = f'[sitemaps]\nurls = ["{web.url("/maps/many.txt")}"]\n[scope]\nmax_pages = 3'
        story = Story(tmp_path, web, "/good/1/0", more=more, swept=False)
        listed = [path for path in story.reasons if path.startswith("/fan/60000/")]
        assert len(listed) == 50_000
        assert len(story.done) == 3


def test_robots_txt_is_followed_to_where_it_is_and_read_to_its_limit(tmp_path: Path) -> None:
    """A redirect leads to the rules; text after 500 KiB is ignored."""
    rules = b"User-agent: *\nDisallow: /fan/6/1\n" + b"# x\n" * 130_000
    rules += b"Disallow: /fan/6/2\n"
    with WebThread(MisbehavingWeb(robots=rules)) as there, WebThread() as web:
        web.robots, web.robots_status = b"", 301
        web.robots_headers = (f"Location: {there.url('/robots.txt')}",)
        fetch = f'[fetch]\nprivate_hosts = ["127.0.0.1:{there.port}"]'
        story = Story(tmp_path, web, "/fan/6", more=fetch)
        assert story.reasons["/fan/6/1"] == "robots"
        assert "/fan/6/2" in story.done
        assert [hit.path for hit in there.log] == ["/robots.txt"]
