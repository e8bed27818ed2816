"""What the database may forget: watermarks of worker processes that are long gone, and answers to
clients that nobody asks for any more. Without it both grow for as long as a cluster lives.

A watermark says which results of one process (worker, incarnation) are committed. It may go when
- the process is not here: it is not present in the roster, and this leader has led for so long that
  every process that lives has said HELLO;
- nothing of it is under way: all that was received is committed, nothing came early;
- it has not moved for a day, by the database's clock. Nothing of a silent process counts for longer
  than the stored lease plus its longest attempt, a fraction of a minute, so whatever it held was
  given to others long ago.

What if it comes back after all, from a sleep of more than a day?
- It knows of acked results: its HELLO knows more than the database, it is told `store_behind` and
  ends, and its next result cannot close the gap to number 1. Nothing is applied.
- It knows of none, because every ack was lost: its results are judged by their requests. Those that
  are final stay as they are (G3): no page and no item can come twice.

The order matters: the leader forgets the stream first, then the database does. So no result of it
is ever planned on a watermark that the database has lost.

Answers are kept for a week, by the same clock. A client gives up after 20 seconds and a follower
hands a request on at once, so a copy that comes later can only have waited in a process that was
stopped for a week.

First a minute after takeover, then every hour; a few rows in a transaction, a second apart, so that
it holds up nobody's results. A part of the leader.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.events import Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.result.receive import StreamKey
from zcrawl.store.commands import Forget, Forgotten

WATERMARKS_KEPT_S: Final = 86_400.0
ANSWERS_KEPT_S: Final = 7 * 86_400.0
FIRST_S: Final = 60.0  # after takeover: whoever lives has said HELLO
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
        """Streams that may go; they are gone from memory now."""
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
