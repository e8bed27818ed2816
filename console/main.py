"""What `zcrawl console` calls, by name: zcrawl itself does not import this package."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time

from console.feed_zmq import Find, ZmqFeed
from console.lines import as_text
from console.pictures.screen import whole
from console.state import Answered, Event, LinkState, View
from console.view import questions, reduce
from zcrawl.errors import UnreachableError

SNAPSHOT_WAIT_S = 10.0
SNAPSHOTS = 3  # the first has no rates yet


def run(find: Find, *, name: str, nobody: str, readonly: bool) -> int:
    """The console on this terminal, until the user leaves it."""
    from console.app import ConsoleApp

    app = ConsoleApp(ZmqFeed(find, nobody, readonly=readonly), name=name, readonly=readonly)
    app.run()
    return app.return_code or 0


def print_snapshot(find: Find, *, name: str, nobody: str) -> int:
    """One screen as text on stdout."""
    view = asyncio.run(_heard(find, name, nobody))
    size = shutil.get_terminal_size((120, 40))
    sys.stdout.write(as_text(whole(view, size.columns, size.lines)) + "\n")
    return 0


async def _heard(find: Find, name: str, nobody: str) -> View:
    """The view after a few snapshots. UnreachableError when none came."""
    view = View(cluster=name)
    snapshots = 0
    enough = asyncio.Event()

    def emit(event: Event) -> None:
        nonlocal view, snapshots
        before, view = view, reduce(view, event)
        snapshots += view.live.snapshot is not before.live.snapshot
        if snapshots >= SNAPSHOTS:
            enough.set()

    feed = ZmqFeed(find, nobody, readonly=True)
    watching = asyncio.ensure_future(feed.watch(emit))
    try:
        async with asyncio.timeout(SNAPSHOT_WAIT_S):
            await enough.wait()
        for one in questions(view):
            emit(Answered(one.slot, await feed.ask(one.op, one.args), time.monotonic()))
    except TimeoutError:
        if snapshots == 0:
            raise UnreachableError(view.link.text or nobody) from None
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    assert view.link.state is LinkState.LIVE
    return view
