"""The line to a cluster: hears the leader's snapshots and events, and asks for the rest.

It listens to all masters that `find` names, so a new leader is heard without a reconnect. When
the leader falls silent it says so, asks `find` again, and goes on by itself when somebody speaks.
A request keeps its id while it is repeated, at another master if need be: asking twice acts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import zmq

from console.actions import READS
from console.feed import Emit
from console.state import HappeningCame, LinkChanged, LinkState, SnapshotCame
from zcrawl.errors import RefusedError, UnreachableError, ZcrawlError
from zcrawl.mesh.mesh_zmq_client import ZmqClientMesh
from zcrawl.mesh.mesh_zmq_sockets import SocketReader, topic
from zcrawl.mesh.messages import BadBody, Kind, Reply, Request, Snapshot
from zcrawl.mesh.messages import Event as EventMessage
from zcrawl.mesh.ports import Arrived, Endpoints
from zcrawl.roles.client import answer

Find: TypeAlias = Callable[[], list[Endpoints]]

SILENT_S: Final = 3.0  # a leader speaks every second
LOOK_S: Final = 0.5
FIND_AGAIN_S: Final = 1.0
ASK_AGAIN_S: Final = 2.0
GIVE_UP_S: Final = 20.0


class ZmqFeed:
    """Implements `feed.Feed`. Sockets live as long as `watch` runs."""

    def __init__(
        self,
        find: Find,
        nobody: str = "no master found",
        *,
        readonly: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._clock, self._readonly = find, clock, readonly
        self._nobody = nobody
        self._emit: Emit = lambda event: None
        self._masters: dict[str, Endpoints] = {}
        self._lines: dict[str, ZmqClientMesh] = {}
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._leader = ""
        self._heard_at = float("-inf")
        self.counters: Counter[str] = Counter()

    def _open(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, 1_000)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        for kind in (Kind.SNAPSHOT, Kind.EVENT):
            self._socket.setsockopt(zmq.SUBSCRIBE, topic(kind))
        self._reader = SocketReader(self._socket, False, self._on_published, self.counters)

    def _close(self) -> None:
        self._reader.close()
        for mesh in self._lines.values():
            mesh.close()
        self._lines.clear()
        self._masters.clear()
        self._socket.close(0)
        self._context.term()

    # ------------------------------------------------------------ listening

    async def watch(self, emit: Emit) -> None:
        """Keeps the line up for as long as it is not cancelled."""
        self._emit = emit
        self._open()
        try:
            await self._keep_up()
        finally:
            self._close()

    async def _keep_up(self) -> None:
        started_at = self._clock()
        found_at = float("-inf")
        said = ""
        while True:
            now = self._clock()
            silent_s = now - max(self._heard_at, started_at)
            lost = silent_s > SILENT_S
            if (lost or not self._masters) and now - found_at >= FIND_AGAIN_S:
                found_at = now
                await self._look_for_masters()
            if lost or not self._masters:
                text = self._doing()
                if text != said:
                    state = LinkState.LOST if self._leader else LinkState.CONNECTING
                    self._emit(LinkChanged(state, text, self._clock()))
                said = text
            else:
                said = ""
            await asyncio.sleep(LOOK_S)

    def _doing(self) -> str:
        if not self._masters:
            return self._nobody
        names = ", ".join(sorted(self._masters))
        if self._leader:
            return f"{self._leader} is silent; listening to {names} for the next leader"
        return f"no leader speaks yet; listening to {names}"

    async def _look_for_masters(self) -> None:
        try:
            found = await asyncio.to_thread(self._find)
        except (ZcrawlError, OSError) as error:  # tried again in a second, and shown meanwhile
            self._emit(
                LinkChanged(LinkState.LOST, f"cannot look up masters: {error}", self._clock())
            )
            return
        wanted = {one.master: one for one in found}
        for master, endpoints in list(self._masters.items()):
            if wanted.get(master) != endpoints:
                self._leave(master, endpoints)
        for master, endpoints in wanted.items():
            if master not in self._masters:
                self._join(master, endpoints)

    def _join(self, master: str, endpoints: Endpoints) -> None:
        self._socket.connect(endpoints.events)
        mesh = ZmqClientMesh("console", os.getpid(), endpoints.control)
        mesh.listen(self._on_replies)
        self._masters[master], self._lines[master] = endpoints, mesh
        self._reader.look_again()

    def _leave(self, master: str, endpoints: Endpoints) -> None:
        with contextlib.suppress(zmq.ZMQError):  # it was never connected
            self._socket.disconnect(endpoints.events)
        del self._masters[master]
        self._lines.pop(master).close()

    def _on_published(self, arrived: list[Arrived]) -> None:
        newest: Snapshot | None = None
        now = self._clock()
        for one in arrived:
            if isinstance(one.message, BadBody):
                self.counters["bad_body"] += 1
                continue
            match one.message.body:
                case Snapshot() as body:
                    newest = body
                    self._leader = one.message.header.source
                case EventMessage(name, fields):
                    self._emit(HappeningCame(name, fields, now))
                case _:
                    self.counters["unexpected"] += 1
        if newest is not None:
            self._heard_at = now
            self._emit(SnapshotCame(newest.data, now))

    # ------------------------------------------------------------ asking

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """The answer of the cluster; RefusedError or UsageError for a no, else Unreachable."""
        if self._readonly and op not in READS:
            raise RefusedError("read-only: nothing is changed from here", code="readonly")
        request = Request(secrets.token_hex(16), op, args)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GIVE_UP_S
        tried = 0
        while loop.time() < deadline:
            future: asyncio.Future[Reply] = loop.create_future()
            self._waiting[request.id] = future
            try:
                if not self._send(request, tried):
                    await asyncio.sleep(LOOK_S)
                    continue
                wait_s = min(ASK_AGAIN_S, deadline - loop.time())
                await asyncio.wait([future], timeout=max(0.0, wait_s))
            finally:
                del self._waiting[request.id]
            if future.done():
                reply = future.result()
                if reply.ok or reply.data.get("code") != "no_leader":
                    return answer(reply)
                await asyncio.sleep(0.1)  # somebody is taking over
            tried += 1
        raise UnreachableError(f"{op}: no master answered within {GIVE_UP_S:.0f} s")

    def _send(self, request: Request, tried: int) -> bool:
        """To the leader first, then to the others in turn."""
        names = sorted(self._lines, key=lambda name: (name != self._leader, name))
        return bool(names) and self._lines[names[tried % len(names)]].send(request)

    def _on_replies(self, arrived: list[Arrived]) -> None:
        for one in arrived:
            if isinstance(one.message, BadBody) or not isinstance(one.message.body, Reply):
                continue
            future = self._waiting.get(one.message.body.id)
            if future is not None and not future.done():
                future.set_result(one.message.body)
