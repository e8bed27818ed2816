"""Whole simulated clusters under faults: whatever happens, G1-G5 hold and the crawl completes."""

from __future__ import annotations

import random

import pytest

from tests.simulation.worlds import run_world
from zcrawl.model.spec import Politeness
from zcrawl.testing.faults import (
    BOGUS_EPOCHS_ONLY,
    CALM,
    DEAF_WORKERS,
    LEADER_CHANGES_ONLY,
    LOST_ATTEMPTS_ONLY,
    MASTERS_AWAY,
    OUTPUT_PAUSES,
    STALLED_LINKS,
    Faults,
    draw,
)
from zcrawl.testing.verify import leadership_never_changed, nothing_was_fetched_twice

SEEDS = 2_000
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_guarantees_hold_in_worlds_full_of_faults(first: int) -> None:
    """Loss, duplication, reordering, crashes, pauses, partitions, leader changes, failed and
    unknown commits, poison and unreadable results, pages that change or fail on a second fetch,
    operators who pause, workers that hear nothing, speak of epochs that nobody had or lose
    attempts, and a second run of the same job: every guarantee holds."""
    for seed in range(first, first + CHUNK):
        run_world(seed, draw(random.Random(seed)))


@pytest.mark.parametrize("first", range(10_000, 10_200, CHUNK))
def test_a_new_leader_repeats_no_fetch_that_a_live_worker_holds(first: int) -> None:
    """With leader changes only, each URL is fetched once per run (and once per failure)."""
    for seed in range(first, first + CHUNK):
        run_world(seed, LEADER_CHANGES_ONLY, nothing_was_fetched_twice)


@pytest.mark.parametrize("first", range(40_000, 40_100, CHUNK))
def test_after_a_long_time_without_masters_nothing_is_fetched_again(first: int) -> None:
    """Every lease is over, workers hold pages and results, and greet the new leader one after the
    other: what each of them holds is adopted, whoever greets first."""
    for seed in range(first, first + CHUNK):
        run_world(seed, MASTERS_AWAY, nothing_was_fetched_twice, pages=60)


@pytest.mark.parametrize("first", range(20_000, 20_100, CHUNK))
def test_a_worker_that_hears_nothing_holds_nothing_up(first: int) -> None:
    """One of them never hears a master, others do not for a while, and all go on saying that they
    live: the others do their work, hosts move at their pace, and the crawl completes."""
    deaf = 0
    for seed in range(first, first + CHUNK):
        world = run_world(seed, DEAF_WORKERS)
        deaf += sum("worker_deaf" in what for _, what in world.trace)
    assert deaf > CHUNK // 2, "the worlds do have deaf workers"


@pytest.mark.parametrize("first", range(60_000, 60_100, CHUNK))
def test_a_link_that_stood_still_brings_all_of_it_together(first: int) -> None:
    """Heartbeats, greetings and results of half a minute arrive in one moment: a worker that was
    lost meanwhile joins once for all of them, and the crawl goes on."""
    stalled = 0
    for seed in range(first, first + CHUNK):
        world = run_world(seed, STALLED_LINKS)
        stalled += sum(" stalls until " in what for _, what in world.trace)
        joins = [(what, moment) for moment, what in world.trace if " worker_joined " in what]
        for worker, moment in joins:
            again = [later for name, later in joins if name == worker and 0 <= later - moment < 0.5]
            assert len(again) <= 3, f"{worker} joins once for each old heartbeat: {again}"
    assert stalled > CHUNK, "the worlds do have links that stand still"


@pytest.mark.parametrize("first", range(40_000, 40_200, CHUNK))
def test_output_files_hold_each_item_once_whenever_a_leader_is_paused(first: int) -> None:
    """Before any effect of an output, also when others have finished it meanwhile; with full disks,
    on one disk or on disks of their own, in one file or in parts."""
    paused = 0
    for seed in range(first, first + CHUNK):
        world = run_world(seed, OUTPUT_PAUSES)
        paused += any("is paused" in what for _, what in world.trace)
    assert paused > CHUNK // 4, "the worlds do have paused leaders"


@pytest.mark.parametrize("first", range(50_000, 50_050, 25))
def test_an_attempt_that_a_worker_loses_is_tried_again(first: int) -> None:
    """A worker forgets fetches and goes on saying that they run: each is noticed, taken back when
    the worker lets go of it, and done by another attempt. The crawl completes, every page once."""
    lost = overdue = 0
    for seed in range(first, first + 25):
        world = run_world(seed, LOST_ATTEMPTS_ONLY)
        lost += len(world.fetches.lost)
        overdue += sum(" lease_taken_back " in what for _, what in world.trace)
    assert lost == overdue > 25


def test_a_single_worker_goes_on_when_it_hears_again() -> None:
    """There is nobody else: the crawl stands still meanwhile, and completes."""
    for seed in range(20):
        faults = Faults(deaf_workers=3, longest_delay_s=0.02)
        run_world(seed, faults, workers=1)


@pytest.mark.parametrize("first", range(30_000, 30_100, CHUNK))
def test_no_word_of_a_worker_deposes_a_leader(first: int) -> None:
    """Frames with an epoch that nobody ever had: the first leader leads to the end."""
    for seed in range(first, first + CHUNK):
        run_world(seed, BOGUS_EPOCHS_ONLY, leadership_never_changed)


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
