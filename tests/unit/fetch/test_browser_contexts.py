"""Which browser contexts are used again, and for how long."""

from __future__ import annotations

import random

from zcrawl.fetch.browser_contexts import IDLE_S, MOST_CONTEXTS, MOST_PAGES, MOST_S, ContextShelf


def test_a_context_serves_its_own_key_only() -> None:
    """Pages of one key share it, also at the same time; another key gets none."""
    shelf = ContextShelf()
    first = shelf.add("a", 0.0)
    assert shelf.take("b", 1.0) is None
    assert shelf.take("a", 1.0) is first
    assert shelf.running == 2


def test_a_context_is_worn_after_so_many_pages_or_seconds() -> None:
    """Then no page joins, and it is closed as soon as its last page is over."""
    shelf = ContextShelf()
    many = shelf.add("a", 0.0)
    for _ in range(MOST_PAGES - 1):
        shelf.give_back(many, 1.0)
        assert shelf.take("a", 1.0) is many
    assert shelf.take("a", 1.0) is None
    assert shelf.expired(1.0) == []
    shelf.give_back(many, 1.0)
    assert shelf.expired(1.0) == [many]
    old = shelf.add("b", 0.0)
    shelf.give_back(old, MOST_S)
    assert shelf.take("b", MOST_S) is None
    assert shelf.expired(MOST_S) == [old]


def test_a_context_that_rests_is_closed_and_one_in_use_is_not() -> None:
    """After a while without a page."""
    shelf = ContextShelf()
    used, rests = shelf.add("a", 0.0), shelf.add("b", 0.0)
    shelf.give_back(rests, 1.0)
    assert shelf.expired(IDLE_S) == []
    assert shelf.expired(1.0 + IDLE_S) == [rests]
    assert shelf.take("a", 1.0 + IDLE_S) is used


def test_a_broken_context_serves_nobody() -> None:
    """Its other pages end in it, and then it is closed."""
    shelf = ContextShelf()
    slot = shelf.add("a", 0.0)
    assert shelf.take("a", 0.0) is slot
    shelf.give_back(slot, 0.0, broken=True)
    assert shelf.take("a", 0.0) is None
    shelf.give_back(slot, 0.0)
    assert shelf.expired(0.0) == [slot]


def test_there_are_never_many_that_rest() -> None:
    """The ones that have rested longest go first."""
    shelf = ContextShelf()
    slots = [shelf.add(n, float(n) / 100) for n in range(MOST_CONTEXTS + 3)]
    for slot in slots:
        shelf.give_back(slot, slot.made_at)
    assert shelf.expired(1.0) == slots[:3]
    assert len(shelf) == MOST_CONTEXTS


def test_its_invariants_hold_whatever_happens() -> None:
    """A random life, with the browser ending now and then."""
    rng = random.Random(7)
    shelf, now, running = ContextShelf(), 0.0, []
    for _ in range(5_000):
        now += rng.random()
        if rng.random() < 0.5:
            key = rng.randrange(8)
            running.append(shelf.take(key, now) or shelf.add(key, now))
        elif running:
            slot = running.pop(rng.randrange(len(running)))
            shelf.give_back(slot, now, broken=rng.random() < 0.05)
        if rng.random() < 0.1:
            assert all(not slot.running for slot in shelf.expired(now))
        if rng.random() < 0.002:
            shelf.clear()
        shelf.check()
