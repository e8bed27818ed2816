"""What outputs cost; a part of `make bench-jobs`, and `python -m tests.bench.bench_outputs` alone.

The PostgreSQL manual behind nginx is crawled into the database alone, and with JSON lines and with
Parquet beside it. A crawl ends when its output is complete. Crawls of the kinds are interleaved,
and each one with an output is compared with the mean of the plain crawls right before and right
after it: other work on the machine comes and goes, and slows neighbours alike. JSON lines should
keep 95 % of the speed, Parquet 85 %. Beside it stands the CPU of all processes, which other work
blurs less: what an output costs shows there first. Medians with quartiles; it says where it is and
ends when its time is over, 150 s unless told. Then a million items are exported in each format,
and the memory of the exporting process is told.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.integration.crawling import FAST, crawl
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL
from zcrawl.model.spec import JobSpec, OutputSpec
from zcrawl.roles.embedded import EmbeddedCluster

PLAIN = "database alone"
KINDS = {PLAIN: ("sql",), "JSON lines": ("jsonl",), "Parquet": ("parquet",)}
OUTPUTS = [name for name in KINDS if name != PLAIN]
MOST_S = 150.0
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
            spec = JobSpec("bench", politeness=FAST, output=OutputSpec(to=to))
            view = await crawl(cluster, spec, [url])
            seconds = time.monotonic() - began
    used = sum(os.times()[:4]) - sum(before[:4])
    return view["pages"] / seconds, 1000 * used / view["pages"]


class Figures:
    """Crawls in the order in which they ran: (kind, pages a second, CPU ms a page)."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float]] = []

    def of(self, kind: str) -> list[tuple[float, float]]:
        return [(speed, cpu) for name, speed, cpu in self.rows if name == kind]

    def against_plain(self, kind: str) -> list[tuple[float, float]]:
        """Per cent of the neighbours' speed and CPU, of each crawl that has plain ones on both
        sides. A plain crawl is compared so too: how far its median is from 100 is the noise."""
        percentages = []
        for at, (name, speed, cpu) in enumerate(self.rows):
            before = next((r for r in reversed(self.rows[:at]) if r[0] == PLAIN), None)
            after = next((r for r in self.rows[at + 1 :] if r[0] == PLAIN), None)
            if name == kind and before is not None and after is not None:
                mean_speed, mean_cpu = (before[1] + after[1]) / 2, (before[2] + after[2]) / 2
                percentages.append((100 * speed / mean_speed, 100 * cpu / mean_cpu))
        return percentages


def quartiles(values: Sequence[float], digits: int = 0) -> str:
    if len(values) < 2:
        return f"{values[0]:,.{digits}f}" if values else "–"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def crawls(rounds: int, most_s: float = MOST_S) -> str:
    """As many rounds as fit into the time, at most `rounds`."""
    figures, began = Figures(), time.monotonic()
    with nginx_site(POSTGRES_MANUAL) as site:
        asyncio.run(once(site.url, KINDS[PLAIN]))  # files and code come into the machine's caches
        for number in range(rounds):
            order = OUTPUTS if number % 2 == 0 else OUTPUTS[::-1]
            kinds = [kind for measured in order for kind in (PLAIN, measured)]
            late = number > 0 and time.monotonic() - began > most_s * number / (number + 1)
            if late or number + 1 == rounds:
                kinds.append(PLAIN)  # the last output has a neighbour behind it, too
            for kind in kinds:
                speed, cpu = asyncio.run(once(site.url, KINDS[kind]))
                figures.rows.append((kind, speed, cpu))
                message = f"{kind}: {speed:,.0f} pages/s, {cpu:.2f} CPU ms a page"
                print(f"{time.monotonic() - began:4.0f} s  {message}", file=sys.stderr, flush=True)
            if len(kinds) > 2 * len(OUTPUTS):
                break
    lines = [
        f"| {len(figures.of(OUTPUTS[0]))} rounds | pages/s | speed, % of plain | CPU ms/page | "
        "CPU, % of plain |",
        "|---|---|---|---|---|",
    ]
    for name in KINDS:
        speeds, costs = zip(*figures.of(name), strict=True)
        against = figures.against_plain(name)
        kept, more = [measured[0] for measured in against], [measured[1] for measured in against]
        lines.append(
            f"| {name} | {quartiles(speeds)} | {quartiles(kept)} "
            f"| {quartiles(costs, 2)} | {quartiles(more)} |"
        )
    return "\n".join(lines)


def exports() -> str:
    lines = ["| a million items to | MB | s | peak MB |", "|---|---|---|---|"]
    from zcrawl.store.sql.store import open_sqlite

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        open_sqlite(data / "zcrawl.db").close()
        fill(data / "zcrawl.db")
        for name in ("x.jsonl", "x.csv", "x.parquet"):
            began = time.monotonic()
            args = ["export", "bench-1", "--data", folder, "--out", str(data / name)]
            command = [sys.executable, "-c", PEAK, *args]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds = time.monotonic() - began
            peak = int(done.stdout.split()[-1]) // 1024
            size = (data / name).stat().st_size / 1e6
            lines.append(f"| {name[2:]} | {size:.0f} | {seconds:.0f} | {peak} |")
    return "\n".join(lines)


def fill(path: Path, run: int = 1, count: int = MILLION) -> None:
    """A completed run of a job of its own, with as many default items."""
    import sqlite3

    from zcrawl.submit.read import to_json

    database = sqlite3.connect(path)
    spec = to_json(JobSpec(f"bench-{run}"))
    database.execute(
        "INSERT INTO jobs (id, name, spec, created_at) VALUES (?, ?, ?, 1)",
        (run, f"bench-{run}", spec),
    )
    database.execute(
        "INSERT INTO runs (id, job, state, spec, seed_hosts, seeding, created_at, started_at) "
        "VALUES (?, ?, 'completed', ?, '[]', 0, 1, 1)",
        (run, run, spec),
    )
    first = 2 * (run - 1) * MILLION
    rows = ((first + n, run, n, item(n)) for n in range(1, count + 1))
    database.executemany(
        "INSERT INTO items (id, run, seq, kind, data) VALUES (?, ?, ?, 0, ?)", rows
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_outputs")
    parser.add_argument("--rounds", type=int, default=100, help="at most (default: by time)")
    parser.add_argument("--seconds", type=float, default=MOST_S, help="for crawls (default 150)")
    parser.add_argument("--exports", action="store_true", help="a million items, too")
    options = parser.parse_args()
    print(crawls(max(1, options.rounds), options.seconds))
    if options.exports:
        print(f"\n{exports()}")


if __name__ == "__main__":
    main()
