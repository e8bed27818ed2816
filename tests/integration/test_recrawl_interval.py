"""When a page is due again, over many runs of one job: by commands, and by what the server sees.

Between two runs a test lets time pass: it moves back, in the data folder, the moments at which the
pages were looked at. Nothing else is touched, so that every interval is the crawler's own.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.integration.crawling import command
from tests.web.server import MisbehavingWeb, WebThread
from tests.web.shelf import Document

HOUR = 3_600.0
TOML = """
name = "site"
seeds = {seeds}
[politeness]
rate = 0
robots = false
[recrawl]
incremental = true
interval = {interval}
min_interval = {least}
max_interval = {most}
"""


class Years:
    """Runs of one job, and the time between them."""

    def __init__(self, web: MisbehavingWeb, folder: Path) -> None:
        self._web, self._folder = web, folder

    def write(self, *names: str, interval: float, least: float, most: float) -> None:
        seeds = json.dumps([self._web.url(f"/shelf/{name}") for name in names])
        text = TOML.format(seeds=seeds, interval=interval, least=least, most=most)
        (self._folder / "job.toml").write_text(text)

    def run(self) -> set[str]:
        """The pages that one more run asks for."""
        self._web.log.clear()
        run = ("crawl", "--job", "job.toml", "--workers", 1, "--data", "d", "--json")
        done = command(*run, cwd=self._folder)
        assert done.returncode == 0, done.stderr
        self.summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {hit.path.removeprefix("/shelf/") for hit in self._web.log}

    def pass_time(self, seconds: float) -> None:
        with contextlib.closing(sqlite3.connect(self._folder / "d" / "zcrawl.db")) as database:
            database.execute("UPDATE known_pages SET checked_at = checked_at - ?", (seconds,))
            database.commit()


def test_what_changes_is_looked_at_more_often_and_what_does_not_more_seldom(tmp_path: Path) -> None:
    """News that are other ones at every look, a notice that never is: their intervals drift apart
    by what the runs find, and end where the job says. A page that begins to change gets
    shorter intervals again."""
    with WebThread() as web:
        years = Years(web, tmp_path)
        years.write("news", "notice", interval=8 * HOUR, least=2 * HOUR, most=18 * HOUR)
        editions = 0

        def run() -> set[str]:
            nonlocal editions
            editions += 1
            web.shelf["news"] = Document(f"edition {editions}", etag=f'"{editions}"')
            return years.run()

        web.shelf["notice"] = Document("no bathing", etag='"1"')
        assert run() == {"news", "notice"}
        years.pass_time(7 * HOUR)
        assert run() == set(), "both after eight hours"
        assert years.summary["skipped"] == 2
        years.pass_time(1 * HOUR)
        assert run() == {"news", "notice"}
        years.pass_time(4 * HOUR)
        assert run() == {"news"}, "4 hours, and 12 from now on"
        years.pass_time(2 * HOUR)
        assert run() == {"news"}, "2 hours"
        years.pass_time(1 * HOUR)
        assert run() == set(), "and not below the least"
        years.pass_time(5 * HOUR)
        assert run() == {"news", "notice"}, "12 hours are over"
        for _ in range(8):  # 18 hours, which is the most
            years.pass_time(2 * HOUR)
            assert run() == {"news"}
        years.pass_time(2 * HOUR)
        web.shelf["notice"] = Document("bathing", etag='"2"')
        assert run() == {"news", "notice"}
        assert years.summary["unchanged"] == 0
        years.pass_time(8 * HOUR)
        assert run() == {"news"}
        years.pass_time(1 * HOUR)
        assert run() == {"notice"}, "half of 18 hours, now that it has changed"


def test_a_job_that_asks_for_shorter_intervals_gets_them_at_once(tmp_path: Path) -> None:
    """Its pages do not wait for the end of an interval that the job no longer allows, nor is a
    page asked for earlier than the job now wants."""
    with WebThread() as web:
        years = Years(web, tmp_path)
        web.shelf["page"] = Document("x")
        years.write("page", interval=24 * HOUR, least=1 * HOUR, most=240 * HOUR)
        assert years.run() == {"page"}
        assert years.run() == set()
        years.write("page", interval=0, least=0, most=0)
        assert years.run() == {"page"}, "every run looks at every page"
        years.write("page", interval=24 * HOUR, least=12 * HOUR, most=240 * HOUR)
        years.pass_time(11 * HOUR)
        assert years.run() == set()
        years.pass_time(1 * HOUR)
        assert years.run() == {"page"}
