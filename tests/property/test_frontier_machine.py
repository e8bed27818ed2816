"""The frontier against a model: a dict of queued rows is the database, and everything that the
leader does to a frontier happens in any order, with refills read before or after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from zcrawl.frontier import frontier as module
from zcrawl.frontier.frontier import Frontier
from zcrawl.model.rows import LaneCount, LaneWant, QueuedRow, Refilled

WINDOW_ROWS, LANE_ROWS = 10, 4
SMALL = {"REFILL_ROWS": 3, "REFILL_BELOW": 2, "CROWDED_ROWS": 2, "REFILL_LANES": 3}
OFFSET = 1_000.0  # stored UTC is this far ahead of the machine's clock
RUNS, HOSTS = st.integers(1, 2), st.just(1)
PICK = st.integers(0, 10_000)

LaneAnswer = tuple[LaneWant, list[QueuedRow], bool]


@dataclasses.dataclass
class Asked:
    """A refill on its way: asked, then read, then answered, one after the other."""

    wants: tuple[LaneWant, ...]
    generation: int
    read: list[LaneAnswer] | None = None


class FrontierMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.frontier = Frontier(WINDOW_ROWS, LANE_ROWS)
        self.now = 1.0
        self.seq = 0
        self.database: dict[int, QueuedRow] = {}
        self.leased: dict[int, QueuedRow] = {}
        self.unheard: list[QueuedRow] = []  # committed; the word of it is under way
        self.withheld: dict[int, QueuedRow | None] = {}
        self.settled: list[tuple[QueuedRow, bool]] = []  # committed results; True: a retry
        self.due: dict[int, float] = {}
        self.refills: list[Asked] = []

    # ------------------------------------------------------------ the model

    def taken(self, seq: int) -> bool:
        return seq in self.leased or seq in self.withheld

    def read(self, want: LaneWant) -> LaneAnswer:
        lane = [r for r in self.database.values() if (r.run, r.host) == (want.run, want.host)]
        after = [r for r in lane if want.after is None or r.order > want.after]
        rows = sorted(after, key=lambda r: r.order)[: want.limit]
        return want, rows, len(rows) < want.limit

    def insert(self, row: QueuedRow, due_at: float = 0.0) -> None:
        self.frontier.insert(row, due_at)

    def hear_commits(self) -> None:
        for row in self.unheard:
            if not self.taken(row.seq):
                self.insert(row)
        self.unheard.clear()
        for row, retried in self.settled:
            old_row = self.frontier.remove(row.run, row.host, row.seq)
            old_row = self.withheld.pop(row.seq, None) or old_row
            if not retried:
                continue
            if old_row is None:
                retry = (row.attempts, row.due_at)
                self.frontier.reconsider(row.run, row.host, row.seq, retry)
            else:
                self.insert(row, row.due_at - OFFSET)
        self.settled.clear()

    # ------------------------------------------------------------ rows in

    @rule(
        run=RUNS,
        host=HOSTS,
        orders=st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 3)), min_size=2, max_size=8),
        heard=st.booleans(),
    )
    def commit_new_rows(self, run: int, host: int, orders: Any, heard: bool) -> None:
        for prio, depth in orders:
            self.seq += 1
            row = QueuedRow(run, host, prio, depth, self.seq, f"http://h{host}.test/{self.seq}")
            self.database[row.seq] = row
            self.unheard.append(row)
        if heard:
            self.hear_commits()

    @rule()
    def words_of_commits_arrive(self) -> None:
        self.hear_commits()

    # ------------------------------------------------------------ leases

    @rule(run=RUNS, host=HOSTS, count=st.integers(1, 4))
    def pop(self, run: int, host: int, count: int) -> None:
        for _ in range(count):
            self.pop_one(run, host)

    def pop_one(self, run: int, host: int) -> None:
        row = self.frontier.pop((run, host))
        if row is None:
            return
        assert row.seq in self.database, "a final row was popped"
        assert row.seq not in self.leased, "a row was popped twice"
        assert row.seq not in self.withheld, "a row was popped whose result is being committed"
        assert self.due.get(row.seq, 0.0) <= self.now, "a row was popped before its time"
        unheard = {unheard_row.seq for unheard_row in self.unheard}
        for other in self.database.values():
            hidden = self.taken(other.seq) or other.seq in unheard
            if (other.run, other.host) == (run, host) and not hidden and other.seq not in self.due:
                assert row.order <= other.order, "a row was popped out of turn"
        self.due.pop(row.seq, None)
        self.leased[row.seq] = row

    @precondition(lambda self: self.leased)
    @rule(pick=PICK)
    def give_back(self, pick: int) -> None:
        row = self.leased.pop(sorted(self.leased)[pick % len(self.leased)])
        self.insert(row)

    @precondition(lambda self: self.leased)
    @rule(pick=PICK, delay=st.sampled_from([0.5, 2.0, 9.0]))
    def retry_later(self, pick: int, delay: float) -> None:
        self.hear_commits()
        row = self.leased.pop(sorted(self.leased)[pick % len(self.leased)])
        self.due[row.seq] = self.now + delay
        row = replace(row, due_at=self.now + delay + OFFSET)
        self.database[row.seq] = row
        self.frontier.remove(row.run, row.host, row.seq)
        self.insert(row, self.now + delay)

    @precondition(lambda self: self.leased)
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        self.hear_commits()
        row = self.leased.pop(sorted(self.leased)[pick % len(self.leased)])
        del self.database[row.seq]
        self.frontier.remove(row.run, row.host, row.seq)

    # ------------------------------------------------------------ results without a lease

    def unleased(self) -> list[int]:
        busy = {row.seq for row in self.unheard}
        return [seq for seq in self.database if not self.taken(seq) and seq not in busy]

    @precondition(lambda self: self.unleased())
    @rule(pick=PICK)
    def result_arrives_without_a_lease(self, pick: int) -> None:
        seqs = self.unleased()
        row = self.database[seqs[pick % len(seqs)]]
        self.withheld[row.seq] = self.frontier.remove(row.run, row.host, row.seq)

    def being_committed(self) -> list[int]:
        done = {row.seq for row, _ in self.settled}
        return [seq for seq in self.withheld if seq not in done]

    @precondition(lambda self: self.being_committed())
    @rule(pick=PICK, fate=st.sampled_from(["final", "retry", "dropped"]), heard=st.booleans())
    def its_result_is_committed(self, pick: int, fate: str, heard: bool) -> None:
        seqs = self.being_committed()
        row = self.database[seqs[pick % len(seqs)]]
        if fate == "dropped":
            self.hear_commits()
            withheld_row = self.withheld.pop(row.seq)
            if withheld_row is None:
                self.frontier.reconsider(row.run, row.host, row.seq)
            else:
                self.insert(
                    withheld_row, withheld_row.due_at - OFFSET if withheld_row.due_at else 0.0
                )
            return
        if fate == "final":
            del self.database[row.seq]
        else:
            self.due[row.seq] = self.now + 3.0
            row = replace(row, due_at=self.now + 3.0 + OFFSET)
            self.database[row.seq] = row
        self.settled.append((row, fate == "retry"))
        if heard:
            self.hear_commits()

    # ------------------------------------------------------------ refills

    @rule(read_now=st.booleans())
    def ask_for_a_refill(self, read_now: bool = False) -> None:
        wants = self.frontier.wants()
        assert len(wants) <= SMALL["REFILL_LANES"]
        if wants:
            self.refills.append(Asked(wants, self.frontier.generation))
            if read_now:
                self.read_the_next_refill()

    @precondition(lambda self: any(refill.read is None for refill in self.refills))
    @rule()
    def read_the_next_refill(self) -> None:
        pending_refill = next(
            refill for refill in self.refills if refill.read is None
        )  # one reader, in order
        pending_refill.read = [self.read(want) for want in pending_refill.wants]

    @precondition(lambda self: self.refills)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def answer_the_oldest_refill(self, fails: bool) -> None:
        refill = self.refills.pop(0)
        if refill.generation != self.frontier.generation:
            return  # void: asked before a load
        if fails and refill.read is None:
            self.frontier.refill_failed(refill.wants)
            return
        lanes = refill.read or [self.read(want) for want in refill.wants]
        for row in (row for _, rows, _ in lanes for row in rows):
            if row.seq in self.withheld:
                self.withheld[row.seq] = row
        self.frontier.refilled(Refilled(lanes), self.taken, OFFSET, self.now)

    # ------------------------------------------------------------ time, reloads, ends

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.frontier.mature(self.now)

    @rule(seldom=st.integers(0, 3))
    def load_again(self, seldom: int) -> None:
        if seldom:
            return
        self.hear_commits()
        lanes: dict[tuple[int, int], int] = {}
        for row in self.database.values():
            lanes[(row.run, row.host)] = lanes.get((row.run, row.host), 0) + 1
        self.frontier.load([LaneCount(*key, count) for key, count in lanes.items()])

    @rule(run=RUNS, seldom=st.integers(0, 7))
    def a_run_ends(self, run: int, seldom: int) -> None:
        """And may be opened again by later rows, as a retry of dead requests does."""
        if seldom:
            return
        self.hear_commits()
        self.frontier.drop_run(run)
        gone = [seq for seq, row in self.database.items() if row.run == run]
        for seq in gone:
            del self.database[seq]
            for table in (self.leased, self.withheld, self.due):
                table.pop(seq, None)

    # ------------------------------------------------------------ what holds

    @invariant()
    def the_frontier_agrees_with_itself(self) -> None:
        self.frontier.check()

    @invariant()
    def memory_is_bounded(self) -> None:
        most = WINDOW_ROWS + 3 * LANE_ROWS
        assert self.frontier.rows <= most, "more rows in memory than the window allows"

    def teardown(self) -> None:
        """G2: draining with refills yields every queued row exactly once."""
        self.hear_commits()
        for seq in list(self.withheld):
            withheld_row, row = self.withheld.pop(seq), self.database[seq]
            if withheld_row is None:
                self.frontier.reconsider(row.run, row.host, row.seq)
            else:
                self.insert(
                    withheld_row, withheld_row.due_at - OFFSET if withheld_row.due_at else 0.0
                )
        for row in self.leased.values():
            self.insert(row)
        self.leased.clear()
        for _ in range(len(self.database) + 20):
            self.time_passes(10.0)
            while self.refills:
                self.answer_the_oldest_refill(False)
            for run, host in list(self.frontier.lanes):
                while self.frontier.has_ready((run, host)):
                    self.pop_one(run, host)
            self.ask_for_a_refill()
        assert self.leased.keys() == self.database.keys(), "a queued row is lost"
        assert self.frontier.rows == 0
        self.frontier.check()


def test_no_order_of_events_loses_or_doubles_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever races with a refill, each queued row is popped once, in order, and none is lost."""
    for name, value in SMALL.items():
        monkeypatch.setattr(module, name, value)
    machine_settings = settings(
        max_examples=250, stateful_step_count=50, deadline=None, derandomize=True
    )
    run_state_machine_as_test(FrontierMachine, settings=machine_settings)


