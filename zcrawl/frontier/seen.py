"""The seen-table: a cache of known URL keys in front of the unique index.

The leader looks up each link of a result. A hit is certainly stored; a miss is checked in the
database. The table has a fixed size, starts empty, is filled only after a commit and forgets by
overwriting. Unlike a Bloom filter it never drops a new URL.
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
