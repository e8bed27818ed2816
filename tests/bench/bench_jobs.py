"""`make bench-jobs`: what extraction and outputs cost, measured side by side on this machine.

Prints the tables and writes them into docs/benchmarks.md between the markers. A measurement, never
a test: nothing here fails because a figure is low.
"""

from __future__ import annotations

import argparse
import os

from tests.bench import bench_extract, bench_outputs
from tests.bench.bench import REPORT, REPOSITORY, machine, say, write_report


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-jobs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="at most (default: 150 s of them)")
    parser.add_argument("--no-exports", action="store_true", help="without a million items")
    parser.add_argument("--quick", action="store_true", help="3 rounds, nothing is written")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    say("ten fields of a page of 50 KB")
    sections = [f"### Extraction\n\n{bench_extract.report()}"]
    say("the PostgreSQL manual with and without outputs")
    rounds = 3 if options.quick else max(1, options.rounds)
    sections.append(f"### Outputs\n\n{bench_outputs.crawls(rounds)}")
    if not (options.no_exports or options.quick):
        say("exports of a million items")
        sections.append(f"### Exports\n\n{bench_outputs.exports()}")
    spread = "Medians (lowest–highest; of outputs, quartiles)."
    basis = f"Machine: {machine()}; load before: {load:.1f}. {spread}"
    text = "\n\n".join([basis, *sections])
    print(text)
    if not options.quick:
        write_report(text, "jobs")
        say(f"written to {REPORT.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
