"""A process that does nothing but stand for election; prints what it is told, a line each.

python -m tests.integration.coord_process URL CLUSTER ID
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from tests.contract.coord_backends import member
from zcrawl.coord.agents.consul import ConsulCoordinator
from zcrawl.coord.agents.consul_client import ConsulSettings
from zcrawl.coord.ports import CoordEvent, MemberRole
from zcrawl.runtime import clock


async def main(url: str, cluster: str, id: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    coordinator = ConsulCoordinator(ConsulSettings(url), clock.now)

    def tell(event: CoordEvent) -> None:
        print(f"{time.monotonic():.3f} {type(event).__name__} {event}", flush=True)

    coordinator.start(member(MemberRole.MASTER, id, cluster), tell)
    while not stop.is_set():
        coordinator.loop_alive()
        try:
            async with asyncio.timeout(0.4):
                await stop.wait()
        except TimeoutError:
            continue  # time for the next sign of life
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
