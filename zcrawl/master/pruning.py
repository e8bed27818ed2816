"""Delete old rows: watermarks of worker processes that are long gone, and old answers to clients.

Otherwise both would grow as long as the cluster exists.

A watermark says which results of one process (worker, incarnation) are committed.
It may be deleted when
- the process is gone: it is not in the roster, and this leader has led for so long that every
  living process has said HELLO;
- no result of it is in progress: all that were received are committed;
- it has not moved for a day, by the database's clock. A silent process loses its
  requests after the stored lease and its longest attempt, less than a minute.

If it comes back after more than a day:
- If it knows of acked results, its HELLO reports more than the database has. It gets `store_behind`
  and ends. Nothing is applied.
- If all acks were lost, its results are checked against their requests. Final requests do not
  change (G3), so no page and no item is stored twice.

The order matters: the leader forgets the stream first, then the database does. So
no result is planned with a watermark that the database no longer has.

Answers are kept for a week, by the same clock. A client gives up after 20 seconds and a follower
hands a request on at once, so a copy that comes later can only have waited in a process that was
stopped for a week.

It runs a minute after takeover and then every hour, with a few rows in each transaction and a pause
after each, so that it does not delay results. A part of the leader.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.events import Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.result.receive import StreamKey
from zcrawl.store.commands import Forget, Forgotten

WATERMARKS_KEPT_S: Final = 86_400.0
ANSWERS_KEPT_S: Final = 7 * 86_400.0
FIRST_S: Final = 60.0  # after takeover: all living workers have said HELLO
EVERY_S: Final = 3_600.0
PAUSE_S: Final = 1.0  # between two transactions
STREAMS: Final = 100  # in one of them: each is a statement
ANSWERS: Final = 500


class Pruning:
    def __init__(self, state: LeaderState, now: float) -> None:
        self._state = state
        self._next_at = now + FIRST_S
        self._asked = False

    def tick(self, now: float, effects: MasterEffects) -> None:
        if self._asked or now < self._next_at:
            return
        self._asked = True
        utc = self._state.utc(now)
        before = utc - WATERMARKS_KEPT_S
        streams = self._take_old(before)
        epoch = self._state.epoch
        effects.append(Execute(Forget(epoch, streams, before, utc - ANSWERS_KEPT_S, ANSWERS)))

    def done(self, command: Forget, outcome: Forgotten, now: float) -> None:
        self._asked = False
        more = outcome.more or len(command.streams) == STREAMS
        self._next_at = now + (PAUSE_S if more else EVERY_S)

    def _take_old(self, before: float) -> tuple[StreamKey, ...]:
        """Remove old streams from memory and return them."""
        streams = self._state.receiver.streams
        old = [
            key
            for key, stream in streams.items()
            if stream.moved_at < before and stream.is_settled and not self._is_here(key)
        ][:STREAMS]
        for key in old:
            del streams[key]
        return tuple(old)

    def _is_here(self, key: StreamKey) -> bool:
        return self._state.roster.find(*key) is not None
