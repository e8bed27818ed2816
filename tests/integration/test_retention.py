"""Old runs, end to end: archived, removed, kept for a reason; by real masters and commands."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.bench_outputs import PEAK, fill
from tests.integration.crawling import PATIENCE_S, ZCRAWL, command, start, wait_until
from tests.servers.s3 import BUCKET, objects
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import DemoServer, demo_site
from zcrawl.store.sql.store import open_sqlite

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("obstore")
pytest.importorskip("moto")

RUNS = 5
MANY, FEW = 100_000, 5_000
GROWTH_MB = 40  # at most, for twenty times the rows: 100,000 items are 29 MB as JSON lines
# A master that dies at the moment when the archive is complete and the delete is not yet sent.
DYING = """
import os, signal, sys
from zcrawl.master.driver.retention import RetentionLoop

async def die(self, run):
    os.kill(os.getpid(), signal.SIGKILL)

RetentionLoop._delete = die
from zcrawl.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def shop() -> Iterator[DemoServer]:
    with demo_site(DemoCatalogue(books=10, tags=2)) as server:
        yield server


def crawl(shop: DemoServer, folder: Path, retention: str = "", runs: int = 1) -> None:
    """Runs of the job `books`."""
    lines = ['name = "books"', f'seeds = ["{shop.url}", "{shop.url}no-such-page"]']
    lines += ["[politeness]", "rate = 0"]
    (folder / "books.toml").write_text("\n".join([*lines, retention]))
    for _ in range(runs):
        args = ("crawl", "books.toml", "--data", "d", "--workers", 1, "--out", "d/last.jsonl")
        done = command(*args, cwd=folder)
        assert done.returncode == 0, done.stderr


def crawl_again(folder: Path) -> None:
    """One more run, by the cluster that runs."""
    done = command("submit", "--again", "books", "--wait", "--data", "d", cwd=folder)
    assert done.returncode == 0, done.stderr


def answer(folder: Path, *args: object, code: int = 0) -> Any:
    done = command(*args, "--data", "d", "--json", cwd=folder)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def runs_left(folder: Path) -> list[int]:
    return [view["run"] for view in answer(folder, "runs", "books")]


