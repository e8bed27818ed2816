"""What `zcrawl console` calls, by name: zcrawl itself does not import this package."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import time
from pathlib import Path

from console.commands import Mistake, parse
from console.feed.mesh import MeshFeed
from console.plain_page import page_text
from console.questions import questions
from console.state import Answered, ConsoleEvent, GoTo, LinkState, View
from console.view import reduce
from zcrawl.cli import output
from zcrawl.config import ConsoleConfig
from zcrawl.errors import UnreachableError, UsageError, ZcrawlError
from zcrawl.roles.watching import WatchTarget

SNAPSHOT_WAIT_S = 10.0
SNAPSHOTS = 3  # the first has no rates yet
# Textual's messages are cycles, thousands a second: little is collected often, 0.5 ms each time,
# because all of it at once stops the screen for 50.
GC_THRESHOLDS = (1_000, 20, 50)
# Textual waits for the rest of a sequence after an escape, and for the next frame after a change:
# 100 ms and 17 ms, if nobody says otherwise. (`quick_escape` reminds it of the first.)
TEXTUAL = {"ESCDELAY": "30", "TEXTUAL_FPS": "120"}


def run(
    targets: dict[str, WatchTarget],
    config: ConsoleConfig,
    *,
    readonly: bool,
    record: Path | None = None,
    replay: Path | None = None,
) -> int:
    """The console on this terminal, until the user leaves it. The first target is shown."""
    for name, value in TEXTUAL.items():
        os.environ.setdefault(name, value)
    from console.app import ConsoleApp
    from console.feed.recorder import Recorder
    from console.feed.replay import ReplayFeed
    from console.quick_escape import quicken

    quicken()
    feed = ReplayFeed(replay) if replay is not None else None
    with Recorder(record) as recorder:
        app = ConsoleApp(
            targets,
            feed=feed,
            readonly=readonly or replay is not None,
            theme=config.theme,
            keys=config.keys,
            record=recorder.write,
            when_ready=settle,
        )
        app.run()
    return app.return_code or 0


def settle() -> None:
    """What is loaded stays: a collection that looks at all of Textual stops the screen for a tenth
    of a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def print_snapshot(target: WatchTarget, page: str) -> int:
    """One screen as text on stdout."""
    view = asyncio.run(_heard(target, page))
    size = shutil.get_terminal_size((120, 40))
    output.page(page_text(view, size.columns))
    return 0


async def _heard(target: WatchTarget, page: str) -> View:
    """The view after a few snapshots. UnreachableError when none came."""
    view = View(cluster=target.name, readonly=True)
    snapshots = 0
    enough = asyncio.Event()

    def emit(event: ConsoleEvent) -> None:
        nonlocal view, snapshots
        before, view = view, reduce(view, event)
        snapshots += view.live.snapshot is not before.live.snapshot
        if snapshots >= SNAPSHOTS:
            enough.set()

    feed = MeshFeed(target, readonly=True)
    watching = asyncio.ensure_future(feed.watch(emit))
    try:
        async with asyncio.timeout(SNAPSHOT_WAIT_S):
            await enough.wait()
    except TimeoutError:
        if snapshots == 0:
            raise UnreachableError(view.link.text or target.nobody) from None
    else:
        emit(_place(page, view))
        for question in questions(view):
            emit(await _answer(feed, question.slot, question.op, question.args))
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    assert view.link.state is LinkState.LIVE
    return view


def _place(page: str, view: View) -> ConsoleEvent:
    """`jobs`, or `job docs`: what the console's command line would go to."""
    parsed = parse(page, view)
    if isinstance(parsed, GoTo):
        return parsed
    reason = parsed.text if isinstance(parsed, Mistake) else "it is no page"
    raise UsageError(f"--snapshot {page!r}: {reason}")


async def _answer(feed: MeshFeed, slot: str, op: str, args: dict[str, object]) -> Answered:
    try:
        return Answered(slot, await feed.ask(op, args), time.monotonic())
    except ZcrawlError as error:  # the screen says so where the rows would be
        return Answered(slot, {}, time.monotonic(), str(error))
