"""The three coordinators as the contract suite sees them: make nodes, let time pass, kill one."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from typing import Protocol, TypeVar

from zcrawl.coord.agents.consul import ConsulCoordinator
from zcrawl.coord.agents.consul_client import ConsulSettings
from zcrawl.coord.ports import (
    CoordEvent,
    Coordinator,
    Deposed,
    Elected,
    LeaderSeen,
    MastersChanged,
    Member,
    MemberRole,
)
from zcrawl.mesh.ports import Endpoints
from zcrawl.runtime import clock
from zcrawl.testing.coordinator import SimCoordinator, Timeline, let_run
from zcrawl.testing.lock_service import FakeConsul

BEAT_S = 0.4
E = TypeVar("E", bound=CoordEvent)


class Node:
    """One process: its coordinator and the events that it got."""

    def __init__(self, coordinator: Coordinator, me: Member) -> None:
        self.coordinator = coordinator
        self.me = me
        self.events: list[CoordEvent] = []
        self.beats = True
        self.wake: Callable[[], None] = lambda: None

    def on_event(self, event: CoordEvent) -> None:
        self.events.append(event)
        self.wake()

    @property
    def leads(self) -> bool:
        last = [event for event in self.events if isinstance(event, Elected | Deposed)][-1:]
        return any(isinstance(event, Elected) for event in last)

    def last(self, kind: type[E]) -> E | None:
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def member(role: MemberRole, id: str, cluster: str) -> Member:
    endpoints = None
    if role is MemberRole.MASTER:
        base = f"tcp://127.0.0.1:{1000 + int(id[1:])}"
        endpoints = Endpoints(id, f"{base}1", f"{base}2", f"{base}3")
    return Member(
        role, id, cluster, "0.2.0", "host-1", os.getpid(), secrets.randbits(60), 8, endpoints
    )


class Backend(Protocol):
    def begin(self, role: MemberRole, id: str) -> Node: ...

    async def until(self, done: Callable[..., object], timeout_s: float = 20.0) -> bool: ...

    def kill(self, node: Node) -> None: ...

    async def end(self) -> None: ...


class SimBackend:
    """Time is simulated, so waiting costs nothing."""

    def __init__(self) -> None:
        self._time = Timeline(1)
        self._consul = FakeConsul()
        let_run(self._consul, self._time)

    def begin(self, role: MemberRole, id: str) -> Node:
        coordinator = SimCoordinator(self._consul, self._time)
        node = Node(coordinator, member(role, id, "prod"))
        coordinator.start(node.me, node.on_event)
        self._beat(node)
        return node

    def _beat(self, node: Node) -> None:
        node.coordinator.loop_alive()
        self._time.at(BEAT_S, lambda: self._beat(node))

    async def until(self, done: Callable[..., object], timeout_s: float = 20.0) -> bool:
        return self._time.run_until(lambda: bool(done()), timeout_s)

    def kill(self, node: Node) -> None:
        assert isinstance(node.coordinator, SimCoordinator)
        node.coordinator.kill()

    async def end(self) -> None:
        pass


class _RealTime:
    """Nodes on the running event loop; waits for their events."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._told = asyncio.Event()

    def _start(self, coordinator: Coordinator, me: Member) -> Node:
        node = Node(coordinator, me)
        node.wake = self._told.set
        self._nodes.append(node)
        coordinator.start(me, node.on_event)
        self._beat(node)
        return node

    def _beat(self, node: Node) -> None:
        if node.beats:
            node.coordinator.loop_alive()
            asyncio.get_running_loop().call_later(BEAT_S, self._beat, node)

    async def until(self, done: Callable[..., object], timeout_s: float = 20.0) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not done():
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            return bool(done())
        return True

    async def end(self) -> None:
        for node in self._nodes:
            node.beats = False
            await node.coordinator.close()


class ConsulBackend(_RealTime):
    def __init__(self, settings: ConsulSettings, cluster: str = "") -> None:
        super().__init__()
        self._settings = settings
        self.cluster = cluster or f"c-{secrets.token_hex(4)}"

    def begin(self, role: MemberRole, id: str) -> Node:
        coordinator = ConsulCoordinator(self._settings, clock.now)
        return self._start(coordinator, member(role, id, self.cluster))

    def kill(self, node: Node) -> None:
        """Its event loop turns no more: all that Consul can see of a process that was killed."""
        node.beats = False


async def three_masters(backend: ConsulBackend) -> list[Node]:
    """The first one leads, and all know it."""
    first = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: first.leads)
    masters = [
        first,
        backend.begin(MemberRole.MASTER, "m2"),
        backend.begin(MemberRole.MASTER, "m3"),
    ]
    assert await backend.until(lambda: all(sees(node, "m1") for node in masters))
    assert await backend.until(
        lambda: (seen := first.last(MastersChanged)) and len(seen.masters) == 3
    )
    return masters


def sees(node: Node, leader: str) -> bool:
    seen = node.last(LeaderSeen)
    return seen is not None and seen.master_id == leader


def one_leads(masters: list[Node]) -> bool:
    return sum(node.leads for node in masters) == 1


def all_see_the_one_leader(masters: list[Node]) -> bool:
    leaders = [node.me.id for node in masters if node.leads]
    return len(leaders) == 1 and all(sees(node, leaders[0]) for node in masters)