def export(folder: Path, run: int, *args: object) -> bytes:
    done = subprocess.run(
        [*ZCRAWL, "export", "books", "--run", str(run), "--data", "d", *map(str, args)],
        cwd=folder,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_manifest(files: dict[str, bytes], run: int) -> dict[str, Any]:
    """The manifest describes each other file, and has what the run was."""
    manifest: dict[str, Any] = json.loads(files["manifest.json"])
    assert (manifest["name"], manifest["run"], manifest["state"]) == ("books", run, "completed")
    names = [file["name"] for file in manifest["files"]]
    assert sorted([*names, "manifest.json"]) == sorted(files)
    for file in manifest["files"]:
        assert file["bytes"] == len(files[file["name"]])
        assert file["sha256"] == hashlib.sha256(files[file["name"]]).hexdigest()
    assert manifest["files"][0]["rows"] == manifest["counters"]["items"] > 0
    assert manifest["files"][1]["rows"] == 1
    assert sum(manifest["shares"].values()) == manifest["counters"]["admitted"]
    assert manifest["spec"]["retention"]["keep_runs"] == 2
    return manifest


def archived(folder: Path, run: int) -> dict[str, bytes]:
    paths = (folder / f"d/old/books/run-{run}").iterdir()
    return {path.name: path.read_bytes() for path in paths}


def test_old_runs_are_archived_as_exports_and_removed(shop: DemoServer, tmp_path: Path) -> None:
    """Two of five stay, with their job; what a dry run shows is what is removed then."""
    crawl(shop, tmp_path, '[retention]\nkeep_runs = 2\narchive = "old"', RUNS)
    shown = answer(tmp_path, "prune", "books", "--dry-run")["runs"]
    assert [view["run"] for view in shown] == [1, 2, 3]
    assert shown[0]["why"] == "number 5 of the newest; keep_runs is 2"
    assert runs_left(tmp_path) == [5, 4, 3, 2, 1]
    exports = {run: (export(tmp_path, run), export(tmp_path, run, "--failed")) for run in (1, 2, 3)}
    removed = answer(tmp_path, "prune")["runs"]
    assert [(view["run"], view["removed"]) for view in removed] == [(n, True) for n in (1, 2, 3)]
    assert runs_left(tmp_path) == [5, 4]
    assert answer(tmp_path, "job", "books")["job_state"] == "active"
    for run, (items, failed) in exports.items():
        files = archived(tmp_path, run)
        assert (files["items.jsonl"], files["failed.jsonl"]) == (items, failed)
        check_manifest(files, run)
    assert answer(tmp_path, "prune") == {"runs": []}
    with sqlite3.connect(tmp_path / "d/zcrawl.db") as database:
        assert database.execute("SELECT COUNT(*) FROM runs WHERE id < 4").fetchone() == (0,)
        assert database.execute("SELECT COUNT(*) FROM items WHERE run < 4").fetchone() == (0,)


def test_a_running_cluster_removes_on_request_and_says_who_did_it(
    shop: DemoServer, tmp_path: Path
) -> None:
    """By the masters' configuration, for a job that says nothing; also to a folder that no job may
    write to. A changed configuration is used without a restart."""
    crawl(shop, tmp_path, runs=3)
    place = tmp_path / "elsewhere"
    config = f'[retention]\nkeep_runs = 1\narchive = "{place}"\n'
    (tmp_path / "zcrawl.toml").write_text(config)
    up = start("up", "--data", "d", "--workers", 1, cwd=tmp_path)
    try:
        wait_until(lambda: command("nodes", "--data", "d", cwd=tmp_path).returncode == 0)
        done = command("prune", "books", "--data", "d", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "2 runs removed" in done.stderr
        assert runs_left(tmp_path) == [3]
        crawl_again(tmp_path)
        (tmp_path / "zcrawl.toml").write_text("[retention]\nkeep_runs = 2\n")
        assert answer(tmp_path, "reload")["nodes"][0]["error"] == ""
        assert answer(tmp_path, "prune")["runs"] == []
        crawl_again(tmp_path)
        (removed,) = answer(tmp_path, "prune")["runs"]
        assert (removed["run"], removed["removed"], removed["archive"]) == (3, True, "")
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=PATIENCE_S)
    log = (tmp_path / "d" / "zcrawl.log").read_text()
    assert "act by retention" in log
    assert "retention deleted books (run 1)" in log
    assert sorted(path.name for path in (place / "books").iterdir()) == ["run-1", "run-2"]


def test_an_archive_that_cannot_be_written_keeps_the_run(shop: DemoServer, tmp_path: Path) -> None:
    """The command ends with 1, the job names the run and the reason, and a later try works."""
    crawl(shop, tmp_path, '[retention]\nkeep_runs = 2\narchive = "old"', 3)
    (tmp_path / "d" / "old").write_text("not a folder")
    (kept,) = answer(tmp_path, "prune", code=1)["runs"]
    assert (kept["run"], kept["removed"], kept["failures"]) == (1, False, 1)
    assert kept["problem"].startswith("[output_unwritable] cannot make ")
    job = answer(tmp_path, "job", "books")
    assert job["not_removed"] == [{"run": 1, "problem": kept["problem"]}]
    text = command("job", "books", "--data", "d", cwd=tmp_path).stdout
    assert "run 1 kept" in text
    assert runs_left(tmp_path) == [3, 2, 1]
    assert "archive_failed" in (tmp_path / "d" / "zcrawl.log").read_text()
    (tmp_path / "d" / "old").unlink()
    assert answer(tmp_path, "prune")["runs"][0]["removed"]
    assert answer(tmp_path, "job", "books")["not_removed"] == []
    check_manifest(archived(tmp_path, 1), 1)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_archives_go_to_s3_in_every_format(
    shop: DemoServer, tmp_path: Path, s3: None, form: str
) -> None:
    """The rows are those of an export; nothing is left in the data folder."""
    place = f"s3://{BUCKET}/old/runs/"
    lines = f'keep_runs = 2\narchive = "{place}"\narchive_format = "{form}"'
    crawl(shop, tmp_path, f"[retention]\n{lines}", 3)
    export(tmp_path, 1, "--out", f"x.{form}")
    assert answer(tmp_path, "prune")["runs"][0]["removed"]
    prefix = "old/runs/books/run-1/"
    files = {path.removeprefix(prefix): data for path, data in objects(prefix).items()}
    check_manifest(files, 1)
    if form == "parquet":
        rows = pq.read_table(io.BytesIO(files["items.parquet"])).to_pylist()
        assert rows == pq.read_table(tmp_path / "x.parquet").to_pylist()
    else:
        assert files["items.csv"] == (tmp_path / "x.csv").read_bytes()
        assert list(csv.DictReader(io.StringIO(files["items.csv"].decode())))
    assert not list((tmp_path / "d" / "outgoing").iterdir())


def test_s3_that_does_not_answer_keeps_the_run(
    shop: DemoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is that of the storage."""
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    crawl(shop, tmp_path, f'[retention]\nkeep_runs = 1\narchive = "s3://{BUCKET}/x"', 2)
    (kept,) = answer(tmp_path, "prune", code=1)["runs"]
    assert kept["problem"].startswith("[s3_unavailable] ")
    assert runs_left(tmp_path) == [2, 1]


def test_a_leader_that_is_killed_between_archive_and_delete(
    shop: DemoServer, tmp_path: Path
) -> None:
    """The next one writes the same archive again, and each run is deleted once."""
    crawl(shop, tmp_path, '[retention]\nkeep_runs = 2\narchive = "old"', 4)
    args = ["prune", "--data", "d"]
    dying = subprocess.run(
        [sys.executable, "-c", DYING, *args], cwd=tmp_path, timeout=PATIENCE_S, env=os.environ
    )
    assert dying.returncode == -signal.SIGKILL
    before = archived(tmp_path, 1)
    check_manifest(before, 1)
    assert runs_left(tmp_path) == [4, 3, 2, 1]
    removed = answer(tmp_path, "prune")["runs"]
    assert [(view["run"], view["removed"]) for view in removed] == [(1, True), (2, True)]
    after = archived(tmp_path, 1)
    assert after["items.jsonl"] == before["items.jsonl"]
    check_manifest(after, 1)
    with sqlite3.connect(tmp_path / "d/zcrawl.db") as database:
        select = "SELECT run, what FROM client_requests WHERE asked_by = 'retention' ORDER BY run"
        assert database.execute(select).fetchall() == [(1, "delete"), (2, "delete")]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an old run of many items, and one of a few."""
    folder = tmp_path_factory.mktemp("large")
    open_sqlite(folder / "d" / "zcrawl.db").close()
    for run, count in ((1, MANY), (2, FEW)):
        fill(folder / "d" / "zcrawl.db", run, count)
        spec = {"name": f"bench-{run}", "retention": {"keep_days": 1.0, "archive": "old"}}
        with sqlite3.connect(folder / "d" / "zcrawl.db") as database:
            values = (json.dumps(spec).encode(), run)
            database.execute("UPDATE jobs SET spec = ? WHERE id = ?", values)
            database.execute("UPDATE runs SET items = ?, ended_at = 2 WHERE id = ?", (count, run))
    return folder


def test_a_large_run_is_archived_in_the_memory_of_a_small_one(large: Path) -> None:
    """Rows are read by cursor and removed in chunks; all of them are in the archive."""
    peaks = {}
    for run in (2, 1):
        args = ["prune", f"bench-{run}", "--data", "d", "--json"]
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *args],
            cwd=large,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        peaks[run] = int(done.stdout.split()[-1]) // 1024
    assert peaks[1] - peaks[2] < GROWTH_MB, peaks
    for run, count in ((1, MANY), (2, FEW)):
        folder = large / f"d/old/bench-{run}/run-{run}"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["files"][0]["rows"] == count
        with (folder / "items.jsonl").open("rb") as file:
            assert sum(1 for _ in file) == count
    print(f"peak: {peaks} MB")


@pytest.mark.parametrize(
    ("retention", "code", "text"),
    [
        ("keep_runs = -1", "job", "retention.keep_runs is -1; it cannot be negative"),
        ("keep_days = nan", "job", "it must be a finite number"),
        ('keep_runs = 1\narchive = "../x"', "path_not_allowed", "write it without `..`"),
        ('keep_runs = 1\narchive = "ftp://x"', "path_not_allowed", "the only remote place"),
        ('keep_runs = 1\narchive = "s3://a:b@c/x"', "secret_written_out", "written out"),
        ('keep_runs = 1\narchive = "/srv/x"', "path_not_allowed", "outputs.allow"),
        ('archive = "x"', "job", "retention.archive is used when runs are removed"),
        ('keep_runs = 1\narchive_format = "warc"', "job", "use one of jsonl, csv, parquet"),
        ("keep = 1", "unknown_key", "unknown key 'retention.keep'"),
    ],
)
def test_a_retention_that_makes_no_sense_is_refused(
    shop: DemoServer, tmp_path: Path, retention: str, code: str, text: str
) -> None:
    """Before anything is crawled, with the key and what is wrong."""
    lines = f'name = "x"\nseeds = ["{shop.url}"]\n[retention]\n{retention}\n'
    (tmp_path / "x.toml").write_text(lines)
    done = command("crawl", "x.toml", "--data", "d", "--json", cwd=tmp_path)
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert (done.returncode != 0, error["code"]) == (True, code), error
    assert text in error["message"]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("keep_runs = -1", "retention.keep_runs is -1; it must be 0 to"),
        ("keep_days = inf", "retention.keep_days is inf"),
        ('archive = "../x"', "retention.archive: write it without `..`"),
        ('archive = "s3://a:b@c/x"', "a user name or password is written out"),
        ('format = "csv"', "unknown key 'retention.format'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    tmp_path: Path, config: str, text: str
) -> None:
    """By every command, with the file and the key."""
    (tmp_path / "zcrawl.toml").write_text(f"[retention]\n{config}\n")
    done = command("prune", "--data", "d", cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr


def test_prune_without_jobs_or_with_an_unknown_one_is_told(
    shop: DemoServer, tmp_path: Path
) -> None:
    """An empty folder has no database; a wrong name has the nearest one beside it."""
    assert command("prune", "--data", "d", cwd=tmp_path).returncode == 2
    crawl(shop, tmp_path)
    for args in (("prune", "boks"), ("prune", "boks", "--dry-run")):
        done = command(*args, "--data", "d", cwd=tmp_path)
        assert done.returncode == 1
        assert "did you mean 'books'?" in done.stderr
