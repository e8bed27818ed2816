"""Who lives, and which list counts."""

from __future__ import annotations

import pytest

from zcrawl.model.log_event import Note
from zcrawl.standalone.node_list import NodeList
from zcrawl.standalone.node_watch import (
    SILENT_S,
    BeatHeard,
    ListFailed,
    ListRead,
    NodeEvent,
    NodeWatch,
    TimePassed,
    UseNodes,
)

THREE = NodeList(("a", "b", "c"), {name: f"tcp://{name}:1" for name in "abc"})
TWO = NodeList(("b", "c"), {name: f"tcp://{name}:1" for name in "bc"})


class Node:
    def __init__(self, nodes: NodeList = THREE) -> None:
        self.now = 0.0
        self.machine = NodeWatch("a", nodes, 0.0)
        self.alive: list[str] = []
        self.warnings: list[str] = []

    def do(self, event: NodeEvent) -> Node:
        self.alive, self.warnings = [], []
        for effect in self.machine.handle(event, self.now):
            match effect:
                case UseNodes(_, alive):
                    self.alive = sorted(alive)
                case Note(name, _):
                    self.warnings.append(name)
        self.machine.check()
        return self

    def wait_until(self, at: float) -> list[str]:
        """Time passes in small steps; return all warnings."""
        warnings = []
        while self.now < at:
            self.now = min(at, self.now + 0.5)
            warnings += self.do(TimePassed()).warnings
        return warnings

    def beat(self, *names: str, fingerprint: str = THREE.fingerprint) -> Node:
        for name in names:
            self.do(BeatHeard(name, fingerprint))
        return self


def test_a_silent_node_loses_its_share_and_gets_it_back() -> None:
    """After SILENT_S, not before; with its next beat all is as it was."""
    node = Node()
    node.wait_until(5.0)
    node.beat("b")
    assert node.wait_until(SILENT_S - 0.1) == []
    assert (node.wait_until(SILENT_S), node.alive) == (["node_silent"], ["a", "b"])
    assert node.do(TimePassed()).warnings == [], "once"
    assert (node.beat("c").warnings, node.alive) == (["node_back"], ["a", "b", "c"])


def test_without_addresses_all_listed_nodes_live() -> None:
    """Nobody could be heard, so nobody is silent."""
    node = Node(NodeList(("a", "b")))
    node.now = 1e6
    assert node.do(TimePassed()).warnings == []


def test_addresses_that_come_later_make_nobody_silent() -> None:
    """This process has no socket for heartbeats: it would take over everything."""
    node = Node(NodeList(("a", "b", "c")))
    node.wait_until(100.0)
    assert node.do(ListRead(THREE)).warnings == ["node_list_changed"]
    assert node.wait_until(200.0) == []
    assert node.machine.alive == {"a", "b", "c"}
    assert not node.machine.view().watched


def test_lists_that_differ_are_warned_of_once() -> None:
    """And it is said when they agree again."""
    node = Node()
    assert node.beat("b", fingerprint="other").warnings == ["node_lists_differ"]
    assert [view.id for view in node.machine.views() if view.differs] == ["b"]
    assert node.beat("b", fingerprint="other").warnings == []
    assert node.beat("b").warnings == ["node_lists_agree"]
    assert not any(view.differs for view in node.machine.views())


def test_a_list_that_cannot_be_read_changes_nothing() -> None:
    """One warning for each text."""
    node = Node()
    assert node.do(ListFailed("gone")).warnings == ["node_list_kept"]
    assert node.do(ListFailed("gone")).warnings == []
    assert node.machine.nodes == THREE
    assert node.do(ListRead(THREE)).warnings == []
    assert node.do(ListFailed("gone")).warnings == ["node_list_kept"]


def test_a_list_without_this_node_is_used_with_a_warning() -> None:
    """The others' shares are as everywhere; this node has none."""
    node = Node()
    assert node.do(ListRead(TWO)).warnings == ["node_list_changed", "node_out_of_list"]
    assert node.alive == ["b", "c"]


@pytest.mark.parametrize("stranger", ["a", "x"])
def test_beats_of_strangers_and_of_itself_do_not_count(stranger: str) -> None:
    """Only listed nodes are heard."""
    assert Node().beat(stranger, fingerprint="other").warnings == []


def test_a_new_node_has_time_to_be_heard() -> None:
    """It is not silent because it was not there before."""
    node = Node(TWO)
    node.machine.me = "b"
    node.wait_until(100.0)
    node.beat("c")
    node.do(ListRead(THREE))
    assert node.wait_until(100.0 + SILENT_S - 1) == []


def test_a_pause_of_this_node_is_nobodys_silence() -> None:
    """It takes nothing over when it continues, and still notices who is silent afterwards."""
    node = Node()
    node.wait_until(4.0)
    node.now = 64.0  # the process was stopped for a minute
    assert node.do(TimePassed()).warnings == []
    node.beat("b")
    assert node.wait_until(64.0 + SILENT_S - 4.5) == []
    assert (node.wait_until(64.0 + SILENT_S - 4.0), node.alive) == (["node_silent"], ["a", "b"])
