"""The outbox against a leader that loses, repeats and delays what it says, and is replaced."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.machine_tools import result
from zcrawl.mesh.messages import Ack
from zcrawl.mesh.timing import WINDOW_RESULTS
from zcrawl.model.states import Disposition
from zcrawl.worker.outbox import RESEND_BATCH, RESEND_MOST_S, Entry, Outbox


class OutboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.now = 0.0
        self.forgotten: dict[int, Disposition | None] = {}
        self.fates: dict[int, Disposition] = {}  # what the store says of each committed result
        self.arrived: set[int] = set()  # at the leader, in this epoch
        self.committed = 0  # survives leaders
        self.said: list[Ack] = []  # every ACK of this leader: any may come late or twice
        self.told_received = 0

    def contiguous(self) -> int:
        received = self.committed
        while received + 1 in self.arrived:
            received += 1
        return received

    def missing(self) -> list[tuple[int, int]]:
        beyond = sorted(n for n in self.arrived if n > self.contiguous())
        gaps, expected = [], self.contiguous() + 1
        for number in beyond:
            if number > expected:
                gaps.append((expected, number - 1))
            expected = number + 1
        return gaps

    def travel(self, entries: list[Entry], arrive: bool) -> None:
        for entry in entries:
            assert entry.number > self.told_received, "what was received is not resent"
            if arrive:
                self.arrived.add(entry.number)

    # ------------------------------------------------------------ the worker's side

    @rule(arrives=st.lists(st.booleans(), min_size=1, max_size=8))
    def produce(self, arrives: list[bool]) -> None:
        for arrive in arrives:
            if not self.outbox.room(0):
                return
            entry = self.outbox.add(result(self.outbox.produced + 1), self.now)
            assert entry.number == entry.result.seq, "numbers have no gaps"
            if arrive:
                self.arrived.add(entry.number)

    @rule(seconds=st.sampled_from([0.4, 1.0, 9.0]), arrive=st.booleans())
    def resend_what_is_due(self, seconds: float, arrive: bool) -> None:
        self.now += seconds
        expected_at = self.outbox.next_resend_at()
        entries = self.outbox.due(self.now)
        assert entries or expected_at > self.now, "a wake-up for a resend finds one"
        assert len(entries) <= RESEND_BATCH
        self.travel(entries, arrive)
        assert all(entry.resend_at > self.now for entry in entries)

    # ------------------------------------------------------------ the leader's side

    @precondition(lambda self: self.contiguous() > self.committed)
    @rule(count=st.integers(1, 9), fate=st.sampled_from(list(Disposition)), heard=st.booleans())
    def commit(self, count: int, fate: Disposition, heard: bool) -> None:
        first = self.committed + 1
        self.committed = min(self.committed + count, self.contiguous())
        for number in range(first, self.committed + 1):
            self.fates[number] = fate
        dispositions = bytes([int(fate)]) * (self.committed - first + 1)
        ack = Ack(self.committed, first, dispositions, self.contiguous(), self.missing())
        self.said.append(ack)
        if heard:
            self.hear(ack, True)

    @precondition(lambda self: self.said)
    @rule(pick=st.integers(0, 10_000), arrive=st.booleans())
    def an_ack_comes_late_or_again(self, pick: int, arrive: bool) -> None:
        self.hear(self.said[pick % len(self.said)], arrive)

    @rule(arrive=st.booleans())
    def gaps_are_named(self, arrive: bool) -> None:
        ack = Ack(self.committed, self.committed + 1, b"", self.contiguous(), self.missing())
        self.said.append(ack)
        self.hear(ack, arrive)

    def hear(self, ack: Ack, arrive: bool) -> None:
        before = self.outbox.acked
        for settled in self.outbox.settle(ack.upto, ack):
            self.forget(settled.result.seq, settled.disposition)
        assert self.outbox.acked == max(before, ack.upto)
        self.outbox.note_received(ack.received)
        self.told_received = max(self.told_received, ack.received)
        for entry in self.outbox.missing(ack.missing, self.now):
            assert any(first <= entry.number <= last for first, last in ack.missing)
            if arrive:
                self.arrived.add(entry.number)

    @rule()
    def beat_tells_what_was_received(self) -> None:
        self.outbox.note_received(self.contiguous())
        self.told_received = max(self.told_received, self.contiguous())

    @rule(tail_lost=st.booleans())
    def a_new_leader_says_welcome(self, tail_lost: bool) -> None:
        """It knows what is committed; of the rest it has at most what overtook the HELLO."""
        self.said.clear()
        if tail_lost:
            self.arrived = {n for n in self.arrived if n <= self.committed}
        for settled in self.outbox.restart(self.committed, self.now):
            self.forget(settled.result.seq, settled.disposition)
        self.told_received = self.committed
        if len(self.outbox):
            due = [entry.number for entry in self.outbox.due(self.now)]
            first = self.committed + 1
            assert due == list(range(first, first + min(len(self.outbox), RESEND_BATCH)))

    def forget(self, number: int, disposition: Disposition | None) -> None:
        assert number not in self.forgotten, "a result is settled once"
        assert number <= self.committed, "a result was forgotten before it was committed"
        assert disposition in (None, self.fates[number]), "an ACK tells what the store did"
        self.forgotten[number] = disposition

    # ------------------------------------------------------------ what holds

    @invariant()
    def the_outbox_agrees_with_itself(self) -> None:
        self.outbox.check()
        assert len(self.outbox) + len(self.forgotten) == self.outbox.produced
        assert len(self.outbox) <= WINDOW_RESULTS

    def teardown(self) -> None:
        """Everything that was not received is resent in the end, and everything is settled."""
        self.a_new_leader_says_welcome(True)
        for _ in range(2 + len(self.outbox) // RESEND_BATCH):
            self.now += RESEND_MOST_S + 1.0
            self.travel(self.outbox.due(self.now), True)
            self.beat_tells_what_was_received()
        while self.contiguous() > self.committed:
            self.commit(9, Disposition.APPLIED, True)
        assert len(self.outbox) == 0
        assert self.outbox.bytes == 0
        assert self.forgotten.keys() == set(range(1, self.outbox.produced + 1))


def test_nothing_is_forgotten_before_it_is_settled_and_nothing_received_is_resent() -> None:
    """Whatever ACKs are lost, late or repeated, and however often the leader changes."""
    run_state_machine_as_test(
        OutboxMachine,
        settings=settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True),
    )
