"""The reason shown for a waiting host agrees with the planner, in every simulated state."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.simulation.test_groups import DEMANDS
from tests.simulation.worlds import run_world
from zcrawl.dispatch.gates import Gate
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.why import host_queue, why
from zcrawl.model.reasons.waiting import DUE
from zcrawl.testing.faults import draw

CHUNK = 25
# What worlds full of faults meet when the planner looks at a host. It looks at none before its pace
# allows it, but for hosts of several runs.
MET = {Gate.STORING, Gate.NO_ROWS, Gate.INHERITED, Gate.NO_OWNER, Gate.CREDIT}
MET |= {Gate.TRIAL, Gate.RUNS, Gate.OPEN}


def state_of(planner: Planner, host: HostState) -> str:
    parked, dirty = planner._parking._hosts, planner.granter.dirty
    workers = [
        (worker.name, worker.reserved, worker.on_trial)
        for worker in planner.roster.workers.values()
    ]
    return repr((host, parked, dirty, planner._capped, planner.verdicts._limited, workers))


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Counter[Gate]:
    """Count the gates, and compare each with what the planner does next."""
    gates: Counter[Gate] = Counter()
    dispatch = Planner._dispatch

    def checked(planner: Planner, host: HostState, now: float) -> None:
        before = state_of(planner, host)
        gate = planner.gates.gate(host, now)
        reason = why(host, host_queue(host, planner.frontier), planner, now)
        assert state_of(planner, host) == before, "to ask changes nothing"
        leases = len(planner.leases.by_seq)
        dispatch(planner, host, now)
        sent = len(planner.leases.by_seq) - leases
        gates[gate] += 1
        if gate is not Gate.ENDING:
            assert sent == (gate is Gate.OPEN), f"{gate}, and {sent} requests are sent"
            assert (reason.code == DUE) == bool(sent), f"{reason}, and {sent} requests are sent"

    monkeypatch.setattr(Planner, "_dispatch", checked)
    return gates


@pytest.mark.parametrize("first", range(0, 100, CHUNK))
def test_a_gate_is_open_exactly_when_the_planner_sends(gates: Counter[Gate], first: int) -> None:
    """Before each look of the planner at a host the gate is asked: if it is open a request goes
    out, and people are told that it is due; if not, none does. To ask changes nothing."""
    for seed in range(first, first + CHUNK):
        run_world(seed, draw(random.Random(seed)))
    assert not MET - gates.keys(), f"the worlds meet all of these gates: {gates}"


@pytest.mark.parametrize("demand", ["domain", "address"])
def test_the_gate_of_a_shared_limit_is_the_planners(gates: Counter[Gate], demand: str) -> None:
    """The same for hosts that share the limits of a domain or an address."""
    for seed in range(10):
        faults = draw(random.Random(seed))
        run_world(seed, faults, hosts=5, pages=20, politeness=DEMANDS[demand])
    assert gates[Gate.OPEN] > 0
