"""One simulated cluster from its start to its end, checked; a failure tells its seed and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zcrawl.testing.sim_faults import Faults
from zcrawl.testing.verify import verify
from zcrawl.testing.world import World


def run_world(seed: int, faults: Faults, *checks: Callable[[World], None], **options: Any) -> World:
    """`checks` are held to after those of every world; `options` are the world's own."""
    world = World(seed, faults, **options)
    try:
        world.run()
        for check in (verify, *checks):
            check(world)
    except Exception as error:
        error.add_note(f"seed {seed}, faults {faults}")
        raise
    return world
