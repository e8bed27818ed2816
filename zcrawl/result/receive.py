"""Put the results of each worker into sequence and queue them for the commit.

Called by the leader for every RESULT. Results may come twice, late, out of order, or before the
HELLO of their sender (rule `leases`). Contiguous results count as received and are reported in BEAT
and ACK; gaps are reported at once, so that only they are sent again.

Invariants, asserted by `check()`: - committed <= received < every number that waits in `early` -
the commit queue holds each number of a stream once, ascending
"""

from __future__ import annotations

from collections import deque

import msgspec

from zcrawl.mesh.messages import BadBody, Header, Result

STREAM_WINDOW = 2_000  # numbers further ahead than this are refused, not kept
RECENT = 1_000  # twice what an outbox can hold

StreamKey = tuple[str, int]  # (worker, incarnation)


class Received(msgspec.Struct):
    """One result in the commit queue."""

    stream: StreamKey
    number: int
    seq: int
    result: Result | BadBody
    received_at: float
    promised: tuple[int, int] = (0, 0)  # (run, host) from the worker's HELLO


class Stream(msgspec.Struct):
    committed: int  # the stored watermark
    received: int  # contiguous
    early: dict[int, Received] = msgspec.field(default_factory=dict)
    gap_told_at: float = -1.0
    recent: deque[tuple[int, int]] = msgspec.field(  # (number, seq) of what came last
        default_factory=lambda: deque(maxlen=RECENT)
    )
    moved_at: float = 0.0  # UTC, of the watermark

    @property
    def is_settled(self) -> bool:
        """Whether no result of it is in progress."""
        return self.committed == self.received and not self.early

    def received_after(self, number: int) -> set[int]:
        """Return the requests of recent results above `number`."""
        return {seq for result_number, seq in self.recent if result_number > number}

    def missing(self) -> list[tuple[int, int]]:
        gaps = []
        expected = self.received + 1
        for number in sorted(self.early):
            if number > expected:
                gaps.append((expected, number - 1))
            expected = number + 1
        return gaps


class Receiver:
    def __init__(self, watermarks: dict[StreamKey, int]) -> None:
        self.streams: dict[StreamKey, Stream] = {
            key: Stream(number, number) for key, number in watermarks.items()
        }
        self.queue: deque[Received] = deque()

    def stream(self, key: StreamKey) -> Stream:
        """Return a stream; a new one starts at 0, because results may arrive before HELLO."""
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = Stream(0, 0)
        return stream

    def take(self, header: Header, result: Result | BadBody, now: float) -> list[Received]:
        """Return the results that are contiguous now; empty for a repeated or early one."""
        key = (header.source, header.incarnation)
        stream = self.stream(key)
        number = header.sequence
        is_repeat = number <= stream.received or number in stream.early
        if is_repeat or number > stream.committed + STREAM_WINDOW or number < 1:
            return []
        seq = result.seq if isinstance(result, Result) else header.subject
        stream.early[number] = Received(key, number, seq, result, now)
        fresh = []
        while (received := stream.early.pop(stream.received + 1, None)) is not None:
            stream.received += 1
            stream.recent.append((received.number, received.seq))
            fresh.append(received)
        self.queue.extend(fresh)
        return fresh

    def next_batch(self, most: int) -> list[Received]:
        return [self.queue.popleft() for _ in range(min(most, len(self.queue)))]

    def commit(self, batch: list[Received], utc: float) -> None:
        for received in batch:
            stream = self.stream(received.stream)
            stream.committed = max(stream.committed, received.number)
            stream.moved_at = utc

    def check(self) -> None:
        last: dict[StreamKey, int] = {}
        for received in self.queue:
            previous = last.get(received.stream)
            assert previous is None or received.number == previous + 1, "the queue is in sequence"
            last[received.stream] = received.number
        for stream in self.streams.values():
            assert stream.committed <= stream.received, "what is committed was received"
            assert all(number > stream.received + 1 for number in stream.early), (
                "early results are beyond the received ones"
            )
