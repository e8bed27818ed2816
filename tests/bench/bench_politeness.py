"""What the address guard and robots.txt add to the CPU of a crawl.

    python -m tests.bench.bench_politeness [--rounds 10]

The PostgreSQL manual, served by nginx on loopback, with one worker: in turns with both and with
neither. robots.txt is switched off by the job, the guard by taking its code out (`plain_crawl`),
since no user can. Prints the CPU per page of both, and their ratio round by round: a machine that
does something else meanwhile does it to both halves of a round. Wanted is at most 1.03.

On a machine that is busy otherwise that ratio is mostly noise, so the parts are timed by themselves
too: what the guard and the rules are asked for one page, the least of several rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import measure
from tests.bench.bench import say
from tests.bench.measure import Spread
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.robots import RobotsRules

LAUNCHER = [sys.executable, "-m", "tests.bench.plain_crawl"]
REPOSITORY = Path(__file__).resolve().parents[2]


def crawl(url: str, polite: bool) -> float:
    """CPU milliseconds per page."""
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as temporary:
        folder = Path(temporary)
        command = [*LAUNCHER, "with" if polite else "without", "crawl", url, "--json"]
        command += ["--rate", "0", "--concurrency", "32", "--workers", "1"]
        command += ["--data", str(folder / "data"), "--out", str(folder / "items.jsonl")]
        command += [] if polite else ["--no-robots"]
        cost = measure.run(command, cwd=REPOSITORY, notes=folder)
        pages = int(json.loads(cost.stdout.strip().splitlines()[-1])["pages"])
        return 1000 * cost.cpu_s / pages


ROBOTS = "User-agent: *\n" + "".join(f"Disallow: /private/{n}/*.html\n" for n in range(40))
CALLS = 20_000


def parts_us() -> dict[str, float]:
    """Microseconds a page, of each question that is asked for it."""
    urls = [f"http://127.0.0.1:8080/docs/sql-command-{n}.html" for n in range(1_000)]
    guard = Guard(private_hosts=("127.0.0.1:8080",))  # a vouched host is the dearer case
    rules = RobotsRules.parse(200, ROBOTS.encode(), "zcrawl/0.1 (+https://zcrawl.test)")
    return {
        "guard, before the request": _least_us(lambda url: guard.check(url), urls),
        "guard, in the pool's key": _least_us(lambda url: hash(guard.policy), urls),
        "rules of 40 lines": _least_us(lambda url: rules.allows(url), urls),
    }


def _least_us(ask: Callable[[str], object], urls: list[str]) -> float:
    def once() -> float:
        began = time.process_time()
        for _ in range(CALLS // len(urls)):
            for url in urls:
                ask(url)
        return (time.process_time() - began) / CALLS * 1e6

    return min(once() for _ in range(7))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-politeness", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    parts = parts_us()
    both: list[float] = []
    neither: list[float] = []
    with nginx_site(POSTGRES_MANUAL) as site:
        url = f"{site.url}index.html"
        crawl(url, True)  # the first one warms the disk's cache
        for number in range(1, options.rounds + 1):
            for polite in (True, False) if number % 2 else (False, True):
                (both if polite else neither).append(crawl(url, polite))
            say(f"round {number}/{options.rounds}: {both[-1]:.3f} ms, {neither[-1]:.3f} ms")
    ratios = [cost / other for cost, other in zip(both, neither, strict=True)]
    print(f"guard and robots.txt:  {Spread.of(both).text(3)} ms CPU a page")
    print(f"neither:               {Spread.of(neither).text(3)} ms CPU a page")
    print(f"ratio:                 {Spread.of(ratios).text(3)}, of medians ", end="")
    print(f"{Spread.of(both).median / Spread.of(neither).median:.3f}; wanted <= 1.03")
    for name, us in parts.items():
        print(f"  {name + ':':28} {us:.2f} µs a page")
    share = sum(parts.values()) / 1000 / min(neither)
    print(f"  together {share:.2%} of the least that a page cost")


if __name__ == "__main__":
    main()