def test_a_breadth_first_crawl_stays_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: a crawl that finds rows much faster than it pops them needs no more than the window."""
    for name, value in SMALL.items():
        monkeypatch.setattr(module, name, value)
    machine = FrontierMachine()
    most = 0
    for n in range(500):
        run, host = 1 + n % 2, 1 + n // 2 % 2
        machine.commit_new_rows(run, host, [(0, n // 50)] * 4, True)
        machine.ask_for_a_refill()
        while machine.refills:
            machine.answer_the_oldest_refill(False)
        row = machine.frontier.pop((run, host))
        assert row is not None
        del machine.database[row.seq]
        most = max(most, machine.frontier.rows)
    assert len(machine.database) == 1_500
    assert most <= WINDOW_ROWS + 4 * SMALL["CROWDED_ROWS"]


def test_a_row_that_became_final_after_the_read_is_not_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The race window of a refill: read as queued, final before the answer."""
    for name, value in SMALL.items():
        monkeypatch.setattr(module, name, value)
    machine = FrontierMachine()
    machine.commit_new_rows(1, 1, [(0, 0)] * 12, True)
    machine.pop(1, 1, 4)
    machine.ask_for_a_refill(True)
    assert machine.refills, "the lane was cut and runs low"
    machine.result_arrives_without_a_lease(0)
    machine.its_result_is_committed(0, "final", True)
    machine.answer_the_oldest_refill(False)
    machine.teardown()


def test_a_refill_obeys_the_stored_due_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delayed retry is still delayed after a reload."""
    for name, value in SMALL.items():
        monkeypatch.setattr(module, name, value)
    machine = FrontierMachine()
    machine.commit_new_rows(1, 1, [(0, 0)], True)
    machine.pop(1, 1, 1)
    machine.retry_later(0, 9.0)
    machine.load_again(0)
    machine.ask_for_a_refill()
    machine.answer_the_oldest_refill(False)
    assert not machine.frontier.has_ready((1, 1))
    machine.teardown()
