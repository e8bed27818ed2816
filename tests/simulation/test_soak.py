"""`make soak` plays every seed of every story once, and tells of each that goes wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.simulation import soak

REPOSITORY = Path(__file__).resolve().parents[2]


def test_each_story_gets_each_seed_once() -> None:
    """Also those of the last chunk, which is shorter."""
    played = [(story, seed) for story, seeds in soak.chunks(100, 45) for seed in seeds]
    assert sorted(played) == sorted((s, n) for s in soak.STORIES for n in range(100, 145))


def test_a_seed_that_goes_wrong_is_told_and_the_next_one_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the story, the seed and what was wrong."""
    seen = []

    def story(seed: int) -> None:
        seen.append(seed)
        assert seed != 8, "a page is there twice"

    monkeypatch.setitem(soak.STORIES, "world", story)
    (line,) = soak.play("world", range(7, 10))
    assert line.startswith("world, seed 8: AssertionError: a page is there twice")
    assert seen == [7, 8, 9]


def test_the_first_seeds_hold_and_are_counted() -> None:
    """All stories, in two processes."""
    played, failed = soak.simulate(soak.FIRST_SEED, 2, time.monotonic() + 600.0, 2)
    assert (played, failed) == (2 * len(soak.STORIES), 0)


def test_each_round_of_real_faults_has_a_monkey_that_types_other_keys() -> None:
    """20,000 of them; the seed is printed, so that a failure can be repeated."""
    rounds = [soak.fault_round(number) for number in range(3)]
    assert all(soak.MONKEY in command for command, _ in rounds)
    assert {keys["ZCRAWL_MONKEY_KEYS"] for _, keys in rounds} == {"20000"}
    assert len({keys["ZCRAWL_MONKEY_SEED"] for _, keys in rounds}) == 3
    assert all((REPOSITORY / path).is_file() for path in (*soak.FAULTS, soak.MONKEY))
