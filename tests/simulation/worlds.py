"""One simulated cluster from its start to its end, checked; a failure tells its seed and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from zcrawl.dispatch import crash_suspects
from zcrawl.testing.faults import Faults
from zcrawl.testing.verify import only_lost_attempts_are_overdue, verify
from zcrawl.testing.world import World


def run_world(
    seed: int,
    faults: Faults,
    *checks: Callable[[World], None],
    prepare: Callable[[World], None] = lambda world: None,
    **options: Any,
) -> World:
    """`checks` are held to after those of every world; `options` are the world's own. `prepare`
    changes the world before it begins."""
    world = World(seed, faults, **options)
    prepare(world)
    try:
        with mock.patch.multiple(crash_suspects, OVERDUE_LEAST_S=8.0, STEPS=1, OVERDUE_FACTOR=1.0):
            world.run()
        for check in (verify, only_lost_attempts_are_overdue, *checks):
            check(world)
    except Exception as error:
        error.add_note(f"seed {seed}, faults {faults}")
        raise
    return world
