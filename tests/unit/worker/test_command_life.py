"""The machine that ends a command: its phases, by its table, and under any order of events."""

from __future__ import annotations

import random

import pytest

from zcrawl.worker.command_life import (
    GRACE_S,
    SHORT_GRACE_S,
    CommandLife,
    LifeEffect,
    LifeEvent,
    LifePhase,
)

E = LifeEvent
TERM, KILL = [LifeEffect.TERM], [LifeEffect.KILL]


def test_a_command_that_exits_takes_what_it_left_behind_along() -> None:
    """Without a grace: it is done, so nobody cleans up any more."""
    life = CommandLife(10.0, 0.0)
    assert life.next_wakeup(0.0) == 10.0
    assert life.handle(E.TICKED, 1.0) == []
    assert life.handle(E.EXITED, 2.0) == KILL
    assert (life.phase, life.cause) == (LifePhase.KILLING, "exited")
    assert life.handle(E.TICKED, 2.1) == KILL
    assert life.handle(E.NO_CHILDREN, 2.2) == []
    assert life.phase is LifePhase.OVER


@pytest.mark.parametrize(
    ("event", "at", "cause", "grace_s"),
    [
        (E.TICKED, 10.0, "timeout", GRACE_S),
        (E.CANCELLED, 3.0, "cancelled", GRACE_S),
        (E.WORKER_GONE, 3.0, "worker_gone", SHORT_GRACE_S),
    ],
)
def test_a_command_is_told_to_end_and_killed_after_a_grace(
    event: LifeEvent, at: float, cause: str, grace_s: float
) -> None:
    """Its exit does not end the grace of the others; the last one to go does."""
    life = CommandLife(10.0, 0.0)
    assert life.handle(event, at) == TERM
    assert (life.phase, life.cause) == (LifePhase.ENDING, cause)
    assert life.next_wakeup(at) == at + grace_s
    assert life.handle(E.EXITED, at + 0.1) == []
    assert life.handle(E.TICKED, at + grace_s) == KILL
    assert life.handle(E.NO_CHILDREN, at + grace_s) == []
    assert (life.phase, life.cause) == (LifePhase.OVER, cause)


@pytest.mark.parametrize("event", [E.TOO_MANY_PROCESSES, E.MEMORY])
def test_a_command_beyond_its_limits_gets_no_grace(event: LifeEvent) -> None:
    """It would go on forking. Its exit does not change the cause; without a child it is over."""
    life = CommandLife(10.0, 0.0)
    assert life.handle(event, 1.0) == KILL
    assert (life.phase, life.cause) == (LifePhase.KILLING, event.value)
    assert life.handle(E.EXITED, 1.1) == KILL
    assert life.handle(E.NO_CHILDREN, 1.2) == []
    assert (life.phase, life.cause) == (LifePhase.OVER, event.value)


def test_the_death_of_the_worker_shortens_a_grace() -> None:
    """Nothing of a command is there two seconds after its worker, whatever happened before."""
    life = CommandLife(10.0, 0.0)
    assert life.handle(E.CANCELLED, 1.0) == TERM
    assert life.handle(E.WORKER_GONE, 1.1) == []
    assert life.handle(E.TICKED, 1.1 + SHORT_GRACE_S) == KILL
    assert life.cause == "cancelled"


def test_no_child_means_nothing_before_the_command_has_exited() -> None:
    """It would be reported as over with no exit code."""
    life = CommandLife(10.0, 0.0)
    life.handle(E.NO_CHILDREN, 0.0)
    assert life.phase is LifePhase.RUNNING
    life.check()


@pytest.mark.parametrize("seed", range(200))
def test_every_order_of_events_ends_and_kills_in_time(seed: int) -> None:
    """TERM comes at most once and before KILL; from a wish to end until KILL it takes at most the
    grace; and the invariants hold after each event."""
    choice = random.Random(seed)
    life, now, told_at = CommandLife(5.0, 0.0), 0.0, None
    terms, kills = 0, 0
    for _ in range(60):
        before = life.phase
        event = choice.choice([E.TICKED, E.TICKED, E.CANCELLED, E.WORKER_GONE, E.EXITED])
        effects = life.handle(event, now)
        life.check()
        terms += LifeEffect.TERM in effects
        kills += LifeEffect.KILL in effects
        assert terms <= 1
        if before is LifePhase.RUNNING and life.phase is LifePhase.ENDING:
            told_at = now
        if told_at is not None and now >= told_at + GRACE_S:
            assert life.phase is LifePhase.KILLING
        now += choice.uniform(0.0, 0.5)
    assert kills
    life.handle(E.EXITED, now)
    life.handle(E.NO_CHILDREN, now)
    assert life.phase is LifePhase.OVER
