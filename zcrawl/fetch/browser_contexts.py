"""Decides which browser contexts are used again, and which have served long enough.

A context has one run's cookies and storage for one host; to make one takes a tenth of a second.
Called by `browser.engine`, which makes and closes what is decided here. Pure: it is told the time.

    in use    pages are open in it; another page of its key may join
    resting   no page is open; taken again, or closed after `IDLE_S`
    worn      it has served MOST_PAGES pages or lived MOST_S: no page joins, closed when it is free
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Final

MOST_PAGES: Final = 200
MOST_S: Final = 600.0
IDLE_S: Final = 20.0
MOST_CONTEXTS: Final = 24  # resting ones beyond that go first


@dataclasses.dataclass(slots=True)
class Slot:
    """One context's life. `number` names it."""

    number: int
    key: Hashable
    made_at: float
    used_at: float
    running: int = 0
    served: int = 0
    dead: bool = False


class Shelf:
    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def running(self) -> int:
        return sum(slot.running for slot in self._slots.values())

    def take(self, key: Hashable, now: float) -> Slot | None:
        """A context for one more page of `key`; None: make one, and `add` it."""
        for slot in self._slots.values():
            if slot.key == key and not self._worn(slot, now):
                slot.running += 1
                slot.used_at = now
                return slot
        return None

    def add(self, key: Hashable, now: float) -> Slot:
        """A new context, with its first page."""
        self._next += 1
        slot = self._slots[self._next] = Slot(self._next, key, now, now, running=1)
        return slot

    def give_back(self, slot: Slot, now: float, *, broken: bool = False) -> None:
        """A page is over. A broken context is used for nothing else."""
        slot.running -= 1
        slot.served += 1
        slot.used_at = now
        slot.dead = slot.dead or broken

    def expired(self, now: float) -> list[Slot]:
        """Contexts to close now; they are forgotten here."""
        free = [slot for slot in self._slots.values() if not slot.running]
        gone = [s for s in free if self._worn(s, now) or now - s.used_at >= IDLE_S]
        rest = sorted((s for s in free if s not in gone), key=lambda s: s.used_at)
        gone += rest[: max(0, len(self._slots) - len(gone) - MOST_CONTEXTS)]
        for slot in gone:
            del self._slots[slot.number]
        return gone

    def clear(self) -> None:
        """The browser is gone, and all contexts with it."""
        for slot in self._slots.values():
            slot.dead = True
        self._slots.clear()

    def _worn(self, slot: Slot, now: float) -> bool:
        old = slot.served + slot.running >= MOST_PAGES or now - slot.made_at >= MOST_S
        return slot.dead or old

    def check(self) -> None:
        """The invariants: nobody runs a negative number, and the dead are not taken."""
        for slot in self._slots.values():
            assert slot.running >= 0, slot
            assert slot.served + slot.running <= MOST_PAGES, slot
