"""Send requests to masters over their control sockets: to the master of a data folder, or to any
master of a cluster. It tries one master after the other until one answers. The id of the request
makes a repeat harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zcrawl.coord.agents.local_lock import is_locked
from zcrawl.errors import RefusedError, UnreachableError, UsageError, ZcrawlError
from zcrawl.mesh.border import TRY_AGAIN_S
from zcrawl.mesh.messages import BadBody, ClientRequest, Reply
from zcrawl.mesh.ports import Arrived
from zcrawl.model.reasons.cluster import NO_LEADER, REFUSED, TOO_MANY_REQUESTS, VERSION
from zcrawl.roles.place import read_mesh_file

if TYPE_CHECKING:
    from zcrawl.mesh.security import MeshKeys

ASK_AGAIN_S: Final = 2.0  # a repeat is safe, because the leader recognises the request's id
# After these refusals the same request is sent again: a master is taking over, or this key has
# sent too many requests.
TRY_AGAIN_PAUSES_S: Final = {NO_LEADER: 0.1, TOO_MANY_REQUESTS: TRY_AGAIN_S}
GIVE_UP_S: Final = 20.0


def is_live(data: Path) -> bool:
    """Return whether a master runs in this folder: it has the lock, and its process exists."""
    mesh_file = read_mesh_file(data)
    if mesh_file is None or not is_locked(data):
        return False
    try:
        os.kill(mesh_file.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def controls_in(data: Path) -> list[str]:
    """Return the control addresses of the master of a data folder."""
    mesh_file = read_mesh_file(data)
    if mesh_file is None:
        raise UnreachableError(f"no cluster runs in {data}")
    return [mesh_file.endpoints.control]


class MeshClient:
    """`async with MeshClient(controls) as client: await client.ask(op, args)`."""

    def __init__(
        self,
        controls: list[str],
        *,
        keys: MeshKeys | None = None,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        self._controls = controls
        self._keys = keys
        self._give_up_s = give_up_s
        self._by = who_asks()
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    async def __aenter__(self) -> MeshClient:
        from zcrawl.mesh.sockets.client import ZmqClientMesh

        self._mesh = ZmqClientMesh(
            "client", os.getpid(), self._controls, keys=self._keys, on_strangers=self._refuse
        )
        self._mesh.listen(self._on_messages)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._mesh.close()

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        return await self.send(ClientRequest(secrets.token_hex(16), op, args, by=self._by))

    async def send(self, request: ClientRequest) -> dict[str, Any]:
        """Return the answer to a request. Another one with the same id must not be under way."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._give_up_s
        why, code = "", None
        while True:
            master = self._mesh.master
            reply = await self._once(request, min(ASK_AGAIN_S, deadline - loop.time()))
            if reply is None:
                if self._mesh.complaint:  # otherwise keep the earlier one
                    why, code = self._mesh.complaint, None
                if self._mesh.master == master:  # another request may have left it already
                    self._mesh.next_master()
            elif reply.ok or reply.data.get("code") not in TRY_AGAIN_PAUSES_S:
                return answer(reply)
            else:
                why, code = str(reply.data.get("message", "")), str(reply.data["code"])
                await asyncio.sleep(TRY_AGAIN_PAUSES_S[code])
            if loop.time() >= deadline:
                endpoints = ", ".join(self._controls)
                raise UnreachableError(
                    f"no answer from {endpoints} within {self._give_up_s:.0f} s"
                    + (f": {why}" if why else ""),
                    code=TOO_MANY_REQUESTS if code == TOO_MANY_REQUESTS else None,
                )

    async def _once(self, request: ClientRequest, wait_s: float) -> Reply | None:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future
        self._mesh.send(request)
        try:
            await asyncio.wait([future], timeout=max(0.0, wait_s))
            return future.result() if future.done() else None
        finally:
            del self._waiting[request.id]

    def _refuse(self, text: str) -> None:
        """Fail the request, because every master speaks another version of the protocol."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RefusedError(text, code=VERSION))

    def _on_messages(self, arrived: list[Arrived]) -> None:
        for arrival in arrived:
            if isinstance(arrival.message, BadBody) or not isinstance(arrival.message.body, Reply):
                continue
            future = self._waiting.get(arrival.message.body.id)
            if future is not None and not future.done():
                future.set_result(arrival.message.body)


def who_asks() -> str:
    """Return the user and machine for the audit: `ann@laptop`."""
    # The same as `getpass.getuser`, without its slow imports.
    user = os.environ.get("LOGNAME") or os.environ.get("USER")
    if not user:
        user = str(os.getuid())
        with contextlib.suppress(KeyError):  # a user without a name
            user = pwd.getpwuid(os.getuid()).pw_name
    return f"{user}@{os.uname().nodename}"


def answer(reply: Reply) -> dict[str, Any]:
    """Return the data of a reply, or raise its error."""
    if reply.ok:
        return reply.data
    text, code = str(reply.data.get("message", "")), str(reply.data.get("code", REFUSED))
    kinds: dict[int, type[ZcrawlError]] = {2: UsageError, 3: UnreachableError}
    kind = kinds.get(int(reply.data.get("exit_code", 1)), RefusedError)
    raise kind(text or code, code=code)
