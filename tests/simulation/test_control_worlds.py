"""Operators drain workers, move hosts and retry runs in simulated clusters full of faults.

What they were answered holds, whoever leads; what they were refused was not done
(`zcrawl.testing.operators` has the checks). A retry has parts of one row here.
"""

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
from zcrawl.master.desk.desk import Desk
from zcrawl.master.events import Execute
from zcrawl.master.leader_state import LeaderState
from zcrawl.master.membership import Membership
from zcrawl.store.commands import DrainRow, Loaded, SetDrain
from zcrawl.testing.faults import Faults, draw
from zcrawl.testing.store import intents
from zcrawl.testing.world import World

SEEDS = 100
CHUNK = 25
MOST_SEEDS = 200
BUSY: dict[str, Any] = {"drains": 3, "moves": 2, "retries": 3}
# Leaders change in the middle of requests, workers die and come again, commits fail.
LEADERS_CHANGE = Faults(
    leader_changes=6,
    worker_crashes=4,
    store_fails=0.1,
    store_unknown=0.1,
    longest_delay_s=0.5,
    **BUSY,
)


def run_busy(seed: int, faults: Faults) -> World:
    with mock.patch("zcrawl.master.desk.actions.RETRY_ROWS", 1):
        return run_world(seed, dataclasses.replace(faults, **BUSY), pages=40)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_answered_control_requests_hold_in_worlds_full_of_faults(first: int) -> None:
    """A drained worker gets nothing until it is undrained, a retry queues each row once and tells
    the whole count, a request that is refused is not done; and every crawl completes."""
    answered = 0
    for seed in range(first, first + CHUNK):
        world = run_busy(seed, draw(random.Random(seed)))
        answered += world.operators.answered
        answered += run_busy(seed, LEADERS_CHANGE).operators.answered
    assert answered > CHUNK * 4, "the worlds do have operators who are answered"


# ---------------------------------------------------------------- bugs planted on purpose


@contextlib.contextmanager
def order_before_the_commit() -> Iterator[None]:
    """A worker is drained at once, and the store is asked then."""
    set_drain = Desk._set_drain

    def hasty(self: Desk, on: bool, pending: Any, now: float, effects: Any) -> None:
        set_drain(self, on, pending, now, effects)
        for effect in effects:
            if isinstance(effect, Execute) and isinstance(effect.command, SetDrain):
                command = effect.command
                row = DrainRow(command.worker, command.life) if command.on else None
                self._state.set_drain(command.worker, row, [])

    with mock.patch.object(Desk, "_set_drain", hasty):
        yield


@contextlib.contextmanager
def cursor_not_stored() -> Iterator[None]:
    """Each part of a retry begins at the first row again."""
    keep = intents.keep_retry

    def careless(tables: Any, command: Any, after: int, changed: int) -> None:
        keep(tables, command, 0, changed)

    with mock.patch.object(intents, "keep_retry", careless):
        yield


@contextlib.contextmanager
def count_the_last_leaders_part() -> Iterator[None]:
    """A new leader goes on with a retry, and counts from nothing."""
    load = intents.wishes

    def forgetful(tables: Any) -> Any:
        """Called whenever a leader loads what people asked for."""
        for id, row in tables.retries.items():
            action = msgspec.structs.replace(row.client_action, changed=0)
            tables.retries[id] = msgspec.structs.replace(row, client_action=action)
        return load(tables)

    with mock.patch("zcrawl.testing.store.commands.wishes", forgetful):
        yield


@contextlib.contextmanager
def drain_the_process() -> Iterator[None]:
    """The next process of a drained worker gets work."""
    with mock.patch.object(Membership, "_meet_drained", lambda *arguments: None):
        yield


@contextlib.contextmanager
def drains_end_with_their_leader() -> Iterator[None]:
    """What is stored is not loaded."""
    load = LeaderState.load

    def forgetful(self: LeaderState, loaded: Loaded, now: float, effects: Any) -> None:
        load(self, msgspec.structs.replace(loaded, drains=[]), now, effects)

    with mock.patch.object(LeaderState, "load", forgetful):
        yield


@contextlib.contextmanager
def retries_end_with_their_leader() -> Iterator[None]:
    """The next leader waits for the client to ask again."""
    with mock.patch.object(Desk, "inherit", lambda self, loaded: None):
        yield


PLANTED = (
    order_before_the_commit,
    cursor_not_stored,
    count_the_last_leaders_part,
    drain_the_process,
    drains_end_with_their_leader,
    retries_end_with_their_leader,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Each breaks a promise in one of the first worlds."""
    with plant():
        for seed in range(MOST_SEEDS):
            try:
                run_busy(seed, LEADERS_CHANGE)
            except AssertionError:
                return
    raise AssertionError(f"{plant.__name__} was not noticed in {MOST_SEEDS} worlds")
