"""Which nodes of Consul's catalogue make the list: the decisions, without I/O. Pure.

`roles.consul_nodes` hands over what Consul says and a tick a few times a second. The list is the
nodes whose checks pass. What this machine adds is when not to believe the catalogue at once:

- At the start it waits until this node is in the list, and the list stayed the same for SETTLE_S.
- If no node passes, the list stays: Consul lost its data, or all checks expired together.
- While Consul is away, and for RETURN_S after its return, nodes are added and none is removed:
  checks that expired together with Consul do not mean that nodes died.
- If this node did not run for longer than GAP_S (SIGSTOP, a machine that slept), it begins nothing
  (`sure_until`) until Consul was asked anew, or has not answered for DOUBT_S. As long as that
  answer differs from what the watch has read, it asks again: the watch reports only changes, and a
  change that came and went while this node did not run is none.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec

from zcrawl.model.log_event import NODE_LIST_KEPT, Note
from zcrawl.standalone.node_list import NodeList

SETTLE_S: Final = 2.0  # nodes that start together know each other before they begin
RETURN_S: Final = 5.0  # all nodes pass their checks again within this
# From its last sign of life, others count a node as dead after the check's TTL (3 s), and the last
# sign may be a second older than the pause.
GAP_S: Final = 1.8
DOUBT_S: Final = 5.0
LOOK_AGAIN_S: Final = 0.5


class Passing(msgspec.Struct, frozen=True):
    """The ids of the nodes whose checks pass, as a watch has read them."""

    ids: frozenset[str]


class Looked(msgspec.Struct, frozen=True):
    """The same, read because of the `Look` with this number; None: Consul did not answer."""

    number: int
    ids: frozenset[str] | None


class ConsulAway(msgspec.Struct, frozen=True):
    pass


class ConsulBack(msgspec.Struct, frozen=True):
    pass


class Tick(msgspec.Struct, frozen=True):
    pass


LivingNodesEvent: TypeAlias = Passing | Looked | ConsulAway | ConsulBack | Tick


class UseList(msgspec.Struct, frozen=True):
    nodes: NodeList


class Look(msgspec.Struct, frozen=True):
    """Ask Consul now; `Looked` is the answer."""

    number: int


LivingNodesEffect: TypeAlias = UseList | Look | Note


class LivingNodes:
    def __init__(self, me: str, now: float) -> None:
        self.me = me
        self.nodes: NodeList | None = None  # None: not settled yet
        self.sure_until = now  # until then this node may begin requests of its share
        self._watched: frozenset[str] = frozenset()
        self._watched_at = now  # since when
        self._looked: frozenset[str] | None = None  # newer than the watch, and different
        self._away = False
        self._returned_at = -RETURN_S
        self._ticked_at = now
        self._doubt_at: float | None = None  # since when
        self._looks = 0
        self._looking = 0  # number of the look under way
        self._look_at = now  # not before

    def handle(self, event: LivingNodesEvent, now: float) -> list[LivingNodesEffect]:
        match event:
            case Passing(ids):
                if ids != self._watched:
                    self._watched, self._watched_at = ids, now
                self._looked = None
            case Looked(number, ids):
                if number != self._looking:
                    return []  # asked before a pause
                self._looking, self._look_at = 0, now + LOOK_AGAIN_S
                if ids is not None:
                    self._looked = ids if ids != self._watched else None
                    self._doubt_at = None
            case ConsulAway():
                self._away = True
            case ConsulBack():
                self._away, self._returned_at = False, now
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)
        return self._news(now)

    @property
    def in_doubt(self) -> bool:
        return self._doubt_at is not None

    def _tick(self, now: float) -> list[LivingNodesEffect]:
        effects: list[LivingNodesEffect] = []
        if self.nodes is not None and now - self._ticked_at > GAP_S:
            # A look that is under way may have been answered before the pause: it does not count.
            self._doubt_at, self._looking, self._look_at = now, 0, now
        self._ticked_at = now
        if self._doubt_at is not None and now - self._doubt_at >= DOUBT_S:
            self._doubt_at = None
            text = "this node did not run for a while, and Consul does not answer; the list stays"
            effects.append(Note(NODE_LIST_KEPT, text))
        unclear = self.in_doubt or self._looked is not None
        if unclear and not self._looking and now >= self._look_at:
            self._looks += 1
            self._looking = self._looks
            effects.append(Look(self._looking))
        effects += self._news(now)
        if self._doubt_at is None and self.nodes is not None:
            self.sure_until = now + GAP_S
        return effects

    def _news(self, now: float) -> list[LivingNodesEffect]:
        """Return the list if it has changed."""
        seen = self._watched if self._looked is None else self._looked
        if self.nodes is None:
            if self.me not in seen or now - self._watched_at < SETTLE_S:
                return []
        elif not seen:
            return []
        elif self._away or now - self._returned_at < RETURN_S:
            seen |= frozenset(self.nodes.ids)
        nodes = NodeList(tuple(sorted(seen)))
        if nodes == self.nodes:
            return []
        self.nodes = nodes
        return [UseList(nodes)]

    def check(self) -> None:
        assert self.nodes is None or self.nodes.ids, "a list is never empty"
        assert self._looked is None or self._looked != self._watched, "a difference is one"
        assert not self.in_doubt or self.nodes is not None, "doubt is about a list"
