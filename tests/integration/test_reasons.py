"""`zcrawl reasons` through the real command, and the reasons that real crawls store."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

from tests.integration.crawling import command
from tests.web.behaviours import BEHAVIOURS
from tests.web.server import WebThread
from zcrawl.model.reasons.registry import all_reasons, find_reason


def test_a_reason_is_explained_with_what_to_do(tmp_path: Path) -> None:
    """One entry has code, class, meaning and remedy; a parameter does not matter."""
    done = command("reasons", "robots", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert lines["code"] == "robots"
    assert lines["class"] == "skip"
    assert "forbids" in lines["meaning"]
    assert "--no-robots" in lines["remedy"]
    status = command("reasons", "http_404", "--json", cwd=tmp_path)
    view = json.loads(status.stdout)
    assert view["pattern"] == "http_STATUS"
    assert view["class"] == ["failure"]
    assert "HTTP status" in view["meaning"]
    assert view["remedy"]


def test_all_reasons_are_listed_by_class(tmp_path: Path) -> None:
    """The table has each reason once, skips first; --json has the same entries."""
    rows = command("reasons", cwd=tmp_path).stdout.splitlines()
    assert rows[0].split()[:3] == ["class", "code", "meaning"]
    classes = [row.split()[0] for row in rows[1:]]
    assert list(dict.fromkeys(classes)) == ["skip", "failure", "waiting", "refusal"]
    assert len(classes) == len(all_reasons()) == len(set(rows[1:]))
    views = json.loads(command("reasons", "--json", cwd=tmp_path).stdout)
    assert [view["code"] for view in views] == [reason.code for reason in all_reasons()]


def test_an_unknown_reason_names_what_may_be_meant(tmp_path: Path) -> None:
    """Exit 2, one line on stderr, nothing on stdout."""
    done = command("reasons", "robot", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("zcrawl: no reason 'robot'; did you mean robots")
    assert done.stderr.count("\n") == 1
    process = command("reasons", "qqqqqqqq", "--json", cwd=tmp_path)
    assert process.returncode == 2
    assert json.loads(process.stdout)["error"]["code"] == "usage"


def test_each_reason_that_real_crawls_store_is_registered(tmp_path: Path) -> None:
    """All that a hostile web does to a crawl, and what scope and limits leave out, has a name that
    `zcrawl reasons` explains."""
    with WebThread() as web:
        names = [name for name in sorted(BEHAVIOURS) if name != "index"]
        (tmp_path / "seeds").write_text("\n".join(web.url(f"/{name}") for name in names))
        flags: tuple[object, ...] = (
            "--depth",
            1,
            "--retries",
            0,
            "--rate",
            0,
            "--workers",
            1,
            "--timeout",
            2,
        )
        flags += ("--max-pages", 150, "--exclude", "/good/10/1", "--json")
        where = ("--out", tmp_path / "o.jsonl", "--data", tmp_path / "d")
        done = command("crawl", "--seeds", "seeds", *flags, *where, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "d" / "zcrawl.db")) as database:
        stored = {row[0] for row in database.execute("SELECT reason FROM requests")} - {""}
        counted = {row[0] for row in database.execute(
            "SELECT name FROM tallies WHERE kind IN ('failed', 'skipped', 'link', 'dropped')"
        )}  # fmt: skip
        ended = {row[0] for row in database.execute("SELECT reason FROM runs")} - {""}
    assert len(stored) >= 8, stored
    assert counted
    assert [text for text in stored | counted | ended if find_reason(text) is None] == []
