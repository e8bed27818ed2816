"""Who owns a resource: rendezvous hashing, the same on every node, without a request to anybody.

    from zcrawl.ownership import Assigner

    assigner = Assigner("node-2", ["node-1", "node-2", "node-3"])
    if assigner.owns("https://example.com/feed.xml"): ...
    assigner.owner("example.com")          # "node-1"
    assigner.update(["node-1", "node-2"])  # a new list: at most its share of the resources moves

A resource is any text: a host, a URL, the id of a feed. Each node gets a score for it, and the node
with the highest score owns it. So a node that leaves changes the owner of its own resources only,
and a node that comes takes 1/n of the resources of each other node. The order of the list does not
matter.

The score is a hash of 64 bits: BLAKE2b of the resource, taken once, mixed with the hash of each
node's name, which is computed when the list is set. Neither depends on Python's version, the
machine, or PYTHONHASHSEED; `tests/unit/test_ownership.py` has values that never change.

An `Assigner` may be used from several threads. A read takes no lock: it uses one immutable
snapshot, which `update` replaces by another one.

The leader of a cluster uses `rank` to choose the worker that owns a host. Pure.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from zcrawl.errors import ConfigError
from zcrawl.model.reasons.usage import (
    DUPLICATE_NODES,
    EMPTY_NODE_LIST,
    NODE_ID_UNSET,
    NODE_NOT_LISTED,
)

_MASK: Final = (1 << 64) - 1
# Two odd constants with well-mixed bits (those of Stafford's variant 13 of splitmix64).
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB

Snapshot = tuple[tuple[str, ...], tuple[int, ...], int]  # live nodes, their hashes, own position


class Assigner:
    """Tell which node of a list owns a resource."""

    def __init__(
        self, node_id: str, nodes: Iterable[str], alive: Collection[str] | None = None
    ) -> None:
        """Raise ConfigError if the id is empty or not in `nodes`, or the list is not valid.

        `alive`: the nodes that take part now. None: all. This node always does.
        """
        if not node_id:
            raise ConfigError("this node has no id; set ZCRAWL_NODE_ID", code=NODE_ID_UNSET)
        self.node_id = node_id
        listed = check_nodes(nodes)
        if node_id not in listed:
            raise ConfigError(
                f"the list of nodes does not have this node, {node_id!r}; it has "
                f"{', '.join(listed[:10])}{', …' if len(listed) > 10 else ''}",
                code=NODE_NOT_LISTED,
            )
        self.nodes = listed
        self._snapshot = _snapshot(node_id, listed, alive)

    def owns(self, resource: str) -> bool:
        """Return whether this node owns the resource."""
        _, hashes, mine = self._snapshot
        if mine < 0:
            return False
        hashed = hash64(resource)
        x = hashed ^ hashes[mine]
        x = (x ^ x >> 30) * _FIRST & _MASK
        best = (x ^ x >> 27) * _SECOND & _MASK
        for at, node in enumerate(hashes):
            x = hashed ^ node
            x = (x ^ x >> 30) * _FIRST & _MASK
            score = (x ^ x >> 27) * _SECOND & _MASK
            if score >= best and (score > best or at < mine):  # equal scores: the first name
                return False
        return True

    def owner(self, resource: str) -> str:
        """Return the node that owns the resource."""
        names, hashes, _ = self._snapshot
        hashed = hash64(resource)
        scores = [mix(hashed, node) for node in hashes]
        return names[scores.index(max(scores))]

    def update(self, nodes: Iterable[str], alive: Collection[str] | None = None) -> None:
        """Set another list. A list without this node means that it owns nothing.

        Raise ConfigError for a list that is empty or names a node twice; then nothing changes.
        """
        listed = check_nodes(nodes)
        self.nodes = listed
        self._snapshot = _snapshot(self.node_id, listed, alive)

    @property
    def live_nodes(self) -> tuple[str, ...]:
        """Return the nodes that can own resources now."""
        return self._snapshot[0]

    @property
    def is_listed(self) -> bool:
        """Return whether the list has this node."""
        return self._snapshot[2] >= 0

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the whole list, also of nodes that are not alive."""
        return fingerprint(self.nodes)


def check_nodes(nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the names, sorted. Raise ConfigError if there are none, or a name is there twice."""
    listed = sorted(nodes)
    if not listed or not all(listed):
        what = "has an empty name" if listed else "is empty"
        raise ConfigError(
            f"the list of nodes {what}; write the id of each node", code=EMPTY_NODE_LIST
        )
    twice = [name for name, following in itertools.pairwise(listed) if name == following]
    if twice:
        raise ConfigError(
            f"the list of nodes has {twice[0]!r} more than once; give each node its own id",
            code=DUPLICATE_NODES,
        )
    return tuple(listed)


def fingerprint(nodes: Iterable[str]) -> str:
    """Return eight letters that are the same for the same nodes in any order."""
    text = "\0".join(sorted(nodes))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def owner_of(resource: str, nodes: Iterable[str]) -> str:
    """Return the owner of a resource, for somebody who is not one of the nodes."""
    return rank(resource, check_nodes(nodes))[0]


def rank(resource: str, names: Sequence[str]) -> list[str]:
    """Return the names from the highest score to the lowest; the first one owns the resource."""
    hashed = hash64(resource)
    return sorted(names, key=lambda name: (-mix(hashed, hash64(name)), name))


def hash64(text: str) -> int:
    """Return the stable hash of a text: the first 64 bits are those of BLAKE2b-64, big-endian."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "big")


def mix(resource: int, node: int) -> int:
    """Return the score of a node for a resource, both by their hashes."""
    x = resource ^ node
    x = (x ^ x >> 30) * _FIRST & _MASK
    return (x ^ x >> 27) * _SECOND & _MASK


def _snapshot(node_id: str, listed: tuple[str, ...], alive: Collection[str] | None) -> Snapshot:
    live = (
        tuple(name for name in listed if alive is None or name in alive or name == node_id)
        or listed
    )
    mine = live.index(node_id) if node_id in live else -1
    return live, tuple(hash64(name) for name in live), mine
