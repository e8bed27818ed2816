"""`make bench`: zcrawl and Scrapy crawl the same manual, in turns, on the same machine.

Rounds are interleaved (scrapy, zcrawl 1 worker, zcrawl 2 workers, again), so that a machine that
gets slower or faster meanwhile does so for all. Prints the tables and writes them into
docs/benchmarks.md between the markers. A measurement, never a test: nothing here fails because a
figure is low.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench import measure
from tests.bench.measure import Cost, Spread
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL, PYTHON_MANUAL

REPOSITORY = Path(__file__).resolve().parents[2]
ZCRAWL = Path(sys.executable).with_name("zcrawl")
SCRAPY_VENV = REPOSITORY / ".bench" / "scrapy-venv"
SPIDER = Path(__file__).with_name("scrapy_spider.py")
REPORT = REPOSITORY / "docs" / "benchmarks.md"
IDLE_SETTLE_S = 5.0  # after this an idle cluster has allocated what it will


@dataclasses.dataclass(frozen=True)
class Crawl:
    """One finished crawl: what it cost and what it says of itself."""

    cost: Cost
    pages: int
    own_rate: float | None  # pages per second by the crawler's own summary


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table of crawls."""

    name: str
    pages: set[int]
    rate: Spread  # pages per second of the whole process, start-up and exit included
    own_rate: Spread | None
    cpu_ms: Spread  # per page
    peak_mb: Spread


def scrapy_venv() -> Path:
    """Scrapy in a venv of its own, so that neither product's dependencies meet the other's."""
    scrapy = SCRAPY_VENV / "bin" / "scrapy"
    if not scrapy.exists():
        say("installing Scrapy into .bench/scrapy-venv")
        SCRAPY_VENV.parent.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", SCRAPY_VENV], check=True)
        pip: list[str | Path] = [SCRAPY_VENV / "bin" / "python", "-m", "pip", "install", "-qq"]
        subprocess.run([*pip, "--disable-pip-version-check", "scrapy"], check=True)
    return scrapy


def crawl_scrapy(url: str, folder: Path) -> Crawl:
    out = folder / "items.jsonl"
    command: list[str | Path] = [scrapy_venv(), "runspider", SPIDER, "-a", f"url={url}", "-o", out]
    cost = measure.run([*command, "--loglevel", "ERROR"], cwd=folder)
    urls = [json.loads(line)["url"] for line in out.read_text().splitlines()]
    return Crawl(cost, _once(urls, "scrapy"), None)


def crawl_zcrawl(url: str, folder: Path, workers: int) -> Crawl:
    out = folder / "items.jsonl"
    command: list[str | Path] = [ZCRAWL, "crawl", url, "--rate", "0", "--concurrency", "32"]
    command += ["--workers", str(workers), "--data", folder / "data", "--out", out, "--json"]
    cost = measure.run(command, cwd=folder)
    summary = json.loads(cost.stdout.strip().splitlines()[-1])
    items = [json.loads(line) for line in out.read_text().splitlines()]
    html = [item["url"] for item in items if "html" in (item.get("content_type") or "html")]
    return Crawl(cost, _once(html, "zcrawl"), float(summary["pages_per_second"]))


def _once(urls: list[str], name: str) -> int:
    if len(set(urls)) != len(urls):
        raise measure.CommandFailed(f"{name} gave {len(urls) - len(set(urls))} items twice")
    return len(urls)


def in_turns(
    contestants: dict[str, Callable[[Path], Crawl]], rounds: int
) -> dict[str, list[Crawl]]:
    """Each contestant once per round, round after round, each in a folder of its own."""
    results: dict[str, list[Crawl]] = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        for name, crawl in contestants.items():
            with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as folder:
                result = crawl(Path(folder))
            results[name].append(result)
            rate = result.pages / result.cost.wall_s
            say(f"round {number}/{rounds}  {name:18} {result.pages} pages, {rate:,.0f} pages/s")
    return results


def row(name: str, crawls: Sequence[Crawl]) -> Row:
    own = [crawl.own_rate for crawl in crawls if crawl.own_rate is not None]
    return Row(
        name,
        {crawl.pages for crawl in crawls},
        Spread.of([crawl.pages / crawl.cost.wall_s for crawl in crawls]),
        Spread.of(own) if own else None,
        Spread.of([1000 * crawl.cost.cpu_s / crawl.pages for crawl in crawls]),
        Spread.of([crawl.cost.peak_mb for crawl in crawls]),
    )


def crawl_table(rows: Sequence[Row]) -> str:
    lines = [
        "| crawler | pages | pages/s, start to exit | × Scrapy | pages/s, own summary "
        "| CPU ms/page | peak MB, all processes |",
        "|---|---|---|---|---|---|---|",
    ]
    base = next((row.rate.median for row in rows if row.name == "Scrapy"), None)
    for line in rows:
        ratio = f"{line.rate.median / base:.1f}" if base else "–"
        pages = ", ".join(f"{count:,}" for count in sorted(line.pages))
        own = line.own_rate.text() if line.own_rate else "–"
        lines.append(
            f"| {line.name} | {pages} | {line.rate.text()} | {ratio} | {own} "
            f"| {line.cpu_ms.text(2)} | {line.peak_mb.text()} |"
        )
    return "\n".join(lines)


