"""`make bench-against TREE=../before`: this tree and another checkout crawl the same site in turns.

For changes that must not cost anything: "within 2 %" is below the noise between two runs on most
machines, but not below the noise of rounds in turns. Both trees run on this interpreter with this
environment's packages, so only zcrawl's own code differs. Prints the ratio of the medians and of
the lowest values; the lowest are the steadier of the two. A measurement, never a test.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.bench import measure
from tests.bench.measure import Spread
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL, PYTHON_MANUAL

REPOSITORY = Path(__file__).resolve().parents[2]
MANUALS = {"postgres": POSTGRES_MANUAL, "python": PYTHON_MANUAL}


def crawl_cpu_ms(tree: Path, url: str, most_pages: int | None) -> tuple[float, float]:
    """Return the CPU time and the wall time of one crawl by this tree's code, in ms a page."""
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as temporary:
        folder = Path(temporary)
        out = folder / "items.jsonl"
        command: list[str | Path] = [sys.executable, "-m", "zcrawl", "crawl", url, "--rate", "0"]
        command += ["--concurrency", "32", "--workers", "1", "--json"]
        command += ["--data", folder / "data", "--out", out]
        if most_pages is not None:
            command += ["--max-pages", str(most_pages)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        cost = measure.run(command, cwd=folder, environment=environment)
        pages = len(out.read_text().splitlines())
    return 1000 * cost.cpu_s / pages, 1000 * cost.wall_s / pages


def compare(other: Path, url: str, rounds: int, most_pages: int | None) -> None:
    trees = {"that tree": other, "this tree": REPOSITORY}
    cpu: dict[str, list[float]] = {name: [] for name in trees}
    wall: dict[str, list[float]] = {name: [] for name in trees}
    for number in range(rounds):
        # Each order half of the time: the second of two may find warmer caches.
        for name in sorted(trees, reverse=bool(number % 2)):
            cpu_ms, wall_ms = crawl_cpu_ms(trees[name], url, most_pages)
            cpu[name].append(cpu_ms)
            wall[name].append(wall_ms)
    for what, values in (("CPU", cpu), ("wall", wall)):
        that, this = Spread.of(values["that tree"]), Spread.of(values["this tree"])
        print(f"{what:5} ms a page  that tree {that.text(3)}  this tree {this.text(3)}")
        print(
            f"      this : that   median {this.median / that.median:.3f}"
            f"   lowest {this.low / that.low:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="another checkout of zcrawl")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--site", choices=sorted(MANUALS), default="postgres")
    parser.add_argument("--max-pages", type=int, help="1 measures what starting and ending costs")
    arguments = parser.parse_args()
    with nginx_site(MANUALS[arguments.site]) as site:
        url = f"{site.url}index.html"
        compare(arguments.tree.resolve(), url, arguments.rounds, arguments.max_pages)


if __name__ == "__main__":
    main()
