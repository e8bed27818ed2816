"""Simulated and real faults for as long as wanted. `make soak` runs it.

`make soak ARGS='--seeds 100000 --hours 8'` plays each story of the simulation with so many seeds,
beginning where `make test` ends, until the hours are over. `--faults` then repeats the tests that
kill, pause and cut off real processes, and a console that gets 20,000 random keys, until the hours
are over. Each failure is told at once, with the seed that shows it again; the exit code is 1 if
there was one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from tests.simulation.elections import Race
from tests.simulation.standalone import World as StandaloneWorld
from tests.simulation.test_control_worlds import run_busy
from tests.simulation.test_recrawl_worlds import run_three
from tests.simulation.worlds import run_world
from zcrawl.testing.faults import draw

FIRST_SEED: Final = 100_000  # `make test` plays lower ones
SEEDS: Final = 2_000
HOURS: Final = 0.25
CHUNK: Final = 20
TELL_EVERY_S: Final = 60.0
FAULTS: Final = (
    "tests/integration/test_kill.py",
    "tests/integration/test_cluster_leader.py",
    "tests/integration/test_cluster_network.py",
    "tests/integration/test_cluster_servers.py",
    "tests/integration/test_cluster_workers.py",
)
MONKEY: Final = "tests/console/test_monkey.py"
MONKEY_KEYS: Final = 20_000  # `make test` types 1,500


def _world(seed: int) -> None:
    run_world(seed, draw(random.Random(seed)))


def _election(seed: int) -> None:
    Race(seed).run()


def _operators(seed: int) -> None:
    run_busy(seed, draw(random.Random(seed)))


def _standalone(seed: int) -> None:
    StandaloneWorld(seed).run()


def _three_runs(seed: int) -> None:
    run_three(seed, draw(random.Random(seed)))


STORIES: Final[dict[str, Callable[[int], None]]] = {
    "world": _world,
    "election": _election,
    "operators": _operators,
    "recrawl": _three_runs,
    "standalone": _standalone,
}


def play(story: str, seeds: range) -> list[str]:
    """Return a line for each seed with which a guarantee does not hold."""
    failures = []
    for seed in seeds:
        try:
            STORIES[story](seed)
        except Exception as error:  # the line says what is wrong, and the next seed is played
            notes = "; ".join(getattr(error, "__notes__", ()))
            failures.append(f"{story}, seed {seed}: {type(error).__name__}: {error} {notes}")
    return failures


def chunks(first: int, seeds: int) -> Iterator[tuple[str, range]]:
    """All stories in turns, so that each has its part of the time."""
    for begin in range(first, first + seeds, CHUNK):
        for story in STORIES:
            yield story, range(begin, min(begin + CHUNK, first + seeds))


def simulate(first: int, seeds: int, deadline: float, jobs: int) -> tuple[int, int]:
    """Return how many seeds were played, and with how many of them something was wrong."""
    played = failed = 0
    printed_at = time.monotonic()
    waiting = chunks(first, seeds)
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        running = {
            pool.submit(play, *chunk): chunk for chunk in itertools.islice(waiting, 2 * jobs)
        }
        while running:
            done, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                _, chunk_seeds = running.pop(future)
                played += len(chunk_seeds)
                failures = future.result()
                failed += len(failures)
                for line in failures:
                    print(f"FAILED {line}", flush=True)
                following = next(waiting, None) if time.monotonic() < deadline else None
                if following is not None:
                    running[pool.submit(play, *following)] = following
            if time.monotonic() - printed_at > TELL_EVERY_S:
                printed_at = time.monotonic()
                print(f"{played:,} stories, {failed} failed", flush=True)
    return played, failed


def repeat_faults(deadline: float) -> tuple[int, int]:
    """Run the tests of real faults again and again; return how many rounds, and how many failed."""
    rounds = failed = 0
    while time.monotonic() < deadline:
        command, keys = fault_round(rounds)
        done = subprocess.run(command, env=os.environ | keys, check=False)
        if done.returncode != 0:
            failed += 1
            print(f"FAILED round {rounds}, {keys}", flush=True)
        rounds += 1
    return rounds, failed


def fault_round(number: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of one round, and its variables: the monkey types other keys each time."""
    command = [sys.executable, "-m", "pytest", "-n", "2", *FAULTS, MONKEY]
    seed = f"soak {number}"
    return command, {"ZCRAWL_MONKEY_KEYS": str(MONKEY_KEYS), "ZCRAWL_MONKEY_SEED": seed}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each story; {SEEDS}")
    parser.add_argument("--hours", type=float, default=HOURS, help=f"at most; {HOURS}")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help=f"seed; {FIRST_SEED}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; cores")
    parser.add_argument("--faults", action="store_true", help="then real ones, until time is over")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.hours * 3600.0
    played, failed = simulate(options.first, options.seeds, deadline, options.jobs)
    print(f"simulated: {played:,} stories, {failed} failed")
    if options.faults:
        rounds, failed_rounds = repeat_faults(deadline)
        print(f"real faults: {rounds} rounds, {failed_rounds} failed")
        failed += failed_rounds
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
