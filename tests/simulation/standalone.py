"""Simulated nodes without a master: real watches, shares and leaders; lossy beats, one seed.

Each node is what `roles.standalone_node` wires, with a store of its own that survives its crashes.
Phases of trouble end in quiet, and `World.run` checks what must be true then. No worker joins, so
that each row is either queued or skipped, and its owner decides which.
"""

from __future__ import annotations

import random
from typing import Final

from tests.unit.machine_tools import LeaderStory
from zcrawl.master.master import Master
from zcrawl.model.log_event import Note
from zcrawl.model.reasons.skip import owned_by
from zcrawl.model.states import RequestState
from zcrawl.ownership import Assigner, owner_of
from zcrawl.standalone.node_list import NodeList
from zcrawl.standalone.node_watch import (
    BEAT_S,
    SILENT_S,
    BeatHeard,
    ListRead,
    NodeEvent,
    NodeWatch,
    TimePassed,
    UseNodes,
)
from zcrawl.standalone.shares import Shares, host_resource

PULSE_S: Final = 0.25
SLACK_S: Final = 2 * PULSE_S
URLS: Final = [f"http://host-{n}.test/" for n in range(12)]
RESOURCES: Final = [f"resource-{n}" for n in range(300)]
TROUBLE_S: Final = 40.0
PHASES: Final = 3


def list_of(ids: list[str]) -> NodeList:
    return NodeList(tuple(sorted(ids)), {id: f"tcp://{id}:1" for id in ids})


