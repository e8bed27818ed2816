"""The line to a cluster: hears the leader's snapshots and events, and asks for the rest.

It listens to all masters that the target names, so a new leader is heard without a reconnect.
When the leader falls silent it says so, looks for masters again, and goes on by itself when
somebody speaks. Requests go to the leader first, then to the others; each keeps its id while it
is repeated, so asking twice acts once. `--readonly` is held here, for all ways to ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from console.feed.ports import Emit
from console.state import HappeningCame, LinkChanged, LinkState, MessageUnreadable, SnapshotCame
from zcrawl.errors import RefusedError, UnreachableError, ZcrawlError
from zcrawl.master.desk.rights import READS
from zcrawl.mesh.messages import BadBody, Event, MessageKind, Snapshot
from zcrawl.mesh.ports import Arrived, Endpoints
from zcrawl.mesh.sockets.client import ZmqSubscriber
from zcrawl.model.reasons.cluster import READONLY
from zcrawl.roles.client import MeshClient
from zcrawl.roles.watching import WatchTarget

SILENT_S: Final = 3.0  # a leader speaks every second
LOOK_S: Final = 0.5
FIND_AGAIN_S: Final = 1.0
LINE_WAIT_S: Final = 5.0  # for the first master, before a request gives up


class _Line:
    """A client of the masters that were known when it was made; closed when nobody uses it."""

    def __init__(self, masters: dict[str, Endpoints], target: WatchTarget) -> None:
        self.masters = dict(masters)
        self._client = MeshClient(
            [endpoints.control for endpoints in masters.values()], keys=target.keys
        )
        self._users, self._retired = 0, False

    async def open(self) -> _Line:
        await self._client.__aenter__()
        return self

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self._users += 1
        try:
            return await self._client.ask(op, args)
        finally:
            self._users -= 1
            if self._retired and not self._users:
                await self._client.__aexit__()

    async def retire(self) -> None:
        self._retired = True
        if not self._users:
            await self._client.__aexit__()


class MeshFeed:
    """Implements `feed.Feed`. Its sockets live as long as `watch` runs."""

    def __init__(
        self,
        target: WatchTarget,
        *,
        readonly: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._readonly, self._clock = target, readonly, clock
        self._emit: Emit = lambda event: None
        self._masters: dict[str, Endpoints] = {}
        self._line: _Line | None = None
        self._leader = ""
        self._heard_at = float("-inf")
        self._complaint = ""

    # ------------------------------------------------------------ listening

    async def watch(self, emit: Emit) -> None:
        self._emit = emit
        self._ears = ZmqSubscriber(
            "console", (MessageKind.SNAPSHOT, MessageKind.EVENT), self._log, keys=self._target.keys
        )
        self._ears.listen(self._on_published)
        try:
            await self._keep_up()
        finally:
            self._ears.close()
            if self._line is not None:
                await self._line.retire()

    def _log(self, name: str, detail: str) -> None:
        """What the mesh says of masters that it cannot talk to: another version, a refused key."""
        self._complaint = detail

    async def _keep_up(self) -> None:
        started_at = self._clock()
        found_at = float("-inf")
        said = ""
        while True:
            now = self._clock()
            lost = now - max(self._heard_at, started_at) > SILENT_S
            if (lost or not self._masters) and now - found_at >= FIND_AGAIN_S:
                found_at = now
                await self._look_for_masters()
            if lost or not self._masters:
                doing = self._doing()
                if doing != said:
                    state = LinkState.LOST if self._leader else LinkState.CONNECTING
                    self._emit(LinkChanged(state, doing, self._clock()))
                said = doing
            else:
                said = ""
            await asyncio.sleep(LOOK_S)

    def _doing(self) -> str:
        if not self._masters:
            return self._complaint or self._target.nobody
        names = ", ".join(sorted(self._masters))
        why = f": {self._complaint}" if self._complaint else ""
        if self._leader:
            return f"{self._leader} is silent; listening to {names} for the next leader{why}"
        return f"no leader speaks yet; listening to {names}{why}"

    async def _look_for_masters(self) -> None:
        try:
            all_endpoints = await self._target.find()
        except (ZcrawlError, OSError) as error:  # tried again in a second, and told meanwhile
            self._complaint = f"cannot look up masters: {error}"
            return
        if self._complaint.startswith("cannot look up"):
            self._complaint = ""
        masters = {entry.master: entry for entry in all_endpoints}
        for master in self._masters.keys() - masters.keys():
            self._ears.disconnect(master)
        for master, endpoints in masters.items():
            self._ears.connect(master, endpoints.events)
        self._masters = masters
        await self._renew_line()

    async def _renew_line(self) -> None:
        """The leader is asked first, if it is known."""
        first = sorted(self._masters, key=lambda name: (name != self._leader, name))
        ordered = {name: self._masters[name] for name in first}
        if self._line is not None and list(self._line.masters.items()) == list(ordered.items()):
            return
        old, self._line = self._line, None
        if ordered:
            self._line = await _Line(ordered, self._target).open()
        if old is not None:
            await old.retire()

    def _on_published(self, arrived: list[Arrived]) -> None:
        newest: Snapshot | None = None
        now = self._clock()
        for arrival in arrived:
            if isinstance(arrival.message, BadBody):
                self._emit(MessageUnreadable(now))
                continue
            match arrival.message.body:
                case Snapshot() as body:
                    newest = body
                    self._leader = arrival.message.header.source
                case Event(name, fields):
                    self._emit(HappeningCame(name, fields, now))
                case _:
                    pass  # no other kind was subscribed to
        if newest is not None:
            self._heard_at, self._complaint = now, ""
            self._emit(SnapshotCame(newest.data, now))

    # ------------------------------------------------------------ asking

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if self._readonly and op not in READS:
            raise RefusedError("read-only: nothing is changed from here", code=READONLY)
        deadline = self._clock() + LINE_WAIT_S
        while self._line is None:
            if self._clock() >= deadline:
                raise UnreachableError(self._doing())
            await asyncio.sleep(LOOK_S / 5)
        return await self._line.ask(op, args)