def bench_site(manual: Path, rounds: int, *, scrapy: bool, zcrawl: bool) -> str:
    with nginx_site(manual) as site:
        url = f"{site.url}index.html"
        contestants: dict[str, Callable[[Path], Crawl]] = {}
        if scrapy:
            scrapy_venv()
            contestants["Scrapy"] = lambda folder: crawl_scrapy(url, folder)
        if zcrawl:
            contestants["zcrawl, 1 worker"] = lambda folder: crawl_zcrawl(url, folder, 1)
            contestants["zcrawl, 2 workers"] = lambda folder: crawl_zcrawl(url, folder, 2)
        results = in_turns(contestants, rounds)
    return crawl_table([row(name, crawls) for name, crawls in results.items()])


def small_figures(repeats: int) -> str:
    """Start-up, the shortest crawl, and memory at rest."""
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as temporary:
        folder = Path(temporary)
        helps = [measure.run([ZCRAWL, "--help"], cwd=folder).wall_s for _ in range(repeats)]
        with nginx_site(POSTGRES_MANUAL) as site:
            ones = []
            for number in range(max(3, repeats // 2)):
                command: list[str | Path] = [ZCRAWL, "crawl", f"{site.url}index.html", "--json"]
                command += ["--max-pages", "1", "--data", folder / f"one-{number}"]
                command += ["--out", folder / f"one-{number}.jsonl"]
                command += ["--workers", "1"]
                ones.append(measure.run(command, cwd=folder))
        master_mb, worker_mb = idle_memory(folder)
    workers = ", ".join(f"{mb:.0f}" for mb in worker_mb)
    walls = Spread.of([run.wall_s for run in ones])
    cpus = Spread.of([run.cpu_s for run in ones])
    return "\n".join(
        [
            "| figure | measured | wanted |",
            "|---|---|---|",
            f"| `zcrawl --help`, s | {Spread.of(helps).text(2)} | ≤ 0.30 |",
            f"| crawl of one page, start to exit, s | {walls.text(2)} | ≤ 2.50 |",
            f"| CPU of that, s: what start and stop cost every crawl | {cpus.text(2)} | – |",
            f"| idle master, MB resident | {master_mb:.0f} | ≤ 70 |",
            f"| idle worker, MB resident | {workers} | ≤ 60 |",
        ]
    )


def idle_memory(folder: Path) -> tuple[float, list[float]]:
    """Resident memory of `zcrawl up` and of each of its children, once all is quiet."""
    process = subprocess.Popen(
        [ZCRAWL, "up", "--workers", "1", "--data", folder / "idle"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(IDLE_SETTLE_S)
        parent, *children = measure.tree(process.pid)
        if process.poll() is not None or not children:
            process.kill()
            raise measure.CommandFailed(f"zcrawl up did not stay: {process.communicate()[1]}")
        return measure.resident_mb(parent), [measure.resident_mb(child) for child in children]
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def machine() -> str:
    """What the figures depend on, without a date or a name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpu = ", ".join(sorted(models)) or platform.machine()
    return f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GB, Python {platform.python_version()}"


def versions() -> str:
    python = SCRAPY_VENV / "bin" / "python"
    if not python.exists():
        return ""
    code = "import importlib.metadata as m; print('Scrapy', m.version('scrapy'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def write_report(text: str, section: str = "bench") -> None:
    """Replaces what stands between the markers; the rest of the page is written by people."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    old = REPORT.read_text() if REPORT.exists() else f"# Benchmarks\n\n{begin}\n{end}\n"
    if begin not in old or end not in old:
        raise SystemExit(f"{REPORT} has no lines {begin} and {end}: nothing was written")
    head, rest = old.split(begin, 1)
    REPORT.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="crawls of each kind (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round, nothing is written")
    parser.add_argument("--only", choices=["scrapy", "zcrawl"], help="half of it, nothing written")
    parser.add_argument("--python-manual", action="store_true", help="that manual as well")
    options = parser.parse_args()
    rounds = 1 if options.quick else max(1, options.rounds)
    which = {"scrapy": options.only != "zcrawl", "zcrawl": options.only != "scrapy"}
    sections = []
    try:
        manuals = [("PostgreSQL manual", POSTGRES_MANUAL)]
        if options.python_manual:
            manuals.append(("Python manual", PYTHON_MANUAL))
        for name, manual in manuals:
            say(f"{name}, served by nginx on loopback")
            sections.append(f"### {name}\n\n{bench_site(manual, rounds, **which)}")
        if which["zcrawl"]:
            say("start-up, one page, memory at rest")
            sections.append(f"### At rest\n\n{small_figures(3 if options.quick else 10)}")
    except measure.CommandFailed as error:
        raise SystemExit(f"bench: {error}") from error
    basis = f"Machine: {machine()}. {versions()}. Median of {rounds} (lowest–highest)."
    text = "\n\n".join([basis, *sections])
    print(text)
    if not options.quick and options.only is None:
        write_report(text)
        say(f"written to {REPORT.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
