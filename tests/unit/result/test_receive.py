"""Results on their way to the commit: into sequence, once, and back when a commit failed."""

from __future__ import annotations

import random

import pytest

from tests.unit.machine_tools import header, result
from zcrawl.mesh.messages import BadBody, MessageKind
from zcrawl.result.receive import STREAM_WINDOW, Received, Receiver


def take(receiver: Receiver, number: int, incarnation: int = 1) -> list[int]:
    """The numbers that became contiguous by this one."""
    body = result(number)
    fresh = receiver.take(header(body, "w1", incarnation, sequence=number), body, 5.0)
    receiver.check()
    return [delivery.number for delivery in fresh]


def numbers(batch: list[Received]) -> list[int]:
    return [delivery.number for delivery in batch]


@pytest.mark.parametrize("seed", range(30))
def test_any_order_with_repeats_gives_each_result_once_in_sequence(seed: int) -> None:
    """Loss is repaired by repeats; late, early and double copies change nothing (G3)."""
    rng = random.Random(seed)
    receiver = Receiver({})
    arrivals = [n for n in range(1, 60) for _ in range(rng.randrange(1, 4))]
    rng.shuffle(arrivals)
    fresh = [number for arrival in arrivals for number in take(receiver, arrival)]
    assert fresh == numbers(list(receiver.queue)) == list(range(1, 60))
    assert receiver.stream(("w1", 1)).missing() == []


def test_gaps_are_named_and_nothing_behind_them_counts_as_received() -> None:
    """Rule `result window`: only what is missing is resent."""
    receiver = Receiver({})
    for number in (1, 4, 5, 8):
        take(receiver, number)
    stream = receiver.stream(("w1", 1))
    assert (stream.received, stream.missing()) == (1, [(2, 3), (6, 7)])
    assert take(receiver, 3) == []
    assert take(receiver, 2) == [2, 3, 4, 5]
    assert (stream.received, stream.missing()) == (5, [(6, 7)])


def test_a_stream_begins_at_its_stored_watermark() -> None:
    """A repeat of what an earlier leader committed is no news."""
    receiver = Receiver({("w1", 1): 10})
    assert take(receiver, 10) == []
    assert take(receiver, 11) == [11]


def test_incarnations_are_different_streams() -> None:
    """Rule `watermarks`: a new process counts from 1 again."""
    receiver = Receiver({("w1", 1): 10})
    assert take(receiver, 1, incarnation=2) == [1]


@pytest.mark.parametrize("number", [0, STREAM_WINDOW + 1, 2**62])
def test_numbers_outside_the_window_are_not_kept(number: int) -> None:
    """A confused sender cannot fill the memory."""
    receiver = Receiver({})
    assert take(receiver, number) == []
    assert not receiver.stream(("w1", 1)).early


def test_a_result_that_nobody_can_read_closes_its_gap() -> None:
    """Rule `bad results`: its number and its request come from the header."""
    receiver = Receiver({})
    take(receiver, 2)
    head = header(MessageKind.RESULT, sequence=1, subject=77)
    fresh = receiver.take(head, BadBody(head, "spoilt"), 5.0)
    assert [(delivery.number, delivery.seq) for delivery in fresh] == [(1, 77), (2, 2)]


def test_only_a_commit_moves_the_watermark() -> None:
    """What was received and what is committed are told apart."""
    receiver = Receiver({})
    for number in (1, 2, 3):
        take(receiver, number)
    stream = receiver.stream(("w1", 1))
    assert (stream.committed, stream.received) == (0, 3)
    receiver.commit(receiver.next_batch(2), 7.0)
    assert (stream.committed, stream.received) == (2, 3)
