"""Nodes without a master: whatever happens, when it is quiet each resource has one owner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.standalone import World
from zcrawl.master.rehoming import Rehoming
from zcrawl.ownership import Assigner
from zcrawl.standalone.node_list import NodeList
from zcrawl.standalone.node_watch import BeatHeard, NodeEffect, NodeWatch, UseNodes
from zcrawl.standalone.shares import Shares
from zcrawl.store.commands import Rehomed
from zcrawl.testing.store import rehoming

SEEDS = int(os.environ.get("ZCRAWL_SIM_SEEDS", "60"))
CHUNKS = 4
MANY = [f"resource-{n}" for n in range(10_000)]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_when_it_is_quiet_each_resource_has_one_owner(chunk: int) -> None:
    """Crashes, returns, pauses, partitions, lost beats, and lists that change at different times.

    At every step each node counts as living whom it has heard within SILENT_S, and the rows of its
    store follow its shares. SILENT_S and a beat after the trouble, all nodes agree.
    """
    for seed in range(chunk, SEEDS, CHUNKS):
        World(seed).run()


def test_the_same_seed_gives_the_same_nodes() -> None:
    """Otherwise a failing seed could not be looked at again."""
    worlds = [World(7), World(7)]
    for world in worlds:
        world.run()
    assert worlds[0].trace == worlds[1].trace


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_node_that_leaves_and_returns_moves_its_share_only(count: int) -> None:
    """At most 1/n + 2 % of the resources, there and back, and nothing else."""
    ids = [f"n{n}" for n in range(count)]
    shares = Shares(Assigner("n0", ids))
    before = {resource: shares.assigner.owner(resource) for resource in MANY}
    shares.change(ids, set(ids) - {"n1"})
    moved = [name for name in MANY if shares.assigner.owner(name) != before[name]]
    assert all(before[name] == "n1" for name in moved)
    assert 0 < len(moved) / len(MANY) <= 1 / count + 0.02
    shares.change(ids, set(ids))
    assert {resource: shares.assigner.owner(resource) for resource in MANY} == before


# ---------------------------------------------------------------- planted bugs


@contextlib.contextmanager
def keep_the_share_of_a_node_that_returns() -> Iterator[None]:
    """It is heard again, and nobody computes the shares anew."""
    real = NodeWatch._beat_heard

    def heard(self: NodeWatch, beat: BeatHeard, now: float) -> list[NodeEffect]:
        return [effect for effect in real(self, beat, now) if not isinstance(effect, UseNodes)]

    with mock.patch.object(NodeWatch, "_beat_heard", heard):
        yield


@contextlib.contextmanager
def count_silence_from_the_list_change() -> Iterator[None]:
    """Each new list gives the dead another ten seconds."""
    real = NodeWatch._list_read

    def read(self: NodeWatch, nodes: NodeList, now: float) -> list[NodeEffect]:
        effects = real(self, nodes, now)
        self._heard = dict.fromkeys(nodes.ids, now)
        return effects

    with mock.patch.object(NodeWatch, "_list_read", read):
        yield


@contextlib.contextmanager
def leave_skipped_rows_skipped() -> Iterator[None]:
    """Rows of other nodes are released, but none is claimed."""
    real = rehoming.rehome

    def rehome(tables: Any, command: Any) -> Any:
        skipped = {
            seq: row.reason for seq, row in tables.requests.items() if row.state.name == "SKIPPED"
        }
        for seq in skipped:
            tables.requests[seq].reason = "out of scope"
        done = real(tables, command)
        for seq, reason in skipped.items():
            tables.requests[seq].reason = reason
        return done

    with mock.patch.object(rehoming, "rehome", rehome):
        yield


@contextlib.contextmanager
def forget_to_read_memory_again() -> Iterator[None]:
    """The database has the claimed rows, the leader's queue has not."""
    real = Rehoming.rehomed

    def rehomed(self: Rehoming, *args: Any) -> bool:
        real(self, *args)
        return False

    with mock.patch.object(Rehoming, "rehomed", rehomed):
        yield


@contextlib.contextmanager
def count_an_own_pause_as_silence() -> Iterator[None]:
    """A node that was stopped takes everything over when it continues."""
    with mock.patch.object(NodeWatch, "_leave_out_pause", lambda self, now: None):
        yield


@contextlib.contextmanager
def bring_no_row_back_in_an_ended_run() -> Iterator[None]:
    """The share of a dead node waits for the next run."""
    real = rehoming.rehome

    def rehome(tables: Any, command: Any) -> Any:
        run = tables.runs.get(command.run or 1)
        if run is not None and run.state.ended:
            return Rehomed(run.id + 1, 0, more=True)
        return real(tables, command)

    with mock.patch.object(rehoming, "rehome", rehome):
        yield


PLANTED = (
    count_an_own_pause_as_silence,
    bring_no_row_back_in_an_ended_run,
    keep_the_share_of_a_node_that_returns,
    count_silence_from_the_list_change,
    leave_skipped_rows_skipped,
    forget_to_read_memory_again,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_nodes_is_caught(
    plant: Callable[[], AbstractContextManager[None]],
) -> None:
    """Each breaks a promise in one of the first worlds."""
    with plant(), pytest.raises(AssertionError):
        for seed in range(40):
            World(seed).run()
