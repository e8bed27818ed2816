"""`make bench-dispatch`: tasks through zcrawl, Dask distributed and Celery on Redis, in turns.

Each has two worker processes on this machine:

- throughput: tasks that do nothing, from the first submission until the last result is stored
- latency: from submit to start, while 500 tasks a second arrive in ten submissions; and for zcrawl
  also if each submission is a job of its own
- together: tasks that stay for some seconds; how many run at the same moment

A round is each of them once, so that a machine that gets slower or faster meanwhile does so for
all. Dask and Celery have venvs of their own, in .bench. Prints the tables and writes them into
docs/benchmarks.md between the markers. A measurement, never a test: nothing here fails because a
figure is low.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from tests.bench import measure
from tests.bench.bench import REPORT, REPOSITORY, machine, say, write_report
from tests.bench.dispatch_shared import EACH_S, PER_SECOND, STAY_S
from tests.bench.measure import Spread

PEERS: Final = {"Dask": "distributed", "Celery": "celery[redis]"}
NAMES: Final = ("zcrawl", *PEERS)
TOGETHER: Final = 1_000
DURABILITY: Final = {
    "zcrawl": "each submission and each batch of results: synced before it is acknowledged",
    "Dask": "none: tasks and results in memory",
    "Celery": "Redis' append-only file, synced once a second",
}

Figures: TypeAlias = Mapping[str, float]


def python_of(name: str) -> Path:
    """Return the interpreter of a contestant; a peer's venv is made at its first use."""
    package = PEERS.get(name)
    if package is None:
        return Path(sys.executable)
    venv = REPOSITORY / ".bench" / f"{name.lower()}-venv"
    made = venv / ".made"
    if not made.exists():
        say(f"installing {name} into {venv.relative_to(REPOSITORY)}")
        venv.parent.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "install", "-qq"]
        subprocess.run([*pip, "--disable-pip-version-check", package], check=True)
        made.touch()
    return venv / "bin" / "python"


def version_of(name: str) -> str:
    package = PEERS.get(name, name).partition("[")[0]
    if name not in PEERS:
        return f"{name} {importlib.metadata.version(package)}"
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    answer = subprocess.run([python_of(name), "-c", code], capture_output=True, text=True)
    return f"{name} {answer.stdout.strip()}"


def run(name: str, what: str, *options: object) -> Figures:
    module = f"tests.bench.dispatch_{name.lower()}"
    command: list[str | Path] = [python_of(name), "-m", module, what, *map(str, options)]
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as notes:
        cost = measure.run(command, cwd=REPOSITORY, notes=Path(notes))
    figures: Figures = json.loads(cost.stdout.splitlines()[-1])
    say(f"  {name:8} {what:10} " + ", ".join(f"{k} {v:,.2f}" for k, v in figures.items()))
    return figures


class Series:
    """The figures of all rounds."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, str], list[Figures]] = {}

    def add(self, name: str, what: str, figures: Figures) -> None:
        self._rounds.setdefault((name, what), []).append(figures)

    def spread(self, name: str, what: str, figure: str) -> Spread:
        return Spread.of([figures[figure] for figures in self._rounds[name, what]])

    def text(self, name: str, what: str, figure: str, digits: int = 0) -> str:
        return self.spread(name, what, figure).text(digits)


def throughput_table(series: Series, names: Sequence[str]) -> str:
    lines = [
        "| | tasks/s, submit to stored result | zcrawl is faster by | CPU ms/task, all processes "
        "| durability |",
        "|---|---|---|---|---|",
    ]
    best = series.spread("zcrawl", "throughput", "per_s").median
    for name in names:
        rate = series.spread(name, "throughput", "per_s")
        ratio = "–" if name == "zcrawl" else f"{best / rate.median:.1f} ×"
        cpu = series.text(name, "throughput", "cpu_ms", 2)
        lines.append(f"| {name} | {rate.text()} | {ratio} | {cpu} | {DURABILITY[name]} |")
    return "\n".join(lines)


def latency_table(series: Series, names: Sequence[str]) -> str:
    lines = ["| submit to start, ms | median | 90 % | 99 % |", "|---|---|---|---|"]
    for name, what in (*((name, "latency") for name in names), ("zcrawl", "runs")):
        title = name if what == "latency" else f"{name}, each submission a job of its own"
        cells = [series.text(name, what, figure, 1) for figure in ("p50", "p90", "p99")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def together_table(series: Series, names: Sequence[str]) -> str:
    lines = ["| | most at the same moment | s from submit until then |", "|---|---|---|"]
    for name in names:
        most = series.text(name, "together", "most")
        lines.append(f"| {name} | {most} | {series.text(name, 'together', 'after_s', 2)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-dispatch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each (default 5)")
    parser.add_argument("--tasks", type=int, default=20_000, help="of throughput (default 20,000)")
    parser.add_argument("--seconds", type=int, default=10, help="of latency (default 10)")
    parser.add_argument("--quick", action="store_true", help="one round, nothing is written")
    parser.add_argument("--alone", action="store_true", help="without peers, nothing is written")
    options = parser.parse_args()
    names = NAMES[:1] if options.alone else NAMES
    rounds = 1 if options.quick else max(1, options.rounds)
    for name in names:
        python_of(name)
    load, series = os.getloadavg()[0], Series()
    try:
        for number in range(1, rounds + 1):
            say(f"round {number}/{rounds}")
            for name in names:
                series.add(name, "throughput", run(name, "throughput", "--tasks", options.tasks))
            for name, what in (*((name, "latency") for name in names), ("zcrawl", "runs")):
                series.add(name, what, run(name, what, "--seconds", options.seconds))
            for name in names:
                series.add(name, "together", run(name, "together", "--tasks", TOGETHER))
    except measure.CommandFailed as error:
        raise SystemExit(f"bench-dispatch: {error}") from error
    versions = ", ".join(version_of(name) for name in names)
    rate = f"{PER_SECOND} tasks/s in submissions of {PER_SECOND * EACH_S:.0f}, {options.seconds} s"
    basis = f"Machine: {machine()}; load before: {load:.1f}. {versions}."
    text = "\n\n".join(
        [
            f"{basis} Two worker processes each. Median of {rounds} (lowest–highest).",
            f"### {options.tasks:,} tasks that do nothing\n\n{throughput_table(series, names)}",
            f"### {rate}\n\n{latency_table(series, names)}",
            f"### {TOGETHER:,} tasks of {STAY_S:.0f} s\n\n{together_table(series, names)}",
        ]
    )
    print(text)
    if not (options.quick or options.alone):
        write_report(text, "dispatch")
        say(f"written to {REPORT.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
