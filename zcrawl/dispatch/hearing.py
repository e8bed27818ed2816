"""Whether a worker hears the leader: its heartbeats prove only that the leader hears it.

A part of the roster's entry of a worker. The leader numbers what it sends to a worker; HEARTBEAT
and HELLO say the highest number that came in. What is not covered in time is lost. After two losses
in a row, with nothing heard in between, the worker is *deaf*:

    hears ──loss──▶ lost one ──loss──▶ deaf
      ▲                │ a higher number     │ a HELLO that has heard what was sent since
      └────────────────┴─────────────────────┘

A worker whose heartbeats arrive and whose ASSIGNs do not would keep its hosts for ever otherwise.
Called by `roster` and `membership`. Pure.
"""

from __future__ import annotations

import msgspec

PATIENCE_S = 3.0  # a message that is not heard of by then was lost
LOSSES_MOST = 2  # in a row


class Hearing(msgspec.Struct):
    sent: int = 0  # number of the newest message to this worker
    heard: int = 0  # the highest that it has heard, by its word
    losses: int = 0  # in a row
    written_off: int = 0  # messages up to here count as lost, once
    awaited: int = 0  # number that it should hear by now; 0: none
    awaited_since: float = 0.0
    welcomed: int = 0  # number of the first WELCOME to its newest HELLO
    must_hear: int = 0  # deaf: a HELLO counts only if it has heard this or a later one

    @property
    def deaf(self) -> bool:
        return self.must_hear > 0

    def next_number(self) -> int:
        self.sent += 1
        return self.sent

    def reported(self, heard: int, now: float) -> bool:
        """A heartbeat says how far it has heard; whether it became deaf by that.

        The clock of a loss starts at the first heartbeat after the message was sent, and what was
        written off counts no more: a second loss is one of something that was sent after the first
        was noticed.
        """
        self._progress(heard)
        if self.deaf:
            return False
        if not self.awaited:
            if self.sent > max(self.heard, self.written_off):
                self.awaited, self.awaited_since = self.sent, now
            return False
        if now - self.awaited_since <= PATIENCE_S:
            return False
        return self._lost()

    def greeted(self, heard: int) -> bool:
        """A HELLO under a new number; whether it became deaf by that. A worker that got no WELCOME
        sends no heartbeats: its next HELLO says that the last WELCOME was lost."""
        self._progress(heard)
        return not self.deaf and self.heard < self.welcomed and self._lost()

    def proves(self, heard: int) -> bool:
        """Whether a HELLO shows that a deaf worker hears again."""
        return self.deaf and heard >= self.must_hear

    def joined(self) -> None:
        """It is welcomed: what it was sent before is void, and the WELCOME has the next number."""
        self.must_hear = self.awaited = 0
        self.written_off = self.sent
        self.welcomed = self.sent + 1

    def _progress(self, heard: int) -> None:
        heard = min(heard, self.sent)  # more than was sent is not possible
        if heard > self.heard:
            self.heard, self.losses, self.awaited = heard, 0, 0

    def _lost(self) -> bool:
        self.losses += 1
        self.written_off, self.awaited = self.sent, 0
        if self.losses < LOSSES_MOST:
            return False
        self.must_hear = self.sent + 1
        return True

    def check(self) -> None:
        assert 0 <= self.heard <= self.sent, "nobody hears what was not sent"
        assert self.written_off <= self.sent and self.awaited <= self.sent
        assert self.deaf or self.losses < LOSSES_MOST, "losses in a row make deaf"
