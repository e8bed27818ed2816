"""The frontier: for each (run, host) a lane with a window on the queued rows in the database.

The leader inserts rows that a commit admitted, that a refill read, or that a lease gave back. The
planner takes rows out with `pop`. Rows are in breadth-first order within a
priority: (prio, depth, seq).

The window (G6): a lane's memory holds exactly its queued, unleased rows up to `cursor`; rows that
sort after it are counted in `beyond` and stay in the database. A new row that sorts before the
cursor enters memory. Refills race with commits, so a lane that waits for a refill logs its changes
and merges them with the answer, whichever transaction was first.

Invariants, asserted by `check()`:
- every row in memory sorts at or before its lane's cursor
- a row is ready, delayed, or not in memory; never two of them
- the rows in memory stay near WINDOW_ROWS however many URLs a run has
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import msgspec

from zcrawl.model.rows import LaneCount, LaneWant, QueuedRow, Refilled

WINDOW_ROWS = 50_000  # in memory, over all lanes
LANE_ROWS = 2_000  # in memory, of one lane
REFILL_ROWS = 500
REFILL_BELOW = 200
CROWDED_ROWS = 20  # what a lane may hold when the window is full
REFILL_LANES = 100  # in one query

Order = tuple[int, int, int]
LaneKey = tuple[int, int]  # (run, host)
START: Order = (-(1 << 62), 0, 0)
END: Order = (1 << 62, 0, 0)


class Lane(msgspec.Struct):
    run: int
    host: int
    cursor: Order = END
    beyond: int = 0  # queued rows after the cursor, in the database only
    ready: dict[int, QueuedRow] = msgspec.field(default_factory=dict)
    heap: list[Order] = msgspec.field(default_factory=list)  # may have entries of removed rows
    delayed: dict[int, tuple[QueuedRow, float]] = msgspec.field(default_factory=dict)
    refill: _RefillLog | None = None

    @property
    def rows(self) -> int:
        return len(self.ready) + len(self.delayed)


class _RefillLog(msgspec.Struct):
    """Changes of a lane between the refill query and its answer."""

    admitted: dict[int, QueuedRow] = msgspec.field(default_factory=dict)
    gone: set[int] = msgspec.field(default_factory=set)
    retried: dict[int, tuple[int, float]] = msgspec.field(default_factory=dict)
    void: bool = False  # the answer must not be used


class Frontier:
    def __init__(self, window_rows: int = WINDOW_ROWS, lane_rows: int = LANE_ROWS) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self.generation = 0  # answers to refills from before a load are ignored
        self.rows = 0
        self._coming = 0  # rows that running refills may bring
        self._window_rows = window_rows
        self._lane_rows = lane_rows
        self._due: list[tuple[float, int, int, int]] = []  # (due, run, host, seq)
        self._hungry: dict[LaneKey, None] = {}

    def load(self, counts: Iterable[LaneCount]) -> None:
        """Start from the counts of the database; rows enter memory with refills."""
        self.generation += 1
        self.lanes.clear()
        self._due.clear()
        self._hungry.clear()
        self.rows = self._coming = 0
        for count in counts:
            key = (count.run, count.host)
            self.lanes[key] = Lane(*key, cursor=START, beyond=count.queued)
            self._hungry[key] = None

    # ------------------------------------------------------------ rows in

    def insert(self, row: QueuedRow, due_at: float = 0.0) -> None:
        """Add a queued row without a lease: new, given back, or to retry at `due_at`."""
        key = (row.run, row.host)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(*key)
        if lane.refill is not None:
            self._log_admission(lane.refill, row)
        if row.order > lane.cursor:
            lane.beyond += 1
            self._note_hunger(lane)
            return
        self._put(lane, row, due_at)
        most = self._lane_rows if self.rows < self._window_rows else CROWDED_ROWS
        if lane.rows > most + max(most // 2, 4):
            self._cut(lane, most)

    def _log_admission(self, log: _RefillLog, row: QueuedRow) -> None:
        log.admitted[row.seq] = row
        log.gone.discard(row.seq)
        if len(log.admitted) > self._lane_rows:
            log.void = True
            log.admitted.clear()

    def _cut(self, lane: Lane, most: int) -> None:
        """Drop the last rows of a full lane from memory and move its cursor back."""
        delayed = (row for row, _ in lane.delayed.values())
        rows = sorted((*lane.ready.values(), *delayed), key=lambda row: row.order)
        for row in rows[most:]:
            lane.ready.pop(row.seq, None)
            lane.delayed.pop(row.seq, None)
        lane.heap = [row.order for row in lane.ready.values()]
        heapq.heapify(lane.heap)
        lane.cursor = rows[most - 1].order
        lane.beyond += len(rows) - most
        self.rows -= len(rows) - most
        if lane.refill is not None:
            lane.refill.void = True  # its query used the old cursor
        self._note_hunger(lane)

    def _put(self, lane: Lane, row: QueuedRow, due_at: float) -> None:
        if row.seq in lane.ready or row.seq in lane.delayed:
            return
        self.rows += 1
        if due_at > 0.0:
            lane.delayed[row.seq] = (row, due_at)
            heapq.heappush(self._due, (due_at, row.run, row.host, row.seq))
        else:
            lane.ready[row.seq] = row
            heapq.heappush(lane.heap, row.order)

    def mature(self, now: float) -> list[LaneKey]:
        """Make delayed rows ready whose time has come; return their lanes."""
        keys = []
        while self._due and self._due[0][0] <= now:
            due_at, run, host, seq = heapq.heappop(self._due)
            lane = self.lanes.get((run, host))
            delayed = lane.delayed.get(seq) if lane else None
            if lane is None or delayed is None or delayed[1] != due_at:
                continue  # removed meanwhile, or delayed again
            del lane.delayed[seq]
            lane.ready[seq] = delayed[0]
            heapq.heappush(lane.heap, delayed[0].order)
            keys.append((run, host))
        return keys

    def next_due_at(self) -> float:
        return self._due[0][0] if self._due else float("inf")

    # ------------------------------------------------------------ rows out

    def pop(self, key: LaneKey) -> QueuedRow | None:
        """Take the first ready row of a lane; the caller leases it."""
        lane = self.lanes.get(key)
        if lane is None:
            return None
        row = None
        while lane.heap and row is None:
            row = lane.ready.pop(heapq.heappop(lane.heap)[2], None)
        if row is not None:
            self.rows -= 1
            if lane.refill is not None:
                lane.refill.gone.add(row.seq)
        self._note_hunger(lane)
        self._forget_if_empty(lane)
        return row

    def has_ready(self, key: LaneKey) -> bool:
        lane = self.lanes.get(key)
        return lane is not None and bool(lane.ready)

    def remove(self, run: int, host: int, seq: int) -> QueuedRow | None:
        """Remove a row that is final or leased, so that `pop` cannot return it."""
        lane = self.lanes.get((run, host))
        if lane is None:
            return None
        if lane.refill is not None:
            lane.refill.gone.add(seq)
            lane.refill.admitted.pop(seq, None)
        row = lane.ready.pop(seq, None)
        if row is None:
            row, _ = lane.delayed.pop(seq, (None, 0.0))
        if row is not None:
            self.rows -= 1
        self._note_hunger(lane)
        self._forget_if_empty(lane)
        return row

    def reconsider(
        self, run: int, host: int, seq: int, retry: tuple[int, float] | None = None
    ) -> None:
        """Undo `remove` for a row that only the database has.

        A refill may bring it, and may have read it before its `retry` (attempts, due time) was
        committed.
        """
        lane = self.lanes.get((run, host))
        if lane is not None and lane.refill is not None:
            lane.refill.gone.discard(seq)
            if retry is not None:
                lane.refill.retried[seq] = retry

    def drop_run(self, run: int) -> list[int]:
        """Remove the lanes of an ended run; return their hosts."""
        hosts = []
        for key in [key for key in self.lanes if key[0] == run]:
            lane = self.lanes.pop(key)
            self.rows -= lane.rows
            self._hungry.pop(key, None)
            hosts.append(key[1])
        return hosts

    # ------------------------------------------------------------ refill

    def wants(self) -> tuple[LaneWant, ...]:
        """Return lanes that need a refill, at most REFILL_LANES."""
        wants: list[LaneWant] = []
        for key in list(self._hungry):
            if len(wants) == REFILL_LANES:
                break
            lane = self.lanes.get(key)
            if lane is None or lane.refill is not None or not self._is_hungry(lane):
                del self._hungry[key]
                continue
            room = self._window_rows - self.rows - self._coming
            limit = REFILL_ROWS if room > REFILL_ROWS else CROWDED_ROWS
            limit = min(limit, self._lane_rows)
            self._coming += limit
            after = None if lane.cursor == START else lane.cursor
            wants.append(LaneWant(lane.run, lane.host, after, limit))
            lane.refill = _RefillLog()
            del self._hungry[key]
        return tuple(wants)

    def refilled(
        self, answer: Refilled, is_leased: Callable[[int], bool], clock_offset: float, now: float
    ) -> list[LaneKey]:
        """Insert the rows of a refill; `clock_offset` converts stored UTC to `now`'s clock."""
        changed = []
        for want, rows, ends in answer.lanes:
            self._coming -= want.limit
            key = (want.run, want.host)
            lane = self.lanes.get(key)
            if lane is None or lane.refill is None:
                continue
            log, lane.refill = lane.refill, None
            if log.void:
                self._note_hunger(lane)
                continue
            old_cursor = lane.cursor
            lane.cursor = END if ends else rows[-1].order
            merged = {row.seq: row for row in rows}
            for seq, row in log.admitted.items():
                if old_cursor < row.order <= lane.cursor:
                    merged[seq] = row
            # Logged rows beyond the old cursor were counted in `beyond`, as were the rows read.
            lane.beyond = 0 if ends else max(0, lane.beyond - len(merged))
            for seq, row in merged.items():
                if seq not in log.gone and not is_leased(seq):
                    if seq in log.retried:
                        attempts, due = log.retried[seq]
                        row = msgspec.structs.replace(row, attempts=attempts, due_at=due)
                    due_at = row.due_at - clock_offset if row.due_at else 0.0
                    self._put(lane, row, due_at if due_at > now else 0.0)
            self._note_hunger(lane)
            changed.append(key)
            self._forget_if_empty(lane)
        return changed

    def refill_failed(self, wants: Iterable[LaneWant]) -> None:
        """Let the lanes of a failed refill ask again."""
        for want in wants:
            self._coming -= want.limit
            lane = self.lanes.get((want.run, want.host))
            if lane is not None:
                lane.refill = None
                self._note_hunger(lane)

    def _is_hungry(self, lane: Lane) -> bool:
        is_full = self.rows + self._coming >= self._window_rows
        below = CROWDED_ROWS // 2 if is_full else REFILL_BELOW
        # Delayed rows count as well: a dead host must not pull its whole queue into memory.
        crowded = lane.rows >= self._lane_rows
        return lane.cursor != END and len(lane.ready) < below and not crowded

    def _note_hunger(self, lane: Lane) -> None:
        if lane.refill is None and self._is_hungry(lane):
            self._hungry[(lane.run, lane.host)] = None

    def _forget_if_empty(self, lane: Lane) -> None:
        if lane.cursor == END and lane.rows == 0 and lane.refill is None:
            self.lanes.pop((lane.run, lane.host), None)
            self._hungry.pop((lane.run, lane.host), None)

    # ------------------------------------------------------------ looking

    def check(self) -> None:
        total = 0
        for lane in self.lanes.values():
            if lane.rows:
                rows = [*lane.ready.values(), *(row for row, _ in lane.delayed.values())]
                assert max(row.order for row in rows) <= lane.cursor, (
                    "a row in memory sorts up to the cursor"
                )
                assert lane.ready.keys().isdisjoint(lane.delayed), "ready or delayed"
                assert lane.ready.keys() <= {order[2] for order in lane.heap}, (
                    "ready rows are ordered"
                )
                total += lane.rows
            assert lane.beyond >= 0
        assert total == self.rows, "rows in memory are counted"
        assert self._coming >= 0
