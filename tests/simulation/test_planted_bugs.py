"""The simulation is worth something only if it notices bugs: here are some, planted on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation import planted
from tests.simulation.worlds import run_world
from zcrawl.testing.faults import (
    BOGUS_EPOCHS_ONLY,
    DEAF_WORKERS,
    LEADER_CHANGES_ONLY,
    LOST_ATTEMPTS_ONLY,
    MASTERS_AWAY,
    OUTPUT_PAUSES,
    draw,
)
from zcrawl.testing.verify import leadership_never_changed, nothing_was_fetched_twice

MOST_SEEDS = 400


def story_goes_wrong(seed: int) -> str | None:
    """What a check said of some faulty worlds, or of one with a single kind of fault."""
    try:
        for mixed in range(4 * seed, 4 * seed + 4):
            run_world(mixed, draw(random.Random(mixed)))
        run_world(seed, LEADER_CHANGES_ONLY, nothing_was_fetched_twice)
        run_world(seed, BOGUS_EPOCHS_ONLY, leadership_never_changed)
        run_world(seed, DEAF_WORKERS)
        run_world(seed, MASTERS_AWAY, nothing_was_fetched_twice, pages=60)
        run_world(seed, OUTPUT_PAUSES)
        run_world(seed, LOST_ATTEMPTS_ONLY)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("plant", planted.ALL, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each planted bug breaks a guarantee in one of the first worlds."""
    with plant():
        caught = (story_goes_wrong(seed) for seed in range(MOST_SEEDS))
        complaint = next((problem for problem in caught if problem is not None), None)
    assert complaint is not None, f"{plant.__name__} was not noticed in {MOST_SEEDS} worlds"
