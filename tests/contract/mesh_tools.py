"""What the tests of real sockets share: keys, logs, and waiting for something to be true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import zmq

from zcrawl.mesh.codec import encode
from zcrawl.mesh.messages import Body, Message
from zcrawl.mesh.ports import Arrived, BatchHandler, Endpoints
from zcrawl.mesh.roles import Channel
from zcrawl.mesh.security import KeyPair, MeshKeys
from zcrawl.mesh.sockets.end import MeshEnd
from zcrawl.mesh.sockets.keys import new_pair

PATIENCE_S = 20.0
LOOK_AGAIN_S = 0.05
LOOPBACK = Endpoints("m1", *["tcp://127.0.0.1:*"] * 3)


class Ear:
    """A handler and a log that can be waited on."""

    def __init__(self) -> None:
        self.got: list[Arrived] = []
        self.events: list[tuple[str, str]] = []
        self._news = asyncio.Event()

    def __call__(self, arrived: list[Arrived]) -> None:
        self.got += arrived
        self._news.set()

    def log(self, name: str, detail: str) -> None:
        self.events.append((name, detail))
        self._news.set()

    def bodies(self) -> list[Body]:
        return [
            arrival.message.body for arrival in self.got if isinstance(arrival.message, Message)
        ]

    def details(self, name: str) -> list[str]:
        return [detail for event, detail in self.events if event == name]

    async def until(self, true: Callable[..., object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self._news.clear()
                with contextlib.suppress(TimeoutError):  # counters change without a word
                    async with asyncio.timeout(LOOK_AGAIN_S):
                        await self._news.wait()


class Keys:
    """A cluster's pair, and pairs of nodes."""

    def __init__(self) -> None:
        self.server = new_pair()
        self.master = MeshKeys(self.server, self.server.public)

    def node(self, pair: KeyPair | None = None) -> MeshKeys:
        return MeshKeys(pair or new_pair(), self.server.public)


class Claimer(MeshEnd):
    """A DEALER that claims any route; whatever it is given is read."""

    def __init__(self, route: bytes, control: str, keys: MeshKeys | None) -> None:
        super().__init__("claimer", 1, keys=keys)
        self._line = self._socket(zmq.DEALER)
        self._line.setsockopt(zmq.IDENTITY, route)
        self._connect(self._line, control)

    def listen(self, handler: BatchHandler) -> None:
        self._read(self._line, Channel.CLIENT_CONTROL, handler)

    def send(self, body: Body) -> bool:
        return self._send(self._line, encode(self._header(0, body, 0, 0), body))
