"""Which nodes there are now, and which of them live: the decisions of a standalone node. Pure.

`roles.standalone_node` hands over what it reads and hears; the effects say what to do.

| event | effects |
|---|---|
| `ListRead`: another list | `UseNodes`; a warning if this node is not in it |
| `ListFailed`: unreadable, empty, not valid | a warning, once for each text; the old list stays |
| `BeatHeard`: a beat of a listed node | `UseNodes` if it was silent; a warning if lists differ |
| `TimePassed` | `UseNodes` without a node that has been silent for SILENT_S |

Liveness needs addresses (`NodeList.has_addresses`); without them all listed nodes count as living.
So they do if the first list had none: this process has no socket for heartbeats then, until a
restart.
A node that is new in the list has SILENT_S to be heard. This node itself always lives. A time in
which this node got no event, for example while its process was stopped, is nobody's silence.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec

from zcrawl.model.log_event import (
    NODE_LIST_KEPT,
    NODE_LISTS_DIFFER,
    NODE_OUT_OF_LIST,
    NODE_SILENT,
    Note,
)
from zcrawl.model.snapshot import ListedNodeView, NodeListView
from zcrawl.standalone.node_list import NodeList

BEAT_S: Final = 1.0
SILENT_S: Final = 10.0
PAUSE_S: Final = 2.0  # without any event: this node itself did not run


class ListRead(msgspec.Struct, frozen=True):
    nodes: NodeList


class ListFailed(msgspec.Struct, frozen=True):
    text: str


class BeatHeard(msgspec.Struct, frozen=True):
    node: str
    fingerprint: str  # of its list


class TimePassed(msgspec.Struct, frozen=True):
    pass


NodeEvent: TypeAlias = ListRead | ListFailed | BeatHeard | TimePassed


class UseNodes(msgspec.Struct, frozen=True):
    """Compute ownership with this list and these living nodes."""

    nodes: NodeList
    alive: frozenset[str]


NodeEffect: TypeAlias = UseNodes | Note

LIST_CHANGED: Final = "node_list_changed"
NODE_BACK: Final = "node_back"
LISTS_AGREE: Final = "node_lists_agree"


class NodeWatch:
    def __init__(self, me: str, nodes: NodeList, now: float, *, only_living: bool = False) -> None:
        """`only_living`: who makes the list has left out the nodes that do not live."""
        self.me = me
        self._only_living = only_living
        self.nodes = nodes
        self._heard = dict.fromkeys(nodes.ids, now)
        self._ran_at = now
        self._can_hear = nodes.has_addresses  # `roles.standalone_node` binds at the start only
        self._silent: set[str] = set()
        self._fingerprints: dict[str, str] = {}
        self._complaint = ""  # why the last list was not used

    @property
    def _watches(self) -> bool:
        return self._can_hear and self.nodes.has_addresses

    @property
    def alive(self) -> frozenset[str]:
        """Return the listed nodes that own resources now."""
        return frozenset(self.nodes.ids) - self._silent

    def handle(self, event: NodeEvent, now: float) -> list[NodeEffect]:
        self._leave_out_pause(now)
        match event:
            case ListRead(nodes):
                return self._list_read(nodes, now)
            case ListFailed(text):
                if text == self._complaint:
                    return []
                self._complaint = text
                return [Note(NODE_LIST_KEPT, f"{text}; the list {self.nodes.fingerprint} stays")]
            case BeatHeard():
                return self._beat_heard(event, now)
            case TimePassed():
                return self._look_for_silent(now)
            case _:
                assert_never(event)

    def views(self) -> tuple[ListedNodeView, ...]:
        """Return all listed nodes, sorted."""
        own = self.nodes.fingerprint
        prints = {**self._fingerprints, self.me: own}
        return tuple(
            ListedNodeView(
                id,
                self.nodes.addresses.get(id, ""),
                id not in self._silent,
                (its := prints.get(id, "")),
                its not in ("", own),
            )
            for id in self.nodes.ids
        )

    def view(self) -> NodeListView:
        """Return the list for displays: fingerprint, and each node."""
        return NodeListView(
            self.me, self.nodes.fingerprint, self._watches or self._only_living, self.views()
        )

    def _leave_out_pause(self, now: float) -> None:
        """Nobody could be heard while this node did not run: what has come waits in its sockets."""
        pause_s = now - self._ran_at
        self._ran_at = now
        if pause_s > PAUSE_S:
            self._heard = {id: at + pause_s for id, at in self._heard.items()}

    def _list_read(self, nodes: NodeList, now: float) -> list[NodeEffect]:
        self._complaint = ""
        if nodes == self.nodes:
            return []
        self.nodes = nodes
        self._heard = {id: self._heard.get(id, now) for id in nodes.ids}
        self._silent &= set(nodes.ids) if nodes.has_addresses else set()
        self._fingerprints = {
            id: text for id, text in self._fingerprints.items() if id in self._heard
        }
        text = f"{len(nodes.ids)} nodes, fingerprint {nodes.fingerprint}"
        if nodes.has_addresses and not self._can_hear:
            text += "; its addresses count after a restart of this node"
        effects: list[NodeEffect] = [
            Note(LIST_CHANGED, text),
            UseNodes(nodes, self.alive),
        ]
        if self.me not in nodes.ids:
            why = "it finishes what it has started, and owns nothing until it is listed again"
            effects.append(
                Note(NODE_OUT_OF_LIST, f"the list does not have this node, {self.me}: {why}")
            )
        return effects

    def _beat_heard(self, beat: BeatHeard, now: float) -> list[NodeEffect]:
        if beat.node not in self._heard or beat.node == self.me:
            return []
        self._heard[beat.node] = now
        effects: list[NodeEffect] = []
        if beat.node in self._silent:
            self._silent.discard(beat.node)
            effects = [
                Note(NODE_BACK, f"{beat.node} is heard again, and gets its share back"),
                UseNodes(self.nodes, self.alive),
            ]
        own, before = self.nodes.fingerprint, self._fingerprints.get(beat.node, "")
        if beat.fingerprint != before:
            self._fingerprints[beat.node] = beat.fingerprint
            if beat.fingerprint != own:
                text = (
                    f"{beat.node} has the list {beat.fingerprint}, this node has {own}; some "
                    "resources have two owners or none"
                )
                effects.append(Note(NODE_LISTS_DIFFER, text))
            elif before:
                effects.append(Note(LISTS_AGREE, f"{beat.node} has the list {own}, too"))
        return effects

    def _look_for_silent(self, now: float) -> list[NodeEffect]:
        if not self._watches:
            return []
        silent = {
            id for id, at in self._heard.items() if id != self.me and now - at >= SILENT_S
        } - self._silent
        if not silent:
            return []
        self._silent |= silent
        names = ", ".join(sorted(silent))
        text = f"nothing heard of {names} for {SILENT_S:.0f} s; its share goes to the others"
        return [Note(NODE_SILENT, text), UseNodes(self.nodes, self.alive)]

    def check(self) -> None:
        assert self._silent <= set(self.nodes.ids), "only listed nodes are silent"
        assert self.me not in self._silent, "this node lives"
        assert not self._silent or self.nodes.has_addresses, "liveness needs addresses"
