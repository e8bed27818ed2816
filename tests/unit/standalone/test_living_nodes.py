"""Which nodes of Consul's catalogue make the list, and when a node may begin requests."""

from __future__ import annotations

from zcrawl.standalone.living_nodes import (
    DOUBT_S,
    GAP_S,
    RETURN_S,
    SETTLE_S,
    ConsulAway,
    ConsulBack,
    LivingNodes,
    LivingNodesEvent,
    Look,
    Looked,
    Passing,
    Tick,
    UseList,
)

STEP_S = 0.25


class Node:
    """Node `a`; the lists that it used, and the looks that it asked for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.machine = LivingNodes("a", self.now)
        self.lists: list[str] = []
        self.looks: list[int] = []
        self.notes: list[str] = []

    def do(self, event: LivingNodesEvent) -> None:
        for effect in self.machine.handle(event, self.now):
            match effect:
                case UseList(nodes):
                    self.lists.append("".join(nodes.ids))
                case Look(number):
                    self.looks.append(number)
                case _:
                    self.notes.append(effect.name)
        self.machine.check()

    def see(self, ids: str) -> None:
        self.do(Passing(frozenset(ids)))

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.now += STEP_S
            self.do(Tick())

    @property
    def is_sure(self) -> bool:
        return self.now <= self.machine.sure_until


def settled(ids: str = "abc") -> Node:
    node = Node()
    node.see(ids)
    node.run(SETTLE_S)
    assert node.lists == [ids]
    return node


def test_a_start_waits_until_the_list_rests() -> None:
    """This node must be in it, and nobody may have come for SETTLE_S."""
    node = Node()
    node.see("bc")
    node.run(60.0)
    node.see("ab")
    node.run(SETTLE_S - STEP_S)
    node.see("abc")
    node.run(SETTLE_S - STEP_S)
    assert node.lists == []
    assert not node.is_sure
    node.run(STEP_S)
    assert node.lists == ["abc"]
    assert node.is_sure


def test_nodes_come_and_go_at_once() -> None:
    """After the start, each change counts when it is read; the same once more is no news."""
    node = settled()
    node.see("ab")
    node.see("ab")
    node.see("abd")
    assert node.lists == ["abc", "ab", "abd"]


def test_an_empty_catalogue_leaves_the_list() -> None:
    """Consul lost its data: nobody died."""
    node = settled()
    node.see("")
    node.run(60.0)
    assert node.lists == ["abc"]


def test_a_restart_of_consul_removes_nobody() -> None:
    """Checks expire with Consul; who does not pass again within RETURN_S after it is dead."""
    node = settled()
    node.do(ConsulAway())
    node.see("a")
    node.run(60.0)
    node.do(ConsulBack())
    node.see("ad")
    node.run(RETURN_S - STEP_S)
    assert node.lists == ["abc", "abcd"], "who comes is added even then"
    node.run(STEP_S)
    assert node.lists == ["abc", "abcd", "ad"]


def test_a_node_that_was_paused_asks_before_it_begins() -> None:
    """It is unsure from GAP_S after its last tick, before any tick of its own, until the answer."""
    node = settled()
    node.now += GAP_S + 0.1
    assert not node.is_sure
    node.do(Tick())
    assert node.looks == [1]
    assert not node.is_sure
    node.do(Looked(1, frozenset("bc")))
    assert node.lists == ["abc", "bc"], "the others have its share"
    node.run(STEP_S)
    assert node.is_sure


def test_a_short_pause_asks_nothing() -> None:
    """The check has not expired: nobody else can have the share."""
    node = settled()
    node.now += GAP_S - 0.1
    node.do(Tick())
    assert node.looks == []
    assert node.is_sure


def test_it_asks_until_the_watch_agrees() -> None:
    """The watch reports changes only: it says nothing of an expiry that it never read."""
    node = settled()
    node.now += 60.0
    node.do(Tick())
    node.do(Looked(1, frozenset("bc")))
    node.run(1.0)
    assert node.looks == [1, 2]
    node.do(Looked(2, frozenset("abc")))
    assert node.lists == ["abc", "bc", "abc"]
    node.run(60.0)
    assert node.looks == [1, 2]


def test_an_answer_from_before_the_pause_does_not_count() -> None:
    """Paused twice: only the second look was asked after the second pause."""
    node = settled()
    node.now += 60.0
    node.do(Tick())
    node.now += 60.0
    node.do(Tick())
    assert node.looks == [1, 2]
    node.do(Looked(1, frozenset("abc")))
    node.run(STEP_S)
    assert not node.is_sure
    node.do(Looked(2, frozenset("abc")))
    node.run(STEP_S)
    assert node.is_sure


def test_without_an_answer_the_old_list_stays() -> None:
    """After DOUBT_S, with a warning; then the node goes on."""
    node = settled()
    node.now += 60.0
    node.do(Tick())
    node.do(Looked(1, None))
    node.run(DOUBT_S - STEP_S)
    assert not node.is_sure
    assert len(node.looks) == 2, "asked again"
    node.run(STEP_S)
    assert (node.notes, node.lists, node.is_sure) == (["node_list_kept"], ["abc"], True)
