"""Outputs in parts: by size and by time, of every format, and of a store that a package adds."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crawling import command, items
from tests.integration.test_executors import installed
from tests.integration.test_outputs import N, _check, arguments, kill_and_resume, once, records
from tests.servers.s3 import BUCKET, objects
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import DemoServer, demo_site

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("warcio")
pytest.importorskip("obstore")
pytest.importorskip("moto")

NAMES = ("x.jsonl", "x.csv", "x.parquet", "x.warc.gz")


@pytest.fixture(scope="module")
def shop() -> Iterator[DemoServer]:
    with demo_site(DemoCatalogue(books=100, tags=4)) as server:
        yield server


def urls_of(name: str, data: bytes) -> list[str]:
    """Of the books in one part, which is a whole file by itself."""
    if name.endswith(".parquet"):
        urls: list[str] = pq.read_table(io.BytesIO(data))["url"].to_pylist()
        return urls
    if name.endswith(".csv"):
        return [row["url"] for row in csv.DictReader(io.StringIO(data.decode()))]
    if name.endswith(".jsonl"):
        return [json.loads(line)["url"] for line in data.splitlines()]
    kinds = records(data)
    assert kinds[0][0] == "warcinfo", "each archive begins with what made it"
    return [url for kind, url, _ in kinds if kind == "response" and "/books/" in url]


@pytest.mark.parametrize("cut", ["rotate_bytes = 8000", "rotate_seconds = 0.5"])
def test_every_format_is_cut_by_size_and_by_time_and_each_part_is_a_whole_file(
    shop: DemoServer, tmp_path: Path, s3: None, cut: str
) -> None:
    """In the data folder and in S3; each item once in all parts together, and none is empty. The
    pace makes the crawl last for several times the time of a part."""
    to = [*NAMES, *(f"s3://{BUCKET}/{name}" for name in NAMES)]
    output = f"to = {json.dumps(to)}\n{cut}"
    began = time.monotonic()
    done = command(*arguments(shop, tmp_path, output, "--rate", 50, "--json"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began > 2, "long enough for the test to mean something"
    local = {path.name: path.read_bytes() for path in (tmp_path / "d").glob("x-*")}
    for files in (local, objects()):
        for name in NAMES:
            stem, _, ending = name.partition(".")
            parts = {k: v for k, v in files.items() if k.startswith(stem) and k.endswith(ending)}
            assert len(parts) > 1, (name, cut)
            assert set(parts) == {f"{stem}-{n:05}.{ending}" for n in range(len(parts))}
            each = [urls_of(part, data) for part, data in sorted(parts.items())]
            assert once([url for urls in each for url in urls]), name
            assert all(parts.values()), "no part is empty"
            assert ending == "warc.gz" or all(each), "no part is empty"
    assert all(_check(path) == 0 for path in (tmp_path / "d").glob("x-*.warc.gz"))


STORE = """
from pathlib import Path

class Keeper:
    def __init__(self, path):
        self.path = Path(path)
        self.path.mkdir(exist_ok=True)

    def put(self, name, items):
        aside = self.path / f".{name}"
        aside.write_bytes(b"".join(item + b"\\n" for item in items))
        aside.rename(self.path / f"{name}.jsonl")

    def close(self):
        pass
"""


def test_after_kill_9_a_store_of_a_package_holds_each_item_once(
    shop: DemoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches come again under their names."""
    package = installed(tmp_path / "installed", STORE, {"stores": ("Keeper",)})
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    place = f'[plugins.keeper]\npath = "{tmp_path / "kept"}"'
    kill_and_resume(shop, tmp_path, f'to = ["plugin:keeper"]\n{place}')
    files = sorted((tmp_path / "kept").glob("*.jsonl"))
    assert len(files) > 1, "in batches, as they came"
    assert once([item["url"] for path in files for item in items(path)])


def test_a_store_of_a_package_hears_of_a_run_without_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of none, once."""
    package = installed(tmp_path / "installed", STORE, {"stores": ("Keeper",)})
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    (tmp_path / "job.toml").write_text(
        'name = "none"\nseeds = ["http://127.0.0.1:9/"]\n[fetch]\nretries = 0\n'
        "[politeness]\nrobots = false\n"
        f'[output]\nto = ["plugin:keeper"]\n[plugins.keeper]\npath = "{tmp_path / "kept"}"\n'
    )
    args = ("--data", "d", "--workers", 1)
    done = command("crawl", "--job", "job.toml", "--allow-private", *args, cwd=tmp_path)
    assert done.returncode == 1, "no page could be had"
    (file,) = (tmp_path / "kept").iterdir()
    assert (file.name, file.read_bytes()) == ("run-1-after-0.jsonl", b"")
    file.unlink()
    assert command("crawl", "--resume", *args, cwd=tmp_path).returncode == 0
    assert not list((tmp_path / "kept").iterdir()), "it was told, and that is known"
    with sqlite3.connect(tmp_path / "d" / "zcrawl.db") as database:
        (at,) = database.execute("SELECT part_at FROM outputs").fetchone()
    assert at > 0


assert N == 100, "the shop above has as many books as the one of test_outputs"