class SimNode:
    """One process after another with the same id and store."""

    def __init__(self, world: World, id: str, nodes: NodeList) -> None:
        self.world = world
        self.id = id
        self.file = nodes  # what it reads
        self.runs = False
        self.paused_until = 0.0
        self.story = LeaderStory()
        self.submitted = False
        self.inbox: list[tuple[float, str, str]] = []  # when, of whom, fingerprint
        self.silent_at: dict[str, float] = {}  # until when a node lives for this one, by the rules
        self.start()

    def start(self) -> None:
        """Start a process, if the list has this node: otherwise the real one ends at once."""
        if self.id not in self.file.ids:
            return
        now = self.world.now
        self.watch = NodeWatch(self.id, self.file, now)
        self.shares = Shares(Assigner(self.id, self.file.ids))
        self.silent_at = dict.fromkeys(self.file.ids, now + SILENT_S)
        self.beat_at = self.ran_at = now
        self.inbox = []
        self.runs = True
        self.story.now = now
        self.story.master = Master("m1", seen_slots=64, shares=self.shares)
        self.story.elect()
        if not self.submitted:
            self.submitted = True
            self.story.submit(*URLS)

    @property
    def is_awake(self) -> bool:
        return self.runs and self.paused_until <= self.world.now

    def step(self) -> None:
        now = self.world.now
        gap = now - self.ran_at
        if gap > PULSE_S * 1.5:  # it did not run, and could hear nobody
            self.silent_at = {id: at + gap for id, at in self.silent_at.items()}
        self.ran_at = now
        reads_first = self.world.rng.random() < 0.5
        if reads_first:
            self._read_beats()
        self._poll()
        if not reads_first:
            self._read_beats()
        if now >= self.beat_at:
            self.beat_at = now + BEAT_S
            self.world.publish(self)
        self.story.now = now - 0.02
        self.story.tick()
        self.check()

    def _poll(self) -> None:
        if self.file == self.watch.nodes:
            self._handle(TimePassed())
            return
        now = self.world.now
        self.silent_at = {id: self.silent_at.get(id, now + SILENT_S) for id in self.file.ids}
        self._handle(ListRead(self.file))

    def _read_beats(self) -> None:
        now = self.world.now
        due = sorted(beat for beat in self.inbox if beat[0] <= now)
        self.inbox = [beat for beat in self.inbox if beat[0] > now]
        for _, node, fingerprint in due:
            if node in self.silent_at:
                self.silent_at[node] = now + SILENT_S
            self._handle(BeatHeard(node, fingerprint))

    def _handle(self, event: NodeEvent) -> None:
        for effect in self.watch.handle(event, self.world.now):
            match effect:
                case UseNodes(nodes, alive):
                    self.shares.change(nodes.ids, alive)
                case Note(name, text):
                    self.world.note(f"{self.id} {name} {text}")
        self.watch.check()

    # ------------------------------------------------------------ what must be true

    def check(self) -> None:
        """At each step: who lives is what this node has heard, and rows follow the shares."""
        now, alive = self.world.now, self.watch.alive
        listed = self.watch.nodes.ids
        live = tuple(id for id in listed if id in alive) or listed  # if none lives: as if all did
        assert self.shares.assigner.live_nodes == live, self.world.tell(f"{self.id}: {live}")
        for id, at in self.silent_at.items():
            if id == self.id:
                continue
            if at + SLACK_S < now:
                assert id not in alive, self.world.tell(f"{self.id} waits too long for {id}")
            elif at - SLACK_S > now:
                assert id in alive, self.world.tell(f"{self.id} gave up {id} too early")
        rehoming = self.story.leader.rehoming
        if not rehoming.busy and rehoming._done == self.shares.revision:
            self.check_rows()

    def check_rows(self) -> None:
        """Rows of this node are queued, the others name their owner; memory has the queued ones."""
        for row in self.story.store.tables.requests.values():
            owner = self.shares.assigner.owner(host_resource(row.url))
            expected = (
                (RequestState.QUEUED, "")
                if owner == self.id
                else (RequestState.SKIPPED, owned_by(owner))
            )
            assert (row.state, row.reason) == expected, self.world.tell(
                f"{self.id} {row.url}: {row.state.name} {row.reason}, owner {owner}"
            )
        lanes = self.story.leader.state.frontier.lanes.values()
        queued = sum(
            row.state is RequestState.QUEUED for row in self.story.store.tables.requests.values()
        )
        in_memory = sum(lane.rows + lane.beyond for lane in lanes)
        assert in_memory == queued, self.world.tell(f"{self.id}: {in_memory} of {queued} in memory")


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = 100.0
        self.trace: list[str] = []
        self.quiet = False
        self.cuts: dict[frozenset[str], float] = {}
        self.ids = [f"n{n}" for n in range(self.rng.randint(3, 6))]
        self.newest = list_of(self.ids[: self.rng.randint(2, len(self.ids))])
        self.reads: list[tuple[float, str, NodeList]] = []  # when a node's file changes
        self.nodes = {id: SimNode(self, id, self.newest) for id in self.ids}
        self.owners: dict[str, str] = {}  # as of the last quiet moment
        self.living: set[str] = set()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:.2f} {text}")

    def tell(self, text: str) -> str:
        return "\n".join([f"seed {self.seed}, {self.now:.2f}: {text}", *self.trace[-40:]])

    def publish(self, sender: SimNode) -> None:
        for node in self.nodes.values():
            is_cut = self.cuts.get(frozenset((sender.id, node.id)), 0.0) > self.now
            lost = not self.quiet and self.rng.random() < 0.2
            if node is sender or not node.runs or is_cut or lost:
                continue
            delay = self.rng.random() * (0.1 if self.quiet else 0.8)
            node.inbox.append((self.now + delay, sender.id, sender.watch.nodes.fingerprint))

    def run(self) -> None:
        for _ in range(PHASES):
            self.quiet = False
            self._pass(TROUBLE_S, 0.06)
            self._pass(1.0, 0.0)  # what is on its way arrives
            self._heal()
            self._pass(SILENT_S + BEAT_S + SLACK_S, 0.0)
            self.check()

    def _pass(self, seconds: float, trouble: float) -> None:
        for _ in range(round(seconds / PULSE_S)):
            self.now += PULSE_S
            for at, id, nodes in self.reads:
                if at <= self.now:
                    self.nodes[id].file = nodes
            self.reads = [read for read in self.reads if read[0] > self.now]
            if self.rng.random() < trouble:
                self._trouble()
            for node in self.nodes.values():
                if node.is_awake:
                    node.step()

    def _trouble(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        match self.rng.choice(("crash", "return", "return", "pause", "cut", "list")):
            case "crash":
                self.note(f"{node.id} crashes")
                node.runs = False
            case "return" if not node.runs:
                self.note(f"{node.id} returns")
                node.paused_until = 0.0
                node.start()
            case "pause":
                node.paused_until = self.now + self.rng.uniform(3.0, 25.0)
                self.note(f"{node.id} pauses until {node.paused_until:.2f}")
            case "cut":
                other = self.rng.choice(self.ids)
                until = self.now + self.rng.uniform(2.0, 30.0)
                self.note(f"{node.id} and {other} are cut off until {until:.2f}")
                self.cuts[frozenset((node.id, other))] = until
            case "list":
                self.newest = list_of(self.rng.sample(self.ids, self.rng.randint(1, len(self.ids))))
                self.note(f"new list {self.newest.ids}")
                self.reads += [
                    (self.now + self.rng.uniform(0.0, 20.0), id, self.newest) for id in self.ids
                ]

    def _heal(self) -> None:
        """End all trouble; nodes that have crashed stay away."""
        self.note("quiet")
        self.quiet = True
        self.cuts.clear()
        self.reads.clear()
        for node in self.nodes.values():
            node.paused_until = 0.0
            node.file = self.newest

    def check(self) -> None:
        """With equal lists and after the silence, each resource has one owner, and only what had
        to move has moved."""
        running = [node for node in self.nodes.values() if node.runs]
        living = {node.id for node in running} & set(self.newest.ids)
        if not living:
            self.owners = {}
            return
        owners = {resource: owner_of(resource, living) for resource in RESOURCES}
        for node in running:
            node.check_rows()
            if node.id not in living:
                held = [resource for resource in RESOURCES if node.shares.assigner.owns(resource)]
                assert not held, self.tell(f"{node.id} is not listed and owns {len(held)}")
                continue
            for resource, owner in owners.items():
                assert node.shares.assigner.owner(resource) == owner, self.tell(
                    f"{node.id} thinks that {resource} is not {owner}'s"
                )
        for resource, before in self.owners.items():
            if before in living and owners[resource] in self.living:
                assert owners[resource] == before, self.tell(f"{resource} moved without need")
        self.owners, self.living = owners, living
