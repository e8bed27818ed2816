"""Leases against a model: who holds which request, and what that costs in credit."""

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

from tests.unit.machine_tools import row, worker_info
from zcrawl.dispatch.leases import Lease, Leases

PATIENCE_S = 3.0
PICK = st.integers(0, 10_000)


class LeasesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.workers = [worker_info("w1"), worker_info("w2"), worker_info("w1", incarnation=2)]
        self.now = 0.0
        self.tokens: set[tuple[int, int]] = set()
        self.open: dict[int, Lease] = {}
        self.received: dict[int, Lease] = {}

    def held(self) -> dict[int, Lease]:
        return self.open | self.received

    @rule(seq=st.integers(1, 12), at=st.integers(0, 2), number=st.integers(0, 9))
    def lease(self, seq: int, at: int, number: int) -> None:
        if seq in self.held():
            assert self.leases.holds(seq)
            return
        token = (1, self.leases.next_n())
        assert token not in self.tokens, "a token is given once"
        self.tokens.add(token)
        queued_row = row(seq, run=1 + seq % 2)
        self.open[seq] = self.leases.open(token, queued_row, self.workers[at], number, self.now)
        if seq % 5 == 0:
            self.workers[at].on_trial = self.workers[at].reserved = seq

    @precondition(lambda self: self.held())
    @rule(pick=PICK)
    def receive(self, pick: int) -> None:
        """Also twice: a second copy of a result returns no second credit."""
        seqs = sorted(self.held())
        seq = seqs[pick % len(seqs)]
        lease = self.held()[seq]
        self.leases.receive(lease)
        self.open.pop(seq, None)
        self.received[seq] = lease

    @rule(seq=st.integers(1, 12))
    def close(self, seq: int) -> None:
        expected = self.held().get(seq)
        assert self.leases.close(seq) is expected
        self.open.pop(seq, None)
        self.received.pop(seq, None)

    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(at=st.integers(0, 2), assigned=st.integers(0, 9), pick=PICK, everything=st.booleans())
    def a_heartbeat_tells(self, at: int, assigned: int, pick: int, everything: bool) -> None:
        """Lost is only what arrived or is overdue, is not held, and has no result on its way."""
        worker = self.workers[at]
        mine = [open_lease for open_lease in self.open.values() if open_lease.worker is worker]
        held = {
            open_lease.token: bool(pick & 1)
            for open_lease in mine
            if (pick >> open_lease.row.seq) & 1
        }
        lost = self.leases.lost_on_the_way(worker, held, assigned, everything, self.now, PATIENCE_S)
        expected = [
            open_lease
            for open_lease in mine
            if everything
            and open_lease.token not in held
            and (open_lease.number <= assigned or self.now - open_lease.sent_at > PATIENCE_S)
        ]
        assert sorted(x.row.seq for x in lost) == sorted(x.row.seq for x in expected)
        for lease in lost:
            self.close(lease.row.seq)

    @invariant()
    def leases_agree_with_the_model(self) -> None:
        self.leases.check()
        assert self.leases.by_seq == self.held()
        for worker in self.workers:
            mine = [lease for lease in self.open.values() if lease.worker is worker]
            assert worker.leases == len(mine), "an open lease takes one credit, no other does"
            held = [lease for lease in self.held().values() if lease.worker is worker]
            assert {x.row.seq for x in self.leases.of_worker(worker)} == {x.row.seq for x in held}
            if worker.on_trial:
                assert worker.on_trial in self.open, "a trial ends with its lease or its result"
        for run in (1, 2):
            held = [lease for lease in self.held().values() if lease.row.run == run]
            assert self.leases.by_run.get(run, 0) == len(held) == len(self.leases.of_run(run))


def test_each_request_has_one_lease_and_each_open_lease_one_credit() -> None:
    """Whatever is leased, received and closed in any order, and received twice."""
    run_state_machine_as_test(
        LeasesMachine,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True),
    )
