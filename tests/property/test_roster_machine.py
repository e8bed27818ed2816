"""The roster against the table of states that its module documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.unit.machine_tools import heartbeat, hello
from zcrawl.dispatch.roster import (
    FORGET_AFTER_S,
    Greeting,
    Roster,
)
from zcrawl.mesh.timing import HEARTBEAT_S, LOST_AFTER, SUSPECT_AFTER
from zcrawl.model.states import NodeState as S

ALIVE = {S.IDLE, S.BUSY}
# What may follow on a state, event by event; a new process of the same id begins at JOINING.
TABLE: dict[str, Mapping[S, Collection[S]]] = {
    "hello": {state: {S.JOINING} for state in S},
    "heartbeat": {state: {*ALIVE, S.DRAINING} for state in S if state not in (S.LOST, S.OFFLINE)},
    "hear": {S.SUSPECT: {*ALIVE, S.DRAINING}},
    "drain": {S.IDLE: {S.DRAINING}, S.BUSY: {S.DRAINING}, S.DRAINING: ALIVE},
    "deaf": {state: {S.SUSPECT} for state in S if state not in (S.LOST, S.OFFLINE)},
    "bye": {state: {S.OFFLINE} for state in S if state not in (S.LOST, S.OFFLINE)},
    "tick": {
        S.JOINING: {S.SUSPECT, S.LOST},
        S.IDLE: {S.BUSY, S.SUSPECT, S.LOST},
        S.BUSY: {S.IDLE, S.SUSPECT, S.LOST},
        S.DRAINING: {S.SUSPECT, S.LOST},
        S.SUSPECT: {S.LOST},
    },
}
IDS, INCARNATIONS = st.sampled_from(["w1", "w2"]), st.integers(1, 3)


class RosterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster()
        self.now = 0.0
        self.heard: dict[str, float] = {}
        self.newest: dict[tuple[str, int], int] = {}

    def follow(self, event: str, before: dict[str, tuple[int, S]]) -> None:
        """Every change of state since `before` stands in the table."""
        for name, info in self.roster.workers.items():
            incarnation, state = before.get(name, (0, S.OFFLINE))
            if info.state is state and info.incarnation == incarnation:
                continue
            assert info.state in TABLE[event].get(state, set()), (event, state, info.state)

    def states(self) -> dict[str, tuple[int, S]]:
        return {name: (info.incarnation, info.state) for name, info in self.roster.workers.items()}

    @rule(
        worker=IDS,
        incarnation=INCARNATIONS,
        step=st.sampled_from([-1, 0, 1]),
        replaces=st.sampled_from([0, 1, 2]),
        route=st.sampled_from([b"own", b"own", b"own", b"other"]),
        hears=st.booleans(),
    )
    def say_hello(
        self, worker: str, incarnation: int, step: int, replaces: int, route: bytes, hears: bool
    ) -> None:
        number = max(1, self.newest.get((worker, incarnation), 0) + step)
        before, entry = self.states(), self.roster.workers.get(worker)
        heard = entry.hearing.sent if entry is not None and hears else 0
        message = hello(number, replaces=replaces, heard=heard)
        greeting = self.roster.judge(worker, incarnation, message, route)
        assert self.states() == before, "judging changes nothing"
        if entry is None:
            assert greeting is Greeting.WELCOME
        elif entry.incarnation != incarnation:
            dead = not entry.present or replaces == entry.incarnation
            assert greeting is (Greeting.WELCOME if dead else Greeting.DUPLICATE)
        elif entry.present and entry.route != route:
            assert greeting is Greeting.DUPLICATE, "another line takes no living process over"
        elif number < entry.hello:
            assert greeting is Greeting.OLD
        elif entry.deaf and heard < entry.hearing.must_hear:
            assert greeting is Greeting.DEAF
        elif number == entry.hello:
            assert greeting is (Greeting.AGAIN if entry.present else Greeting.ANEW)
        else:
            assert greeting is Greeting.WELCOME
        if greeting is not Greeting.WELCOME:
            return
        if entry is not None and entry.incarnation == incarnation:
            if self.roster.hello_reported(entry, heard):
                self.follow("deaf", before)
                return
            assert self.states() == before
        info = self.roster.join(worker, incarnation, message, route, self.now)
        assert info.route == route
        assert not info.deaf
        info.next_number()  # WELCOME
        self.newest[(worker, incarnation)] = number
        self.heard[worker] = self.now
        assert info.state is S.JOINING
        assert info.echo == 0.0
        assert not info.runs
        same = entry is not None and entry.incarnation == incarnation
        assert (info is entry) == same, "leases of the same process go on pointing to it"
        self.follow("hello", before)

    @rule(
        worker=IDS,
        incarnation=INCARNATIONS,
        late_s=st.sampled_from([0.0, 0.0, 2.0, 8.0]),
        old=st.booleans(),
        leases=st.integers(0, 2),
        draining=st.sampled_from([False, False, False, True]),
        hears=st.booleans(),
    )
    def a_heartbeat_comes(
        self,
        worker: str,
        incarnation: int,
        late_s: float,
        old: bool,
        leases: int,
        draining: bool,
        hears: bool,
    ) -> None:
        info = self.roster.find(worker, incarnation)
        if info is not None and info.deaf:
            return  # it is asked to greet
        if info is None:
            entry = self.roster.workers.get(worker)
            assert entry is None or entry.incarnation != incarnation or not entry.present
            return
        before, echo = self.states(), info.echo
        info.leases = leases
        number = info.hello - 1 if old else info.hello
        sent_at = self.now - late_s
        beat = heartbeat(sent_at, hello=number, draining=draining)
        self.roster.heartbeat(info, beat, self.now)
        self.heard[worker] = self.now
        assert info.echo == (echo if old else max(echo, sent_at)), "an echo never goes back"
        self.follow("heartbeat", before)
        if info.state in ALIVE:
            assert info.state is (S.BUSY if leases else S.IDLE)
        before = self.states()
        if self.roster.heartbeat_reported(info, info.hearing.sent if hears else 0, self.now):
            self.follow("deaf", before)
            assert info.state is S.SUSPECT

    @rule(worker=IDS)
    def something_is_sent(self, worker: str) -> None:
        if worker in self.roster.workers:
            self.roster.workers[worker].next_number()

    @rule(worker=IDS, incarnation=INCARNATIONS)
    def a_result_comes(self, worker: str, incarnation: int) -> None:
        info, before = self.roster.find(worker, incarnation), self.states()
        if info is not None:
            self.roster.hear(info, self.now)
            if not info.deaf:  # its word counts no more
                self.heard[worker] = self.now
            self.follow("hear", before)

    @rule(worker=IDS, incarnation=INCARNATIONS, leave=st.booleans(), on=st.booleans())
    def drain_or_leave(self, worker: str, incarnation: int, leave: bool, on: bool) -> None:
        info, before = self.roster.find(worker, incarnation), self.states()
        if info is not None and leave:
            self.roster.leave(info)
            self.follow("bye", before)
            assert self.roster.find(worker, incarnation) is None, "who left is not found"
        elif info is not None:
            self.roster.set_drained(info, on)
            assert not (on and info.usable), "a drained worker gets no work"
            self.follow("drain", before)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 4.0, 9.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        before = self.states()
        present = {name for name, entry in self.roster.workers.items() if entry.present}
        lost = {info.id for info in self.roster.tick(self.now)}
        self.follow("tick", before)
        for name in before:
            silent = self.now - self.heard[name]
            info = self.roster.workers.get(name)
            if name not in present:
                assert (info is None) == (silent > FORGET_AFTER_S), "the gone are forgotten late"
                assert name not in lost, "a worker is lost once"
                continue
            assert info is not None
            assert (name in lost) == (info.state is S.LOST) == (silent > LOST_AFTER * HEARTBEAT_S)
            if info.deaf or silent > SUSPECT_AFTER * HEARTBEAT_S:
                assert info.state in (S.SUSPECT, S.LOST)
                assert not info.usable
            else:
                assert info.state not in (S.SUSPECT, S.LOST)

    @invariant()
    def new_work_goes_only_to_the_living(self) -> None:
        self.roster.check()
        for info in self.roster.workers.values():
            if info.usable:
                assert info.state in (S.JOINING, *ALIVE)
                assert not info.draining
                assert not info.drained
            if info.state is S.DRAINING:
                assert info.draining or info.drained
            if info.state is S.DRAINED:
                assert info.drained
                assert not info.leases
            if info.deaf:
                assert not info.usable


def test_states_move_only_along_the_documented_table() -> None:
    """Whatever HELLOs, heartbeats, silences and farewells come, in any order and too late."""
    run_state_machine_as_test(
        RosterMachine,
        settings=settings(
            max_examples=150, stateful_step_count=40, deadline=None, derandomize=True
        ),
    )
