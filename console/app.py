"""The Textual app: owns the View, feeds it, shows it, and turns keys into commands.

Everything that decides is elsewhere: `view.reduce` what becomes of an event, `pictures` what the
screen looks like, `feed_zmq` what the line does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from console.feed_zmq import Find, ZmqFeed
from console.lines import Span, line
from console.pictures.frame import top_line
from console.pictures.screen import body
from console.view import Event, GoTo, Page, Ticked, TogglePause, View, reduce
from console.widgets.canvas import Canvas

TICK_S = 0.5


class ConsoleApp(App[None]):
    CSS_PATH = "console.tcss"
    TITLE = "zcrawl"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=True),
        Binding("p", "pause_view", "pause the view"),
        Binding("1", "page('overview')", "overview"),
    ]

    def __init__(
        self,
        find: Find,
        *,
        name: str,
        nobody: str,
        readonly: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._find, self._nobody, self._clock = find, nobody, clock
        self.view = View(cluster=name, readonly=readonly)
        self.feed: ZmqFeed | None = None

    def compose(self) -> ComposeResult:
        yield Canvas(id="top")
        yield Canvas(id="body")
        yield Canvas(id="foot")

    def on_mount(self) -> None:
        self.set_interval(TICK_S, lambda: self.feed_event(Ticked(self._clock())))
        self._watch()

    @work(exclusive=True, exit_on_error=True, group="feed")
    async def _watch(self) -> None:
        async with ZmqFeed(self._find, self.feed_event, self._clock, self._nobody) as feed:
            self.feed = feed
            await feed.watch()

    def feed_event(self, event: Event) -> None:
        """The one way in which the view changes."""
        before, self.view = self.view, reduce(self.view, event)
        if self.view != before and self.is_running:
            self.draw()

    def draw(self) -> None:
        top, main, foot = (self.query_one(f"#{name}", Canvas) for name in ("top", "body", "foot"))
        top.show([top_line(self.view, top.size.width)])
        main.show(body(self.view, main.size.width, main.size.height))
        foot.show([line(Span(" q quit   p pause the view", "dim"))])

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def action_page(self, page: str) -> None:
        self.feed_event(GoTo(Page(page)))

    def action_pause_view(self) -> None:
        self.feed_event(TogglePause())
