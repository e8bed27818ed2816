"""`zcrawl export` of large runs: flat memory in every format."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.bench.bench_outputs import MILLION, PEAK, fill
from zcrawl.blobs.folder import FileBlobs
from zcrawl.model.capture import Capture
from zcrawl.model.states import Kept
from zcrawl.store.sql.store import open_sqlite

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("warcio")

FEW = 20_000
GROWTH_MB = 60  # at most, for fifty times the rows: a million are 290 MB as JSON lines


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database with a run of a million default items, and one of a few."""
    folder = tmp_path_factory.mktemp("million")
    open_sqlite(folder / "zcrawl.db").close()
    fill(folder / "zcrawl.db", 1, MILLION)
    fill(folder / "zcrawl.db", 2, FEW)
    yield folder
    (folder / "zcrawl.db").unlink()


def peak_mb(data: Path, run: int, name: str) -> tuple[int, Path]:
    """The exporting process's memory as the kernel saw it at most, and the file."""
    path = data / f"{run}-{name}"
    args = ["export", f"bench-{run}", "--data", str(data), "--out", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *args], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) // 1024, path


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet"])
def test_a_million_items_are_exported_in_the_memory_of_a_few(data: Path, name: str) -> None:
    """All of them, in their order."""
    few, small = peak_mb(data, 2, name)
    many, large = peak_mb(data, 1, name)
    assert many - few < GROWTH_MB, (few, many)
    if name.endswith(".parquet"):
        assert pq.ParquetFile(small).metadata.num_rows == FEW
        file = pq.ParquetFile(large)
        assert file.metadata.num_rows == MILLION
        last = file.read_row_group(file.num_row_groups - 1, ["bytes"])["bytes"].to_pylist()[-1]
        assert last == MILLION
    else:
        with large.open("rb") as file:
            assert sum(1 for _ in file) == MILLION + (name == "x.csv")
            file.seek(-400, 2)
            assert str(MILLION) in file.read().decode().splitlines()[-1]
    large.unlink()


def test_an_archive_is_exported_in_the_memory_of_a_few_pages(tmp_path: Path) -> None:
    """A thousand pages of 200 KB each: 200 MB that cannot be compressed."""
    import random
    import sqlite3

    open_sqlite(tmp_path / "zcrawl.db").close()
    body = FileBlobs(tmp_path / "blobs").put(random.Random(1).randbytes(200_000))
    for run, pages in ((1, 1_000), (2, 40)):
        fill(tmp_path / "zcrawl.db", run, 1)
        with sqlite3.connect(tmp_path / "zcrawl.db") as database:
            rows = (
                ((9 + run) * MILLION + n, run, n, Kept.CAPTURE, capture(n, body))
                for n in range(pages)
            )
            database.executemany(
                "INSERT INTO items (id, run, seq, kind, data) VALUES (?, ?, ?, ?, ?)", rows
            )
    few, _ = peak_mb(tmp_path, 2, "x.warc.gz")
    many, large = peak_mb(tmp_path, 1, "x.warc.gz")
    assert large.stat().st_size > 200_000_000
    assert many - few < GROWTH_MB, (few, many)
    large.unlink()


def capture(n: int, body: str) -> bytes:
    url = f"http://h.test/{n}"
    return msgspec.json.encode(Capture(url, url, 200, [], [], 1e9 + n, body))
