"""Rendezvous hashing: even shares, few moves, and the same answer everywhere."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.dispatch.host_state import sort_by_score
from zcrawl.errors import ConfigError
from zcrawl.model.process_name import process_name, worker_of
from zcrawl.ownership import Assigner, fingerprint, hash64, mix, owner_of, rank

RESOURCES = [f"host-{n}.example.com" for n in range(20_000)]
NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12, unique=True)


def nodes(count: int) -> list[str]:
    return [f"node-{n}" for n in range(1, count + 1)]


def test_the_hash_never_changes() -> None:
    """These values hold for each version of Python and zcrawl: stored shares depend on them."""
    assert hash64("example.com") == 0x13C51305C1CF2666
    assert mix(hash64("example.com"), hash64("node-1")) == 0x30FF3141DCD09E3D
    listed = nodes(8)
    owners = [owner_of(name, listed) for name in ("example.com", "https://a.test/x?y=1", "ü")]
    assert owners == ["node-8", "node-6", "node-5"]
    assert fingerprint(listed) == "702e581e"


@pytest.mark.parametrize("count", [2, 3, 8, 9, 33, 100])
def test_each_node_has_an_even_share(count: int) -> None:
    """Within 10 % of the mean, and three standard deviations of chance."""
    assigner = Assigner("node-1", nodes(count))
    shares = Counter(assigner.owner(name) for name in RESOURCES)
    mean = len(RESOURCES) / count
    slack = 0.1 * mean + 3 * math.sqrt(mean * (1 - 1 / count))
    assert set(shares) == set(nodes(count))
    assert all(abs(share - mean) <= slack for share in shares.values()), shares


@pytest.mark.parametrize("count", [2, 8, 20])
def test_a_new_node_moves_only_its_own_share(count: int) -> None:
    """At most 1/n and 2 % of the resources move, and all of them to the new node."""
    before, after = Assigner("node-1", nodes(count)), Assigner("node-1", nodes(count + 1))
    moved = [name for name in RESOURCES if before.owner(name) != after.owner(name)]
    assert len(moved) / len(RESOURCES) <= 1 / (count + 1) + 0.02
    assert {after.owner(name) for name in moved} == {f"node-{count + 1}"}


def test_a_node_that_leaves_moves_only_its_own_share() -> None:
    """What others owned stays where it is; and all comes back with the node."""
    assigner = Assigner("node-1", nodes(8))
    before = {name: assigner.owner(name) for name in RESOURCES}
    assigner.update(nodes(8), alive={name for name in nodes(8) if name != "node-5"})
    assert all(assigner.owner(name) == owner for name, owner in before.items() if owner != "node-5")
    assert "node-5" not in {assigner.owner(name) for name in RESOURCES}
    assigner.update(nodes(8))
    assert {name: assigner.owner(name) for name in RESOURCES} == before


@given(NAMES, st.text(max_size=40), st.randoms(use_true_random=False))
def test_all_nodes_agree_whatever_the_order_of_their_lists(
    listed: list[str], resource: str, chance: random.Random
) -> None:
    """Exactly one node says that it owns a resource, and all name that one."""
    owners, owning = set(), []
    for name in listed:
        shuffled = list(listed)
        chance.shuffle(shuffled)
        assigner = Assigner(name, shuffled)
        owners.add(assigner.owner(resource))
        owning += [name] * assigner.owns(resource)
    assert owning == list(owners) == [owner_of(resource, listed)]
    assert len({fingerprint(sorted(listed)), fingerprint(reversed(listed))}) == 1


def test_processes_agree_whatever_their_hash_seed() -> None:
    """Python's own hash differs from process to process; the owner does not."""
    code = (
        "from zcrawl.ownership import Assigner\n"
        "a = Assigner('node-1', [f'node-{n}' for n in range(1, 9)])\n"
        "print([a.owner(f'h{n}') for n in range(100)])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(answers) == 1


def test_the_leader_ranks_workers_by_the_same_hash() -> None:
    """A host of a cluster and a host of standalone nodes go to the node of the same name."""
    names = [process_name(name, 1) for name in nodes(8)]
    for resource in RESOURCES[:200]:
        ranked = [worker_of(name) for name in sort_by_score(resource, names)]
        assert ranked == rank(resource, nodes(8))


@pytest.mark.parametrize(
    ("node_id", "listed", "code"),
    [
        ("", ["a"], "node_id_unset"),
        ("a", [], "empty_node_list"),
        ("a", ["a", ""], "empty_node_list"),
        ("a", ["b", "c"], "node_not_listed"),
        ("a", ["a", "b", "a"], "duplicate_nodes"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(node_id: str, listed: list[str], code: str) -> None:
    """Each mistake has its own name."""
    with pytest.raises(ConfigError) as caught:
        Assigner(node_id, listed)
    assert caught.value.code == code


def test_a_bad_update_changes_nothing() -> None:
    """The old list stays in force."""
    assigner = Assigner("a", ["a", "b"])
    for listed in ([], ["a", "a"]):
        with pytest.raises(ConfigError):
            assigner.update(listed)
    assert assigner.nodes == ("a", "b")


def test_a_node_that_is_not_listed_any_more_owns_nothing() -> None:
    """Its list is valid, so the others' shares are as everywhere."""
    assigner = Assigner("a", ["a", "b"])
    assigner.update(["b", "c"])
    assert not assigner.is_listed
    assert not any(assigner.owns(name) for name in RESOURCES[:500])
    assert {assigner.owner(name) for name in RESOURCES[:500]} == {"b", "c"}


def test_reads_are_consistent_while_another_thread_updates() -> None:
    """A read sees the old list or the new one, never a mixture."""
    lists = (nodes(3), nodes(9))
    allowed = {name: {owner_of(name, listed) for listed in lists} for name in RESOURCES[:50]}
    assigner = Assigner("node-1", lists[0])
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for listed in lists:
                assigner.update(listed)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(100):
            for name, owners in allowed.items():
                assert assigner.owner(name) in owners
                assigner.owns(name)
    finally:
        done.set()
        thread.join()
