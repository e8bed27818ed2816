"""Limits per registered domain and per address in simulated clusters full of faults."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any
from unittest import mock

import pytest

from tests.simulation.worlds import run_world
from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.shared_limits import Groups
from zcrawl.model.process_name import ProcessName
from zcrawl.model.spec import Politeness
from zcrawl.testing.faults import draw
from zcrawl.worker.shared_limits import GroupBook, Keys

DEMANDS = {
    "domain": Politeness(
        rate=0, concurrency=3, robots=False, spread=True, domain_rate=4, domain_concurrency=2
    ),
    "address": Politeness(rate=6, robots=False, address_rate=3, address_concurrency=1),
    "both": Politeness(rate=0, robots=False, domain_rate=5, address_rate=3, address_concurrency=1),
    "numbers": Politeness(rate=0, robots=False, domain_concurrency=3, address_concurrency=2),
}

# Deaf workers make worlds slow, and these bugs show where hosts move quickly.
EVERYBODY_HEARS: dict[str, Any] = {"deaf_workers": 0, "deaf_for_ever": 0, "bogus_epochs": 0}


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("first", range(0, 50, 25))
def test_shared_limits_hold_in_worlds_full_of_faults(demand: str, first: int) -> None:
    """Crashes, pauses, partitions, leader changes, a host that moves to another address: no two
    requests to one domain or address are nearer than its rate allows, and never more at a time,
    whichever workers make them; and the crawl completes."""
    for seed in range(first, first + 25):
        faults = draw(random.Random(seed))
        run_world(seed, faults, hosts=5, pages=20, politeness=DEMANDS[demand])


def _never_blocked(self: Groups, host: HostState, owner: str, now: float) -> float | None:
    return None


def _claimed_at_once(self: Groups, host: HostState, name: ProcessName, now: float) -> None:
    for group in host.groups:
        group.owner, group.first_at = name, 0.0


def _always_ready(self: GroupBook, keys: Keys) -> float:
    return 0.0


def _always_room(self: GroupBook, keys: Keys, host: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [
        (Groups, "blocked_until", _never_blocked),
        (Groups, "claim", _claimed_at_once),
        (GroupBook, "ready_at", _always_ready),
        (GroupBook, "has_room", _always_room),
    ],
)
def test_a_planted_bug_is_found(where: type, name: str, bug: object) -> None:
    """Each part of the rule is needed: without it some world sees a limit broken."""
    with mock.patch.object(where, name, bug), pytest.raises(AssertionError):
        # Some are found in one world of a hundred: so many, and of several kinds.
        for seed, (demand, hosts, pages) in itertools.product(
            range(200), [("both", 5, 20), ("address", 5, 20), ("both", 8, 12)]
        ):
            faults = dataclasses.replace(draw(random.Random(seed)), **EVERYBODY_HEARS)
            run_world(seed, faults, hosts=hosts, pages=pages, politeness=DEMANDS[demand])
