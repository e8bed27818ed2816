"""Decide which browser contexts are reused, and which are closed.

A context has the cookies and storage of one run for one host; creating one takes a tenth of a
second. Called by `browser.engine`, which creates and closes the contexts. Pure: the time comes in.

    in use    pages are open in it; another page of its key may join
    resting   no page is open; reused, or closed after `IDLE_S`
    worn      it has served MOST_PAGES pages or is MOST_S old: no page joins, closed when it is free
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Final

MOST_PAGES: Final = 200
MOST_S: Final = 600.0
IDLE_S: Final = 20.0
MOST_CONTEXTS: Final = 24  # above this, the resting contexts are closed first


@dataclasses.dataclass(slots=True)
class Slot:
    """One context, identified by `number`."""

    number: int
    key: Hashable
    made_at: float
    used_at: float
    running: int = 0
    served: int = 0
    dead: bool = False


class ContextShelf:
    """The open contexts."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def running(self) -> int:
        return sum(slot.running for slot in self._slots.values())

    def take(self, key: Hashable, now: float) -> Slot | None:
        """Return a context for one more page of `key`; None: create one and `add` it."""
        for slot in self._slots.values():
            if slot.key == key and not self._worn(slot, now):
                slot.running += 1
                slot.used_at = now
                return slot
        return None

    def add(self, key: Hashable, now: float) -> Slot:
        """Add a new context with its first page."""
        self._next += 1
        slot = self._slots[self._next] = Slot(self._next, key, now, now, running=1)
        return slot

    def give_back(self, slot: Slot, now: float, *, broken: bool = False) -> None:
        """Record the end of a page. A broken context is not reused."""
        slot.running -= 1
        slot.served += 1
        slot.used_at = now
        slot.dead = slot.dead or broken

    def expired(self, now: float) -> list[Slot]:
        """Remove and return the contexts to close now."""
        free = [slot for slot in self._slots.values() if not slot.running]
        gone = [s for s in free if self._worn(s, now) or now - s.used_at >= IDLE_S]
        rest = sorted((s for s in free if s not in gone), key=lambda s: s.used_at)
        gone += rest[: max(0, len(self._slots) - len(gone) - MOST_CONTEXTS)]
        for slot in gone:
            del self._slots[slot.number]
        return gone

    def clear(self) -> None:
        """Remove all contexts, because the browser has ended."""
        for slot in self._slots.values():
            slot.dead = True
        self._slots.clear()

    def _worn(self, slot: Slot, now: float) -> bool:
        old = slot.served + slot.running >= MOST_PAGES or now - slot.made_at >= MOST_S
        return slot.dead or old

    def check(self) -> None:
        """Assert the invariants: the number of open pages is never negative or above the limit."""
        for slot in self._slots.values():
            assert slot.running >= 0, slot
            assert slot.served + slot.running <= MOST_PAGES, slot
