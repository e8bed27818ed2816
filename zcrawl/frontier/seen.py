"""The seen-table: a lossy direct-mapped table of full 128-bit keys in front of the unique index.

The leader asks it for each link of a result; it is filled after a commit only. A hit is
certainly seen; a miss asks the database. It starts empty, forgets by overwriting, and never
drops an unseen URL, as a Bloom filter would.
"""

from __future__ import annotations

import mmap

SLOTS = 1 << 20  # 16 MB when full; pages are touched as they fill
KEY_BYTES = 16
_RUN_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd: distinct runs never share a slot pattern
_MASK = (1 << 128) - 1


class SeenTable:
    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = slots
        # Not a bytearray: that would touch all of it now, 16 MB and 10 ms of every start.
        self._table = mmap.mmap(-1, slots * KEY_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def __contains__(self, run_key: tuple[int, bytes]) -> bool:
        mixed, at = self._place(run_key)
        return self._table[at : at + KEY_BYTES] == mixed

    def add(self, run: int, key: bytes) -> None:
        mixed, at = self._place((run, key))
        self._table[at : at + KEY_BYTES] = mixed

    def _place(self, run_key: tuple[int, bytes]) -> tuple[bytes, int]:
        run, key = run_key
        number = (int.from_bytes(key, "little") ^ (run * _RUN_SPREAD)) & _MASK
        return number.to_bytes(KEY_BYTES, "little"), (number % self._slots) * KEY_BYTES
