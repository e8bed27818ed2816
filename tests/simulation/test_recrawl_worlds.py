"""Simulated clusters whose job remembers its pages and runs three times, under faults."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import msgspec
import pytest

from tests.simulation.worlds import run_world
from zcrawl.master.recall import Recall
from zcrawl.model.spec import Recrawl
from zcrawl.store.commands import KnownAdmitted
from zcrawl.testing.faults import CALM, LEADER_CHANGES_ONLY, Faults, draw
from zcrawl.testing.store import known as known_pages
from zcrawl.testing.verify import (
    known_pages_are_looked_at_once,
    nothing_was_fetched_twice,
)
from zcrawl.testing.world import World

EVERY = Recrawl(True, 0.0, 0.0, 0.0)  # every run looks at every page
SEEDS = 150
CHUNK = 25
MOST_SEEDS = 200
UNKNOWN_COMMITS = Faults(store_unknown=0.1)


def run_three(seed: int, faults: Faults) -> World:
    faults = dataclasses.replace(faults, retries=0)  # a page that is retried is looked at twice
    with mock.patch("zcrawl.master.recall.CHUNK", 4):  # several for 25 pages
        return run_world(seed, faults, known_pages_are_looked_at_once, runs=3, recrawl=EVERY)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_known_pages_are_each_looked_at_once_whatever_happens(first: int) -> None:
    """Crashes, lost and unknown commits, leader changes, pauses: each run has all that the job
    knew, changed pages are kept, unchanged ones counted, and no look is counted twice."""
    for seed in range(first, first + CHUNK):
        run_three(seed, draw(random.Random(seed)))


def test_without_crashes_each_known_page_is_asked_for_once_in_a_run() -> None:
    """Also when leadership moves in the middle of recalling; and pages do stay unchanged."""
    unchanged = 0
    for seed in range(20):
        for faults in (CALM, LEADER_CHANGES_ONLY):
            world = run_three(seed, faults)
            nothing_was_fetched_twice(world)
            unchanged += sum(run.unchanged for run in world.store.tables.runs.values())
    assert unchanged > 500


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def count_a_look_twice() -> Iterator[None]:
    """What is remembered is written once more than its request ends."""
    remember = known_pages.remember

    def careless(*arguments: Any) -> None:
        remember(*arguments)
        remember(*arguments)

    with mock.patch.object(known_pages, "remember", careless):
        yield


@contextlib.contextmanager
def trust_a_repeated_chunk() -> Iterator[None]:
    """After an unknown commit the leader does not ask what the database holds."""
    admitted = Recall.admitted

    def trusting(self: Recall, done: KnownAdmitted, now: float, effects: Any) -> bool:
        admitted(self, done, now, effects)
        return False

    with mock.patch.object(Recall, "admitted", trusting):
        yield


@contextlib.contextmanager
def skip_a_known_page() -> Iterator[None]:
    """The first page of each chunk is left out."""
    original = Recall.read_done

    def hasty(self: Recall, query: Any, tag: str, pages: Any, *rest: Any) -> None:
        cut = msgspec.structs.replace(pages, rows=pages.rows[1:] or pages.rows)
        limit = msgspec.structs.replace(query, limit=query.limit - 1)
        original(self, limit, tag, cut, *rest)

    with mock.patch.object(Recall, "read_done", hasty):
        yield


PLANTED = (count_a_look_twice, trust_a_repeated_chunk, skip_a_known_page)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each breaks a promise in one of the first worlds."""
    with plant():
        for seed in range(MOST_SEEDS):
            try:
                run_three(seed, draw(random.Random(seed)))
                run_three(seed, UNKNOWN_COMMITS)
            except AssertionError:
                return
    raise AssertionError(f"{plant.__name__} was not noticed in {MOST_SEEDS} worlds")
