"""The worker's outbox: every result without an ack, numbered, in order.

The worker machine adds a result for each finished fetch. ACK (cumulative) and WELCOME (its
watermark) remove them. Results that the leader has received but not committed are kept and not sent
again, so that a slow commit does not cause many messages (rule `result window`).

Invariants, asserted by `check()`:
- numbers are contiguous: acked+1 .. produced
- received >= acked: whatever is settled was received
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from zcrawl.mesh.messages import Ack, Result
from zcrawl.mesh.timing import WINDOW_RESULTS
from zcrawl.model.states import Disposition

WINDOW_BYTES = 8_000_000
RESEND_AFTER_S = 1.0
RESEND_MOST_S = 8.0
RESEND_BATCH = 100  # at one go; the rest follows when this part was received or in a second


class Entry(msgspec.Struct):
    number: int
    result: Result
    size: int
    resend_at: float
    backoff_s: float = RESEND_AFTER_S


class Settled(msgspec.Struct, frozen=True):
    """A result that left the outbox; None: committed, but how is not known."""

    result: Result
    disposition: Disposition | None


def size_of(result: Result) -> int:
    """Return about how many bytes a result has when sent."""
    links = sum(len(url) + 20 for url, _ in result.links)
    if result.requests:
        links += sum(len(url) + len(extra) + 30 for url, _, _, extra in result.requests)
    robots = 0 if result.robots is None else len(result.robots.body)
    trapped = sum(len(url) + 40 for url, _, _ in result.trapped)
    return 200 + links + trapped + robots + sum(map(len, result.items))


class Outbox:
    def __init__(self) -> None:
        self.produced = 0
        self.acked = 0
        self.received = 0
        self.bytes = 0
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def room(self, running: int) -> int:
        """Return how many more fetches may start: each running one will need a place."""
        if self.bytes >= WINDOW_BYTES:
            return 0
        return max(0, WINDOW_RESULTS - len(self._entries) - running)

    def add(self, result: Result, now: float) -> Entry:
        self.produced += 1
        entry = Entry(self.produced, result, size_of(result), now + RESEND_AFTER_S)
        self._entries.append(entry)
        self.bytes += entry.size
        return entry

    def replace(self, number: int, by: Callable[[Result], Result]) -> Entry | None:
        """Put another result in the place of one that is still here."""
        at = number - self.acked - 1
        if not 0 <= at < len(self._entries):
            return None  # settled meanwhile
        entry = self._entries[at]
        self.bytes -= entry.size
        entry.result = by(entry.result)
        entry.size = size_of(entry.result)
        self.bytes += entry.size
        return entry

    def settle(self, upto: int, ack: Ack | None) -> list[Settled]:
        """Forget everything up to `upto`; an ACK has the outcome of each."""
        settled = []
        while self._entries and self._entries[0].number <= upto:
            entry = self._entries.popleft()
            self.bytes -= entry.size
            settled.append(Settled(entry.result, _disposition(entry.number, ack)))
        self.acked = max(self.acked, min(upto, self.produced))
        self.received = max(self.received, self.acked)
        return settled

    def reported(self) -> list[tuple[int, int, int, int]]:
        """Return (number, run, host, seq) of unsettled results, for a new leader."""
        return [
            (entry.number, entry.result.run, entry.result.host, entry.result.seq)
            for entry in self._entries
        ]

    def note_received(self, received: int) -> None:
        self.received = max(self.received, min(received, self.produced))

    def restart(self, watermark: int, now: float) -> list[Settled]:
        """Apply a WELCOME: the leader knows what is committed and has received nothing else."""
        settled = self.settle(watermark, None)
        self.received = self.acked
        for entry in self._entries:
            entry.resend_at = now
            entry.backoff_s = RESEND_AFTER_S
        return settled

    def missing(self, gaps: Iterable[tuple[int, int]], now: float) -> list[Entry]:
        """Return the entries of the gaps that the leader named, to send again at once."""
        entries: list[Entry] = []
        for first, last in gaps:
            for entry in self._entries:
                if first <= entry.number <= last:
                    entry.resend_at = now + entry.backoff_s
                    entries.append(entry)
        return entries[:RESEND_BATCH]

    def due(self, now: float) -> list[Entry]:
        """Return unreceived entries whose time has come, oldest first; each then waits twice as
        long."""
        entries: list[Entry] = []
        for entry in self._entries:
            if len(entries) == RESEND_BATCH:
                break
            if entry.number > self.received and entry.resend_at <= now:
                entry.backoff_s = min(entry.backoff_s * 2, RESEND_MOST_S)
                entry.resend_at = now + entry.backoff_s
                entries.append(entry)
        return entries

    def next_resend_at(self) -> float:
        """Return when the oldest unreceived entry is due."""
        at = self.received - self.acked
        return self._entries[at].resend_at if at < len(self._entries) else float("inf")

    def check(self) -> None:
        numbers = [entry.number for entry in self._entries]
        assert numbers == list(range(self.acked + 1, self.produced + 1)), "numbers are contiguous"
        assert self.acked <= self.received <= self.produced, "settled results were received"
        assert self.bytes == sum(entry.size for entry in self._entries), "bytes are counted"


def _disposition(number: int, ack: Ack | None) -> Disposition | None:
    if ack is None or not ack.first <= number <= ack.upto:
        return None
    offset = number - ack.first
    if offset >= len(ack.dispositions):
        return None
    try:
        return Disposition(ack.dispositions[offset])
    except ValueError:
        return None
