"""The list of standalone nodes from Consul: register this node, and follow those that live.

Wiring only. `coord` registers, passes the check and watches; `standalone.living_nodes` decides
which list counts. Made by `roles.standalone_node`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, assert_never

from zcrawl import __version__
from zcrawl.config import Config
from zcrawl.coord import ports as coord
from zcrawl.errors import ConfigError, UnreachableError
from zcrawl.model.log_event import Note
from zcrawl.model.reasons.cluster import CONSUL_AWAY
from zcrawl.roles import cluster
from zcrawl.roles.own_id import id_taken, require_free
from zcrawl.runtime import clock
from zcrawl.runtime.loop import supervised
from zcrawl.runtime.supervisor import new_incarnation
from zcrawl.runtime.threads import in_daemon_thread
from zcrawl.standalone.living_nodes import (
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
from zcrawl.standalone.node_list import NodeList, is_id
from zcrawl.telemetry.logs.files import EventLog

BEAT_S: Final = 0.25
META_LIST: Final = "list"

OnList = Callable[[NodeList], None]


class ConsulNodes:
    def __init__(
        self,
        config: Config,
        id: str,
        log: EventLog,
        *,
        on_list: OnList,
        on_sure: Callable[[float], None],
    ) -> None:
        """Raise ConfigError if Consul's address is not set. `on_list` gets each list, `on_sure`
        until when this node may begin requests."""
        cluster.consul_settings(config)
        self._config = config
        self._id = id
        self._log = log
        self._on_list = on_list
        self._on_sure = on_sure
        self._coordinator = cluster.coordinator(config)
        self._living = LivingNodes(id, clock.now())
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self.settled = asyncio.Event()  # there is a list
        self.failure: ConfigError | None = None

    async def start(self, stop: asyncio.Event) -> None:
        """Register, unless another living node has this id (ConfigError). `stop` is set if that
        is found later (`failure`)."""
        self._stop = stop
        role = coord.MemberRole.STANDALONE
        await require_free([self._id], role, lambda: cluster.registered(self._config, role), stop)
        member = coord.Member(
            role,
            self._id,
            self._config.cluster.name,
            __version__,
            os.uname().nodename,
            os.getpid(),
            new_incarnation(),
        )
        self._coordinator.start(member, self._on_event)
        self._begin(self._beat())

    async def close(self) -> None:
        """Deregister: from now on, others own this node's share."""
        for task in self._tasks:
            task.cancel()
        await self._coordinator.close()

    async def _beat(self) -> None:
        """Only while this task turns, the check is passed and requests begin."""
        while True:
            self._coordinator.loop_alive()
            self._take(Tick())
            await asyncio.sleep(BEAT_S)

    def _on_event(self, event: coord.CoordEvent) -> None:
        match event:
            case coord.NodesChanged(nodes):
                self._take(Passing(passing(nodes)))
            case coord.IdTaken(other):
                self.failure = id_taken(coord.MemberRole.STANDALONE, other)
                self._stop.set()
            case coord.CoordAway(reason):
                self._log(CONSUL_AWAY, reason)
                self._take(ConsulAway())
            case coord.CoordBack():
                self._log("consul_back", "Consul answers again")
                self._take(ConsulBack())
            case (
                coord.Elected()
                | coord.Deposed()
                | coord.LeaderSeen()
                | coord.MastersChanged()
                | coord.WorkersChanged()
            ):
                raise AssertionError("a standalone node has no masters")
            case _:
                assert_never(event)

    def _take(self, event: LivingNodesEvent) -> None:
        for effect in self._living.handle(event, clock.now()):
            match effect:
                case UseList(nodes):
                    note = f"{len(nodes.ids)} nodes, list {nodes.fingerprint}"
                    meta = {META_LIST: nodes.fingerprint}
                    self._coordinator.update(coord.Condition(note, meta=meta))
                    self._on_list(nodes)
                    self.settled.set()
                case Look(number):
                    self._begin(self._look(number))
                case Note(name, text):
                    self._log(name, text)
                case _:
                    assert_never(effect)
        self._on_sure(self._living.sure_until)

    async def _look(self, number: int) -> None:
        try:
            ids = await in_daemon_thread(lambda: registered_ids(self._config), "zcrawl-consul")
        except UnreachableError:
            self._take(Looked(number, None))  # the coordinator tells the reason
        else:
            self._take(Looked(number, ids))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = supervised(work, "consul nodes", self._log)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def passing(nodes: Iterable[coord.Sighting]) -> frozenset[str]:
    """Return the ids of those that live. What is not an id was not registered by a node."""
    return frozenset(
        node.member.id
        for node in nodes
        if node.health is coord.Health.PASSING and is_id(node.member.id)
    )


def registered_ids(config: Config) -> frozenset[str]:
    """Read the living nodes from Consul now. Blocks; raise UnreachableError."""
    return passing(cluster.registered(config, coord.MemberRole.STANDALONE))
