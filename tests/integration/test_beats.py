"""Beats between standalone nodes, over real sockets, with and without keys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
import zmq

from zcrawl.errors import ConfigError
from zcrawl.mesh.security import MeshKeys
from zcrawl.mesh.sockets.beats import TOPIC, ZmqBeats
from zcrawl.mesh.sockets.keys import new_pair

ANY = "tcp://127.0.0.1:*"


class Pair:
    """Two nodes; what the first one hears of the second, and what it logs."""

    def __init__(self, first: MeshKeys | None, second: MeshKeys | None) -> None:
        self.heard: list[tuple[str, str]] = []
        self.logged: list[str] = []
        self.a = ZmqBeats("a", 1, ANY, lambda name, text: self.logged.append(name), keys=first)
        self.b = ZmqBeats("b", 1, ANY, lambda name, text: self.logged.append(name), keys=second)
        self.a.listen(lambda node, text: self.heard.append((node, text)))
        self.a.follow({"a": self.a.address, "b": self.b.address})

    async def beat(self, seconds: float = 5.0) -> bool:
        """Publish until a beat is heard, at most for so long; return whether one was."""
        with contextlib.suppress(TimeoutError):  # none was heard
            async with asyncio.timeout(seconds):
                while not self.heard:
                    self.b.publish("print")
                    await asyncio.sleep(0.02)
        return bool(self.heard)


@contextlib.contextmanager
def pair(first: MeshKeys | None = None, second: MeshKeys | None = None) -> Iterator[Pair]:
    both = Pair(first, second)
    try:
        yield both
    finally:
        both.a.close()
        both.b.close()


def keys() -> MeshKeys:
    own = new_pair()
    return MeshKeys(own, own.public)


async def test_a_beat_names_its_node_and_its_list() -> None:
    """Without keys, on loopback."""
    with pair() as both:
        assert await both.beat()
        assert both.heard[0] == ("b", "print")


async def test_nodes_with_the_same_key_hear_each_other() -> None:
    """They share one key pair."""
    shared = keys()
    with pair(shared, shared) as both:
        assert await both.beat()


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_node_with_another_key_or_none_is_not_heard(keyed: bool) -> None:
    """Its beats could keep a dead node's share from the others."""
    with pair(keys(), keys() if keyed else None) as both:
        assert not await both.beat(1.0)


async def test_a_beat_of_another_node_at_the_address_does_not_count() -> None:
    """Nor does a frame that is not a beat; both are logged."""
    with pair() as both:
        context = zmq.Context()
        fake = context.socket(zmq.PUB)
        fake.bind("tcp://127.0.0.1:*")
        both.a.follow({"c": fake.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")})
        async with asyncio.timeout(5.0):
            while both.logged.count("bad_beat") < 2:
                fake.send_multipart([TOPIC, b"\x82\xa4node\xa1x\xabfingerprint\xa1y"])
                fake.send_multipart([TOPIC])
                await asyncio.sleep(0.02)
        fake.close(0)
        context.term()
        assert both.heard == []


async def test_an_open_address_needs_keys() -> None:
    """As for the sockets of a master."""
    with pytest.raises(ConfigError) as caught:
        ZmqBeats("a", 1, "tcp://192.0.2.1:7700")
    assert caught.value.code == "insecure_bind"
