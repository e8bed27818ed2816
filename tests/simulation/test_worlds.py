"""Whole simulated clusters under faults: whatever happens, G1-G5 hold and the crawl completes."""

from __future__ import annotations

import random

import pytest

from tests.simulation.worlds import run_world
from zcrawl.submit.spec import Politeness
from zcrawl.testing.sim_faults import CALM, LEADER_CHANGES_ONLY, Faults, draw
from zcrawl.testing.verify import nothing_was_fetched_twice

SEEDS = 2_000
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_guarantees_hold_in_worlds_full_of_faults(first: int) -> None:
    """Loss, duplication, reordering, crashes, pauses, partitions, leader changes, failed and
    unknown commits, poison and unreadable results, pages that change or fail on a second fetch,
    operators who pause, and a second run of the same job: every guarantee holds."""
    for seed in range(first, first + CHUNK):
        run_world(seed, draw(random.Random(seed)))


@pytest.mark.parametrize("first", range(10_000, 10_200, CHUNK))
def test_a_new_leader_repeats_no_fetch_that_a_live_worker_holds(first: int) -> None:
    """With leader changes only, each URL is fetched once per run (and once per failure)."""
    for seed in range(first, first + CHUNK):
        run_world(seed, LEADER_CHANGES_ONLY, nothing_was_fetched_twice)


def test_without_faults_each_url_is_fetched_once() -> None:
    """In a calm world nothing is fetched twice."""
    for seed in range(20):
        run_world(seed, CALM, nothing_was_fetched_twice)


def test_many_workers_share_one_spread_host_within_its_concurrency() -> None:
    """Eight workers on one host never make more requests at a time than it allows."""
    politeness = Politeness(rate=0, concurrency=3, spread=True, robots=False)
    for seed in range(30):
        faults = Faults(worker_crashes=3, worker_pauses=2, drop=0.05, longest_delay_s=0.2)
        run_world(seed, faults, workers=8, hosts=1, politeness=politeness)


def test_the_same_seed_tells_the_same_story() -> None:
    """Nothing in the machines depends on anything but the seed."""

    def story(seed: int) -> list[object]:
        world = run_world(seed, draw(random.Random(seed)))
        visits = [(visit.url, visit.worker, visit.started) for visit in world.web.visits]
        return [world.trace, visits, world.now, world.events_handled]

    for seed in (3, 17, 42):
        assert story(seed) == story(seed)
    assert story(3) != story(4)
