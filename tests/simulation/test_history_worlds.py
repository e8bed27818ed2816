"""Worlds whose charts are checked: every page once, through failovers and faults of the store."""

from __future__ import annotations

import random

import pytest

from tests.simulation import planted
from tests.simulation.worlds import run_world
from zcrawl.master import history_keeper
from zcrawl.testing.faults import CALM, LEADER_CHANGES_ONLY, draw
from zcrawl.testing.verify import history_has_every_page

SEEDS = 60


def test_without_faults_every_page_is_in_the_history() -> None:
    """Stored, or counted since the last row."""
    for seed in range(30):
        run_world(seed, CALM, history_has_every_page)


def test_the_history_survives_failovers() -> None:
    """Rows of more than one leader, and no page twice (checked by `verify` in every world)."""
    inherited = 0
    for seed in range(SEEDS):
        world = run_world(seed, LEADER_CHANGES_ONLY)
        inherited += len(set(world.applied_epochs)) > 1 and bool(world.store.tables.history)
    assert inherited > SEEDS / 3, "too few worlds have a history of two leaders"


def faulty_worlds() -> None:
    for seed in range(5_000, 5_000 + 2 * SEEDS):  # one in twenty shows the planted bug
        run_world(seed, draw(random.Random(seed)))


def test_the_history_bears_a_store_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With mixed faults, commits with an unknown outcome among them, and many writes."""
    monkeypatch.setattr(history_keeper, "STEP_S", 0.25)
    faulty_worlds()


def test_an_entry_that_counts_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: after an unknown outcome the entry is written once more."""
    monkeypatch.setattr(history_keeper, "STEP_S", 0.25)
    with (
        planted.save_the_history_again_when_it_may_be_stored(),
        pytest.raises(AssertionError, match="pages in the history"),
    ):
        faulty_worlds()
