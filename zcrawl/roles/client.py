"""Talks to the master that runs in a data folder, over its control socket."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any, Final

from zcrawl.coord.local_file import is_locked
from zcrawl.errors import RefusedError, UnreachableError, UsageError, ZcrawlError
from zcrawl.mesh.messages import BadBody, Reply, Request
from zcrawl.mesh.ports import Arrived
from zcrawl.roles.place import read_mesh_file

ASK_AGAIN_S: Final = 2.0  # the leader knows a request by its id: asking twice acts once
GIVE_UP_S: Final = 20.0


def is_live(data: Path) -> bool:
    """Whether a master runs in this folder: it holds the lock, and its process is there."""
    found = read_mesh_file(data)
    if found is None or not is_locked(data):
        return False
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class MeshClient:
    """`async with MeshClient(data) as client: await client.ask(op, args)`."""

    def __init__(self, data: Path, give_up_s: float = GIVE_UP_S) -> None:
        self._data = data
        self._give_up_s = give_up_s
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    async def __aenter__(self) -> MeshClient:
        from zcrawl.mesh.mesh_zmq_client import ZmqClientMesh

        found = read_mesh_file(self._data)
        if found is None:
            raise UnreachableError(f"no cluster runs in {self._data}")
        self._mesh = ZmqClientMesh(
            "client", os.getpid(), [found.endpoints.control], on_strangers=self._refuse
        )
        self._mesh.listen(self._on_messages)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._mesh.close()

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        request = Request(secrets.token_hex(16), op, args)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._give_up_s
        while True:
            future: asyncio.Future[Reply] = loop.create_future()
            self._waiting[request.id] = future
            self._mesh.send(request)
            wait_s = min(ASK_AGAIN_S, deadline - loop.time())
            await asyncio.wait([future], timeout=max(0.0, wait_s))
            del self._waiting[request.id]
            if future.done():
                reply = future.result()
                if reply.ok or reply.data.get("code") != "no_leader":
                    return answer(reply)
                await asyncio.sleep(0.1)  # it is taking over
            else:
                self._mesh.next_master()
            if loop.time() >= deadline:
                why = f": {self._mesh.complaint}" if self._mesh.complaint else ""
                raise UnreachableError(
                    f"the cluster in {self._data} did not answer within "
                    f"{self._give_up_s:.0f} s{why}"
                )

    def _refuse(self, text: str) -> None:
        """Every master speaks another version: no question will be answered."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RefusedError(text, code="version"))

    def _on_messages(self, arrived: list[Arrived]) -> None:
        for one in arrived:
            if isinstance(one.message, BadBody) or not isinstance(one.message.body, Reply):
                continue
            future = self._waiting.get(one.message.body.id)
            if future is not None and not future.done():
                future.set_result(one.message.body)


def answer(reply: Reply) -> dict[str, Any]:
    """The data of a reply, or the error that it tells of."""
    if reply.ok:
        return reply.data
    text, code = str(reply.data.get("message", "")), str(reply.data.get("code", "refused"))
    kinds: dict[int, type[ZcrawlError]] = {2: UsageError, 3: UnreachableError}
    kind = kinds.get(int(reply.data.get("exit_code", 1)), RefusedError)
    raise kind(text or code, code=code)
