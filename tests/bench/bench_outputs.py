"""What outputs cost; a part of `make bench-jobs`.

The PostgreSQL manual behind nginx is crawled into the database alone, and with JSON lines and with
Parquet beside it, in an order that moves on with each round, so that a busy machine slows all. A
crawl ends when its output is complete. What counts is a crawl's speed by that of the plain crawl of
its own round: JSON lines should keep 95 %, Parquet 85 %. The CPU of all processes is told too:
other work on the machine blurs it less. Then a million items are exported in each format, and the
memory of the exporting process is told.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.bench.measure import Spread
from tests.integration.crawling import FAST, crawl
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.spec import JobSpec, Output

PLAIN = "database alone"
KINDS = {PLAIN: ("sql",), "JSON lines": ("jsonl",), "Parquet": ("parquet",)}
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


def crawls(rounds: int) -> str:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    names = list(KINDS)
    with nginx_site(POSTGRES_MANUAL) as site:
        asyncio.run(once(site.url, ("sql",)))  # files and code come into the machine's caches
        for number in range(rounds):
            for name in names[number % 3 :] + names[: number % 3]:
                found[name].append(asyncio.run(once(site.url, KINDS[name])))
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    lines = [
        f"| {rounds} rounds | pages/s | speed, % of plain | CPU ms/page | CPU, % of plain |",
        "|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        speeds, costs = zip(*rows, strict=True)
        plain = zip(rows, found[PLAIN], strict=True)
        kept, more = zip(*((100 * a[0] / b[0], 100 * a[1] / b[1]) for a, b in plain), strict=True)
        lines.append(
            f"| {name} | {Spread.of(speeds).text()} | {Spread.of(kept).text()} "
            f"| {Spread.of(costs).text(2)} | {Spread.of(more).text()} |"
        )
    return "\n".join(lines)


def exports() -> str:
    lines = ["| a million items to | MB | s | peak MB |", "|---|---|---|---|"]
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
            lines.append(f"| {name[2:]} | {size:.0f} | {seconds:.0f} | {peak} |")
    return "\n".join(lines)


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
