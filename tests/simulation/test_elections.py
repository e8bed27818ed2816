"""Many masters, one simulated Consul, all kinds of misfortune: one leader, always found again."""

from __future__ import annotations

import os

import pytest

from tests.simulation.elections import Race

SEEDS = int(os.environ.get("ZCRAWL_SIM_SEEDS", "120"))
CHUNKS = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_happens_there_is_one_leader_and_soon(chunk: int) -> None:
    """Pauses, kills, stalls, cuts, outages and lost data: who leads holds the lock or hears so.

    Elected and Deposed alternate for each process, the numbers rise until data is lost, nobody
    believes for long that it leads without the lock, and when the trouble ends somebody leads.
    """
    for seed in range(chunk, SEEDS, CHUNKS):
        Race(seed).run()


def test_the_same_seed_gives_the_same_race() -> None:
    """Otherwise a failing seed could not be looked at again."""
    stories = []
    for _ in range(2):
        race = Race(17)
        race.run()
        stories.append(race.trace)
    assert stories[0] == stories[1]
