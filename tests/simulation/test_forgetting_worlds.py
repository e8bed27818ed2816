"""Worlds in which the leader forgets within seconds what it keeps for a day: nothing is lost."""

from __future__ import annotations

import random

import pytest

from tests.simulation.worlds import run_world
from zcrawl.master import pruning
from zcrawl.store.commands import Forget, Forgotten
from zcrawl.testing.faults import draw
from zcrawl.testing.store import idempotency
from zcrawl.testing.store.tables import Tables

SEEDS = 150
CHUNK = 50


@pytest.mark.parametrize("first", range(20_000, 20_000 + SEEDS, CHUNK))
def test_guarantees_hold_when_watermarks_are_forgotten_early(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Workers that were lost come back and are sent away; their pages are fetched by others."""
    forgotten = 0
    forget = idempotency.forget

    def counted(tables: Tables, command: Forget) -> Forgotten:
        nonlocal forgotten
        before = len(tables.watermarks)
        done = forget(tables, command)
        forgotten += before - len(tables.watermarks)
        return done

    monkeypatch.setattr(idempotency, "forget", counted)
    monkeypatch.setattr(pruning, "WATERMARKS_KEPT_S", 5.0)
    monkeypatch.setattr(pruning, "FIRST_S", 3.0)
    monkeypatch.setattr(pruning, "EVERY_S", 1.0)
    for seed in range(first, first + CHUNK):
        run_world(seed, draw(random.Random(seed)))
    assert forgotten > CHUNK / 3, "they were not forgotten"
