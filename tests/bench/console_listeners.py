"""Ten consoles' worth of subscribers, for `bench_console`: they hear snapshots and drop them."""

from __future__ import annotations

import asyncio
import sys

from zcrawl.mesh.messages import MessageKind
from zcrawl.mesh.sockets.client import ZmqSubscriber


async def listen(events: str, number: int) -> None:
    ears = [
        ZmqSubscriber(f"c{n}", (MessageKind.SNAPSHOT, MessageKind.EVENT)) for n in range(number)
    ]
    for ear in ears:
        ear.connect("m1", events)
        ear.listen(lambda arrived: None)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(listen(sys.argv[1], int(sys.argv[2])))
