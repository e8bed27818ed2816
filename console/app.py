"""The Textual app: owns the View, feeds it, shows it, and turns keys into commands.

Everything that decides is elsewhere: `view.reduce` what becomes of an event, `pictures` what the
screen looks like, `actions` what can be done, `feed_loop` what the line does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from textual import events, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from console import commands
from console.acting import Acting, ClusterLine
from console.actions import RUN_PAGES, Action, by_key, offered
from console.columns import TABLES
from console.columns_queues import BY, next_grouping
from console.feed import Feed
from console.feed_loop import MeshFeed
from console.keymap import bindings, key_mistake
from console.painting_loop import Painting
from console.pictures.frame import foot_line, tab_line, top_line
from console.pictures.help import help_picture
from console.pictures.screen import body
from console.pictures.table import first_row
from console.plain import plain
from console.questions import questions
from console.screens.dialogs import PictureDialog
from console.state import (
    MAIN_PAGES,
    Acted,
    Answered,
    Back,
    ConsoleEvent,
    ConsolePage,
    Drill,
    GoTo,
    Heard,
    Mark,
    MarkAll,
    Move,
    MoveTo,
    NextLevel,
    Place,
    Say,
    SetFilter,
    SetSpan,
    SortBy,
    Ticked,
    TogglePause,
    View,
)
from console.tables import Row, text
from console.view import chosen_rows, current, here, reduce
from console.widgets.canvas import Canvas
from console.widgets.prompt import COMMAND, FILTER, Prompt
from zcrawl.errors import ZcrawlError
from zcrawl.roles.watching import WatchTarget

TICK_S = 0.5
ASKED_KEPT = 100
REFUSED_AGAIN_S = 10.0


class ConsoleApp(App[None]):
    CSS_PATH = "console.tcss"
    TITLE = "zcrawl"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = bindings()

    def __init__(
        self,
        targets: dict[str, WatchTarget],
        *,
        feed: Feed | None = None,
        readonly: bool = False,
        theme: str = "",
        keys: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
        record: Callable[[ConsoleEvent], None] = lambda event: None,
        when_ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._clock, self._utc, self._record = clock, utc, record
        self._when_ready = when_ready
        self._targets = targets
        name = next(iter(targets))
        self._target = targets[name]
        self._feed: Feed = feed or MeshFeed(self._target, readonly=readonly)
        self._asking: set[str] = set()
        self._asked: dict[str, tuple[dict[str, Any], float]] = {}  # slot → what, when
        self._user_keys = keys or {}
        self.view = View(
            cluster=name, clusters=tuple(targets), keys=self._user_keys, readonly=readonly
        )
        self._theme = theme
        self._painting = Painting(self.draw)
        self._acting = Acting(self)

    # ------------------------------------------------------------ what is on the screen

    def compose(self) -> ComposeResult:
        yield Canvas("top")
        yield Canvas("tabs")
        yield Canvas("body")
        yield Prompt(lambda typed: commands.completions(typed, self.view))
        yield Canvas("foot")

    def on_mount(self) -> None:
        self.feed_event(Ticked(self._clock()))
        if self._theme in self.available_themes:
            self.theme = self._theme
        elif self._theme:
            self.feed_event(Say(f"no theme {self._theme!r}; :theme lists them", "bad"))
        if self._user_keys:
            self.set_keymap(self._user_keys)
            mistake = key_mistake(self._user_keys)
            if mistake:
                self.feed_event(Say(mistake, "bad"))
        self.theme_changed_signal.subscribe(self, lambda theme: self.draw())
        self.set_interval(TICK_S, self._tick)
        self._watch()

    def on_ready(self) -> None:
        self._when_ready()

    @work(exclusive=True, group="feed")
    async def _watch(self) -> None:
        await self._feed.watch(self.feed_event)

    def feed_event(self, event: ConsoleEvent) -> None:
        """The one way in which the view changes."""
        self._record(event)
        before, self.view = self.view, reduce(self.view, event)
        if self.view == before or not self.is_running:
            return
        if self.view.place != before.place or self.view.table != before.table:
            self._ask_for_more()
        if isinstance(event, Heard):
            self._painting.soon()
        else:
            self._painting.now()

    def draw(self) -> None:
        if len(self.screen_stack) == 0 or not self.screen_stack[0].is_mounted:
            return
        main = self.screen_stack[0]
        canvases = {name: main.query_one(f"#{name}", Canvas) for name in ("top", "tabs", "foot")}
        shown = main.query_one("#body", Canvas)
        canvases["top"].show([top_line(self.view, shown.size.width)])
        canvases["tabs"].show([tab_line(self.view, shown.size.width)])
        canvases["foot"].show([foot_line(self.view, shown.size.width)])
        shown.show(body(self.view, shown.size.width, shown.size.height))

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    # ------------------------------------------------------------ what has to be asked

    def _tick(self) -> None:
        self.feed_event(Ticked(self._clock()))
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Each question of this place, when its answer is old or was to something else."""
        now = self._clock()
        if len(self._asked) > ASKED_KEPT:  # of places that one has left: they are asked anew
            self._asked.clear()
        for question in questions(self.view):
            args, at = self._asked.get(question.slot, ({}, float("-inf")))
            last = self.view.live.answers.get(question.slot)
            # Who is refused asks more rarely: each refusal is a line in the leader's log.
            every_s = (
                max(REFUSED_AGAIN_S, question.every_s) if last and last.error else question.every_s
            )
            if question.slot not in self._asking and (args != question.args or now - at >= every_s):
                self._asking.add(question.slot)
                self._asked[question.slot] = (question.args, now)
                self._ask(question.slot, question.op, question.args)

    @work(group="ask")
    async def _ask(self, slot: str, op: str, args: dict[str, Any]) -> None:
        try:
            data = await self._feed.ask(op, args)
            answered = Answered(slot, data, self._clock())
        except ZcrawlError as error:
            answered = Answered(slot, {}, self._clock(), str(error))
        self._asking.discard(slot)
        self.feed_event(answered)

    # ------------------------------------------------------------ keys

    def on_key(self, event: events.Key) -> None:
        """Shift and a letter sorts."""
        char = event.character or ""
        if len(self.screen_stack) == 1 and len(char) == 1 and char.isascii() and char.isupper():
            event.stop()
            self.feed_event(SortBy(char))

    def action_page(self, page: str) -> None:
        self.feed_event(GoTo(Place(ConsolePage(page))))

    def action_move(self, by: int) -> None:
        self.feed_event(Move(by))

    def action_move_page(self, by: int) -> None:
        self.feed_event(Move(by * max(1, self.query_one("#body").size.height - 3)))

    def action_move_to(self, index: int) -> None:
        self.feed_event(MoveTo(index))

    def action_drill(self) -> None:
        self.feed_event(Drill())

    def action_go_back(self) -> None:
        self.feed_event(Back())

    def action_mark(self) -> None:
        self.feed_event(Mark())

    def action_mark_all(self) -> None:
        self.feed_event(MarkAll())

    def action_pause_view(self) -> None:
        self.feed_event(TogglePause())

    def action_span(self) -> None:
        self.feed_event(SetSpan())

    def action_items(self) -> None:
        """Of the job at the cursor, or of the one that is open."""
        if self.view.page in RUN_PAGES:
            run = next((text(row, "run") or text(row, "id") for row in here(self.view)), "")
            if run:
                self.feed_event(GoTo(Place(ConsolePage.ITEMS, run)))

    def action_group(self) -> None:
        """The queues, grouped by the next thing."""
        grouping = next_grouping(self.view.page)
        if grouping:
            self.feed_event(GoTo(Place(BY[grouping])))

    def action_level(self) -> None:
        if self.view.page is ConsolePage.LOG:
            self.feed_event(NextLevel())

    def action_help(self) -> None:
        cells = min(108, self.size.width * 9 // 10 - 2)  # of the dialog, within its border
        self.push_screen(PictureDialog(help_picture(self.view, cells)))

    def action_copy(self) -> None:
        row = next(iter(here(self.view)), {})
        names = ("url", "host", "id", "name", "text", "data", "run")
        value = next((text(row, name) for name in names if text(row, name)), "")
        if value:
            self.copy_to_clipboard(value)
            self.feed_event(Say(f"copied: {plain(value, 100)}"))

    def on_mouse_scroll_down(self) -> None:
        self.feed_event(Move(3))

    def on_mouse_scroll_up(self) -> None:
        self.feed_event(Move(-3))

    def on_click(self, event: events.Click) -> None:
        """The row under the mouse; a second click on it opens it."""
        main = self.query_one("#body", Canvas)
        table, now = TABLES.get(self.view.page), current(self.view)
        if event.widget is not main or table is None or now is None or event.y < 1:
            return
        index = first_row(now, main.size.height - 2) + event.y - 1
        if index < len(now.rows):
            self.feed_event(MoveTo(index))
            if event.chain == 2:
                self.feed_event(Drill())

    # ------------------------------------------------------------ typing

    def action_command(self) -> None:
        self.query_one(Prompt).open(COMMAND)

    def action_filter(self) -> None:
        state = self.view.table
        self.query_one(Prompt).open(FILTER, ("!" if state.inverse else "") + state.filter)

    def on_prompt_left(self) -> None:
        self.query_one(Prompt).close()

    def on_prompt_typed(self, event: Prompt.Typed) -> None:
        kind, typed = event.text[:1], event.text[1:]
        if event.final:
            self.query_one(Prompt).close()
        if kind == FILTER:
            self.feed_event(SetFilter(typed))
        elif event.final:
            self.obey(commands.parse(typed, self.view))

    def obey(self, parsed: commands.ParsedCommand) -> None:
        match parsed:
            case commands.Mistake(mistake):
                self.feed_event(Say(mistake, "bad"))
            case commands.Do(action, rows, typed):
                self._begin(action, rows, typed)
            case commands.AppCommand(name, argument):
                self._app_command(name, argument)
            case _:
                self.feed_event(parsed)

    def _app_command(self, name: str, argument: str) -> None:
        if name == "theme" and argument in self.available_themes:
            self.theme = argument
        elif name == "theme":
            self.feed_event(Say("themes: " + ", ".join(sorted(self.available_themes))))
        elif name == "cluster":
            self._watch_other(argument)
        elif name == "submit":
            self.action_submit(argument)
        elif name == "help":
            self.action_help()
        elif name == "quit":
            self.exit()
        else:
            self.feed_event(Say(f"{name}: not from here", "bad"))

    def _watch_other(self, name: str) -> None:
        """Another cluster, with a fresh view: nothing of the old one may stand beside it."""
        if name not in self._targets:
            self.feed_event(Say("clusters: " + ", ".join(self._targets)))
            return
        before = self.view
        self._target = self._targets[name]
        self.view = View(
            cluster=name, clusters=before.clusters, keys=before.keys, readonly=before.readonly
        )
        self.workers.cancel_group(self, "ask")  # what the old one answers is not of this one
        self._feed = MeshFeed(self._target, readonly=before.readonly)
        self._asked.clear()
        self._asking.clear()
        self._watch()
        self._painting.now()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What ctrl+p offers: Textual's own, the pages, and what can be done here."""
        yield from super().get_system_commands(screen)
        for page in MAIN_PAGES:
            yield SystemCommand(f"Go to {page}", "", lambda page=page: self.action_page(page))
        for action in offered(self.view):
            yield SystemCommand(
                action.label.capitalize(),
                f"key {action.key}",
                lambda key=action.key: self.action_act(key),
            )

    # ------------------------------------------------------------ acting

    def action_act(self, key: str) -> None:
        """An action is about the rows that were on the screen when its key was pressed."""
        action = by_key(self.view, key)
        if action is not None:
            self._begin(action, chosen_rows(self.view))

    @work(group="act")
    async def _begin(self, action: Action, rows: list[Row], typed: str = "") -> None:
        await self._acting.act(action, rows, typed)

    @work(group="act")
    async def action_submit(self, sources: str = "") -> None:
        await self._acting.submit(sources)

    def line(self) -> ClusterLine:
        """To the cluster that is watched now."""
        return ClusterLine(self._feed.ask, self._target.flags)

    def acted(self, command: str, result: str, ok: bool) -> None:
        self.feed_event(Acted(command, result, ok, self._clock(), self._utc()))
