"""The line to the cluster: one client for requests, one subscriber for snapshots and events.

It listens to all masters that it finds, so a new leader is heard without a reconnect. When the
leader is silent it looks for masters again. Requests go to the leader first, then to the others; a
request keeps its id while it is repeated, so that it acts once.

Reads that everybody may do are shared: requests for the same thing within `KEPT_S` become one
request to the masters, so that many readers cost the leader no more than a few. A change that came
through this gateway ends what is kept, so its client reads what it wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError, UnreachableError, ZcrawlError
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.services import PublishedEvent, PublishedMessage
from zcrawl.master.desk.operation import Right
from zcrawl.master.desk.operations import find
from zcrawl.mesh.messages import BadBody, ClientRequest, Event, MessageKind, Snapshot
from zcrawl.mesh.ports import Arrived, Endpoints, MeshLog
from zcrawl.mesh.sockets.client import ZmqSubscriber
from zcrawl.model.log_event import GATEWAY_LINE
from zcrawl.model.reasons.cluster import UNKNOWN_OP
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.roles.client import MeshClient
from zcrawl.roles.watching import WatchTarget
from zcrawl.runtime.loop import supervised

SILENT_S: Final = 3.0  # a leader speaks every second
LOOK_S: Final = 0.25
FIND_AGAIN_S: Final = 1.0
LINE_WAIT_S: Final = 5.0  # for the first master
GIVE_UP_S: Final = 12.0
KEPT_S: Final = 0.25
LONG_READS: Final = ("items", "failed")  # their pages are long, and no two clients read the same
MOST_KEPT: Final = 10_000
QUEUE_MOST: Final = 1_000  # messages that wait for one reader


class _MasterLine:
    """A client of the masters that were known when it was made; closed when nobody uses it."""

    def __init__(self, masters: dict[str, Endpoints], target: WatchTarget) -> None:
        self.masters = dict(masters)
        controls = [endpoints.control for endpoints in masters.values()]
        self._client = MeshClient(controls, keys=target.keys, give_up_s=GIVE_UP_S)
        self._users, self._retired = 0, False

    async def open(self) -> _MasterLine:
        await self._client.__aenter__()
        return self

    async def send(self, request: ClientRequest) -> dict[str, Any]:
        self._users += 1
        try:
            return await self._client.send(request)
        finally:
            self._users -= 1
            if self._retired and not self._users:
                await self._client.__aexit__()

    async def retire(self) -> None:
        self._retired = True
        if not self._users:
            await self._client.__aexit__()


class _Reader:
    """The messages that one reader of `watch` has not taken yet; the oldest are dropped."""

    def __init__(self) -> None:
        self._waiting: list[PublishedMessage] = []
        self._missed = 0
        self._filled = asyncio.Event()

    def put(self, heard: PublishedMessage) -> None:
        self._waiting.append(heard)
        if len(self._waiting) > QUEUE_MOST:
            del self._waiting[0]
            self._missed += 1
        self._filled.set()

    async def read(self) -> AsyncIterator[PublishedMessage]:
        while True:
            await self._filled.wait()
            waiting, self._waiting = self._waiting, []
            missed, self._missed = self._missed, 0
            self._filled.clear()
            for number, heard in enumerate(waiting):
                yield msgspec.structs.replace(heard, missed=missed) if not number else heard


class Mesh:
    """`async with Mesh(target, log) as mesh`. The requests, snapshots and events of `Services`."""

    def __init__(self, target: WatchTarget, log: MeshLog) -> None:
        self._target, self._log = target, log
        self._masters: dict[str, Endpoints] = {}
        self._line: _MasterLine | None = None
        self._leader = ""
        self._heard_at = float("-inf")
        self._complaint = ""
        self._readers: set[_Reader] = set()
        self._under_way: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._kept: dict[bytes, tuple[float, asyncio.Future[dict[str, Any]]]] = {}
        self.snapshot: PublishedSnapshot | None = None

    async def __aenter__(self) -> Mesh:
        self._started_at = time.monotonic()
        self._ears = ZmqSubscriber(
            "gateway",
            (MessageKind.SNAPSHOT, MessageKind.EVENT),
            self._on_line,
            keys=self._target.keys,
        )
        self._ears.listen(self._on_published)
        self._keeping = supervised(self._keep_up(), "line to the masters", self._log)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        self._ears.close()
        if self._line is not None:
            await self._line.retire()

    @property
    def silent_s(self) -> float:
        return time.monotonic() - max(self._heard_at, self._started_at)

    # ------------------------------------------------------------ listening

    def _on_line(self, name: str, detail: str) -> None:
        if detail != self._complaint:
            self._log(name, detail)
        self._complaint = detail

    async def _keep_up(self) -> None:
        found_at, last = float("-inf"), ""
        while True:
            now = time.monotonic()
            lost = self.silent_s > SILENT_S or not self._masters
            if lost and now - found_at >= FIND_AGAIN_S:
                found_at = now
                await self._look_for_masters()
            text = self._doing() if lost else ""
            if text != last:
                self._log(GATEWAY_LINE, text or f"{self._leader} leads")
            last = text
            await asyncio.sleep(LOOK_S)

    def _doing(self) -> str:
        if not self._masters:
            return self._complaint or self._target.nobody
        why = f": {self._complaint}" if self._complaint else ""
        return f"no leader speaks; listening to {', '.join(sorted(self._masters))}{why}"

    async def _look_for_masters(self) -> None:
        try:
            endpoints = await self._target.find()
        except (ZcrawlError, OSError) as error:  # tried again in a second
            self._complaint = f"cannot look up masters: {error}"
            return
        masters = {entry.master: entry for entry in endpoints}
        for master in self._masters.keys() - masters.keys():
            self._ears.disconnect(master)
        for master, entry in masters.items():
            self._ears.connect(master, entry.events)
        self._masters = masters
        await self._renew_line()

    async def _renew_line(self) -> None:
        """The leader gets the requests first, if it is known."""
        first = sorted(self._masters, key=lambda name: (name != self._leader, name))
        ordered = {name: self._masters[name] for name in first}
        if self._line is not None and list(self._line.masters.items()) == list(ordered.items()):
            return
        old, self._line = self._line, None
        if ordered:
            self._line = await _MasterLine(ordered, self._target).open()
        if old is not None:
            await old.retire()

    def _on_published(self, arrived: list[Arrived]) -> None:
        for arrival in arrived:
            if isinstance(arrival.message, BadBody):
                continue  # of a master of another version; counted by the end of the mesh
            leader = arrival.message.header.source
            match arrival.message.body:
                case Snapshot(data):
                    self._heard_at, self._complaint, self.snapshot = time.monotonic(), "", data
                    self._hand_out(PublishedMessage(leader, snapshot=data))
                    if leader != self._leader:
                        self._leader = leader
                        self._renewing = supervised(self._renew_line(), "new leader", self._log)
                case Event(name, fields):
                    self._hand_out(PublishedMessage(leader, event=PublishedEvent(name, fields)))
                case _:
                    pass  # no other kind was subscribed to

    def _hand_out(self, heard: PublishedMessage) -> None:
        for reader in self._readers:
            reader.put(heard)

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[PublishedMessage]]:
        reader = _Reader()
        self._readers.add(reader)
        try:
            yield reader.read()
        finally:
            self._readers.discard(reader)

    # ------------------------------------------------------------ requests

    async def ask(
        self, principal: Principal, op: str, args: dict[str, Any], request_id: str = ""
    ) -> dict[str, Any]:
        operation = find(op)
        if operation is None:
            raise RefusedError(f"unknown request {op!r}", code=UNKNOWN_OP)
        request = ClientRequest(
            request_id or secrets.token_hex(16),
            op,
            args,
            by=principal.name,
            role=principal.role,
            rights=list(principal.rights),
            through=principal.through,
            address=principal.address,
        )
        if op in LONG_READS:
            return await self._send(request)
        if not operation.changes and operation.right is Right.VIEWER:
            return await self._read(request)
        try:
            return await self._write(request)
        finally:
            if operation.changes:
                self._kept.clear()

    async def ask_as_gateway(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """Send a request of the gateway's own, for nobody else."""
        return await self._send(ClientRequest(secrets.token_hex(16), op, args, by="gateway"))

    async def _write(self, request: ClientRequest) -> dict[str, Any]:
        """Send it once, however often it comes at the same time under one id."""
        running = self._under_way.get(request.id)
        if running is None:
            running = asyncio.ensure_future(self._send(request))
            self._under_way[request.id] = running
            running.add_done_callback(lambda done: self._under_way.pop(request.id, None))
        # A client that goes away does not stop a request that others wait for.
        return await asyncio.shield(running)

    async def _read(self, request: ClientRequest) -> dict[str, Any]:
        key = msgspec.msgpack.encode((request.op, sorted(request.args.items())))
        now = time.monotonic()
        until, reading = self._kept.get(key, (0.0, None))
        if reading is None or now >= until:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            reading = asyncio.ensure_future(self._send(request))
            reading.add_done_callback(_take_error)
            self._kept[key] = (now + KEPT_S, reading)
        return await asyncio.shield(reading)

    async def _send(self, request: ClientRequest) -> dict[str, Any]:
        deadline = time.monotonic() + LINE_WAIT_S
        while self._line is None:
            if time.monotonic() >= deadline:
                raise UnreachableError(self._doing())
            await asyncio.sleep(LOOK_S / 5)
        return await self._line.send(request)


def _take_error(reading: asyncio.Future[dict[str, Any]]) -> None:
    """Look at the error of a read that nobody waits for any more."""
    if not reading.cancelled():
        reading.exception()
