"""What outputs cost: `python -m tests.bench.bench_outputs [ROUNDS]`.

The PostgreSQL manual behind nginx is crawled into the database alone, and with JSON lines and with
Parquet beside it, by turns, so that a busy machine slows all three. A crawl ends when its output is
complete. JSON lines should keep 95 % of the speed, Parquet 85 %. Then a million items are exported
in each format, and the memory of the exporting process is told.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.integration.crawling import FAST, crawl
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.spec import JobSpec, Output

KINDS = {"database alone": ("sql",), "JSON lines": ("jsonl",), "Parquet": ("parquet",)}
MILLION = 1_000_000
# Memory as the kernel saw it at most; a child's ru_maxrss would begin with its parent's.
PEAK = """
import sys
from zcrawl.cli.main import run
assert run(sys.argv[1:]) == 0
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


async def once(url: str, to: tuple[str, ...]) -> tuple[float, float]:
    """Pages a second, from the submission to the complete output, and CPU ms a page of all
    processes together: what a machine with other work to do cannot blur."""
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedCluster(Path(folder), 2) as cluster:
            began = time.monotonic()
            spec = JobSpec("bench", politeness=FAST, output=Output(to=to))
            view = await crawl(cluster, spec, [url])
            seconds = time.monotonic() - began
    used = sum(os.times()[:4]) - sum(before[:4])
    return view["pages"] / seconds, 1000 * used / view["pages"]


def crawls(rounds: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    with nginx_site(POSTGRES_MANUAL) as site:
        for _ in range(rounds):
            for name, to in KINDS.items():
                found[name].append(asyncio.run(once(site.url, to)))
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in found.items()
    }
    speed, cpu = medians["database alone"]
    for name, (own_speed, own_cpu) in medians.items():
        print(
            f"{name:15} {own_speed:6.0f} pages/s ({100 * own_speed / speed:.0f} %), "
            f"{own_cpu:.2f} ms CPU a page ({100 * cpu / own_cpu:.0f} %)",
            flush=True,
        )


def exports() -> None:
    from zcrawl.store.store_peewee import open_sqlite

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        open_sqlite(data / "zcrawl.db").close()
        fill(data / "zcrawl.db")
        for name in ("x.jsonl", "x.csv", "x.parquet"):
            began = time.monotonic()
            args = ["export", "bench", "--data", folder, "--out", str(data / name)]
            command = [sys.executable, "-c", PEAK, *args]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds = time.monotonic() - began
            peak = int(done.stdout.split()[-1]) // 1024
            size = (data / name).stat().st_size / 1e6
            print(f"export {name:10} {MILLION} items, {size:.0f} MB in {seconds:.0f} s, {peak} MB")


def fill(path: Path) -> None:
    import sqlite3

    from zcrawl.submit.job_toml import to_json

    database = sqlite3.connect(path)
    spec = to_json(JobSpec("bench"))
    database.execute(
        "INSERT INTO jobs (id, name, spec, created_at) VALUES (1, 'bench', ?, 1)", (spec,)
    )
    database.execute(
        "INSERT INTO runs (id, job, state, spec, seed_hosts, seeding, created_at, started_at) "
        "VALUES (1, 1, 'completed', ?, '[]', 0, 1, 1)",
        (spec,),
    )
    rows = ((n, n, item(n)) for n in range(1, MILLION + 1))
    database.executemany(
        "INSERT INTO items (id, run, seq, kind, data) VALUES (?, 1, ?, 0, ?)", rows
    )
    database.commit()
    database.close()


def item(n: int) -> bytes:
    url = f"https://example.test/books/{n}/the-title-of-a-book"
    return msgspec.json.encode(
        {
            "url": url,
            "final_url": url,
            "status": 200,
            "depth": n % 9,
            "title": f"Book {n}",
            "content_type": "text/html",
            "bytes": n,
            "fetched_at": "2026-01-31T10:00:00.000Z",
            "parent": "https://example.test/",
        }
    )


if __name__ == "__main__":
    crawls(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    exports()
