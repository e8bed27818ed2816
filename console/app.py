"""The Textual app: owns the View, feeds it, and shows it on the screen of its page.

Everything that decides is elsewhere: `view.reduce` what becomes of an event, `drawing` what a line
looks like, `actions` what can be done, `keyboard` in which order keys are handled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from pathlib import PurePath
from typing import Any, ClassVar

from textual import events, work
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import HelpPanel

from console import commands
from console.acting import Acting, ClusterLine
from console.actions import ACTIONS, BY_NAME, RUN_PAGES, Action, may_begin
from console.asking import Asking
from console.columns.queues import BY, next_grouping
from console.columns.work import JOBS_SLOT
from console.copying import main_fields, whole_rows
from console.drawing.charts import charts_of
from console.feed.mesh import MeshFeed
from console.feed.ports import Feed
from console.feed.replay import ReplayFeed
from console.jumps import jumps
from console.keyboard import KeyClock
from console.keymap import SIGNS, app_bindings, key_mistake
from console.painting import Painting
from console.plain import plain
from console.questions import Question
from console.screens.ahead_app import AheadApp
from console.screens.dialogs import ChoiceDialog, PromptDialog
from console.screens.page import PageScreen
from console.screens.pages import MODES
from console.screens.palette import ClusterProvider, Palette
from console.state import (
    Acted,
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
    ToggleRow,
    View,
)
from console.tables import Row, text
from console.themes import THEMES
from console.units import plural
from console.view import here, reduce
from console.widgets.commanded import Commanded
from console.widgets.replay_bar import ReplayBar
from zcrawl.roles.watching import WatchTarget

TICK_S = 0.5
SEVERITY = {"bad": "error", "warn": "warning"}  # of a toast, by the style of a message
TOAST_S = 6.0


class ConsoleApp(AheadApp):
    """The console. Each page is a mode with a screen of its own."""

    CSS_PATH: ClassVar[list[str | PurePath]] = ["console.tcss", "paint.tcss"]
    TITLE = "zcrawl"
    BINDINGS: ClassVar[list[BindingType]] = app_bindings()
    DEFAULT_MODE = ConsolePage.OVERVIEW
    COMMANDS = AheadApp.COMMANDS | {ClusterProvider}

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
        key_clock: KeyClock | None = None,
        ahead: bool = True,
    ) -> None:
        super().__init__(MODES, key_clock)
        self._clock, self._utc, self._record = clock, utc, record
        self._when_ready, self._composes_ahead = when_ready, ahead
        self._targets = targets
        name = next(iter(targets))
        self._target = targets[name]
        self._feed: Feed = feed or MeshFeed(self._target, readonly=readonly)
        self._asking = Asking(clock)
        self._user_keys = keys or {}
        self.view = View(
            cluster=name, clusters=tuple(targets), keys=self._user_keys, readonly=readonly
        )
        for own_theme in THEMES:
            self.register_theme(own_theme)
        self.theme = THEMES[0].name
        self._theme = theme
        self._painting = Painting(self.draw)
        self._acting = Acting(self)

    # ------------------------------------------------------------ what is on the screen

    def on_mount(self) -> None:
        """Take the user's settings, and begin to watch."""
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
        """Draw the first page; compose the others when it is on the screen."""
        self._ahead.started()
        self.draw()
        self._when_ready()
        if self._composes_ahead:
            self.call_after_refresh(self._compose_ahead)

    @work(group="ahead")
    async def _compose_ahead(self) -> None:
        await self._ahead.compose_all()
        self._when_ready()

    def delay_update(self, delay: float = 0.05) -> None:
        """Do not wait: Textual would hold a page back for 50 ms after each change of the mode."""

    @work(exclusive=True, group="feed")
    async def _watch(self) -> None:
        await self._feed.watch(self.feed_event)

    def feed_event(self, event: ConsoleEvent) -> None:
        """The one way in which the View changes."""
        self._record(event)
        before, self.view = self.view, reduce(self.view, event)
        if self.view == before or not self.is_running:
            return
        if self.view.place != before.place or self.view.table != before.table:
            self._ask_for_more()
        if self.view.page is not before.page:
            self._show_page()
        if self.view.message != before.message and self.view.message.text:
            self._toast()
        if self.view.may_act is not before.may_act and isinstance(self.screen, PageScreen):
            self.screen.refresh_bindings()
        if isinstance(event, Heard):
            self._painting.soon()
        else:
            self._painting.now()

    def _show_page(self) -> None:
        screen = self._ahead.screen_of(self.view.page)
        half_composed = screen.is_running and not screen.composed.is_set()
        self.switch_mode(self.view.page)
        if half_composed:  # the next key must not come before the screen is there
            self.call_next(screen.composed.wait)

    def _toast(self) -> None:
        message = self.view.message
        severity: Any = SEVERITY.get(message.style, "information")
        self.clear_notifications()
        self.notify(plain(message.text), severity=severity, timeout=TOAST_S, markup=False)

    @property
    def page_screen(self) -> PageScreen | None:
        """The screen of the page, below all dialogs."""
        stack = self.screen_stack
        return stack[0] if stack and isinstance(stack[0], PageScreen) else None

    def draw(self) -> None:
        """Show the View on the screen of its page."""
        screen = self.page_screen
        if screen is not None:
            screen.show(self.view)
            if self.view.live.snapshot is not None and self.view.live.answers:
                self._ahead.full_picture()

    # ------------------------------------------------------------ what has to be asked

    def _tick(self) -> None:
        self.feed_event(Ticked(self._clock()))
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        for question in self._asking.due(self.view):
            self._ask(question)

    @work(group="ask")
    async def _ask(self, question: Question) -> None:
        self.feed_event(await self._asking.answer(self._feed, question))

    # ------------------------------------------------------------ keys

    def get_key_display(self, binding: Binding) -> str:
        """Return how a key is shown: by one sign, also where Textual has another."""
        return binding.key_display or SIGNS.get(binding.key) or super().get_key_display(binding)

    def unbound_key(self, event: events.Key) -> bool:
        """Sort by shift and a letter; say why a key that changes something does nothing here."""
        if isinstance(self.screen, ModalScreen):
            return False
        char = event.character or ""
        if len(char) == 1 and char.isascii() and char.isupper():
            self.feed_event(SortBy(char))
            return True
        if not self.view.may_act and self._changes_something(event.key):
            self._acting.refuses()
            return True
        return False

    def _changes_something(self, key: str) -> bool:
        """Whether the key would change something on this page, if one might."""
        keys = [
            self._user_keys.get(f"act.{action.name}", action.key)
            for action in ACTIONS
            if self.view.page in action.pages
        ]
        keys.append(self._user_keys.get("job.new", "n"))
        return any(key in names.split(",") for names in keys)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what may be done here, and nothing of the pages while a dialog is open."""
        if action == "act":
            return may_begin(self.view, BY_NAME[str(parameters[0])])
        if action in ("replay_seek", "replay_speed"):
            return isinstance(self._feed, ReplayFeed)
        if action == "submit":
            return self.view.may_act
        if action == "command_palette":
            return not isinstance(self.screen, ModalScreen)
        return True

    def on_commanded(self, message: Commanded) -> None:
        """Do what a click asked for; without a command, draw again."""
        for command in message.commands:
            self.feed_event(command)
        if not message.commands:
            self.draw()

    def action_page(self, page: str) -> None:
        """Go to one of the nine pages."""
        self.feed_event(GoTo(Place(ConsolePage(page))))

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.feed_event(Move(by))

    def action_move_page(self, by: int) -> None:
        """Move the cursor by a screen."""
        screen = self.page_screen
        self.feed_event(Move(by * (screen.page_rows if screen is not None else 1)))

    def action_move_to(self, index: int) -> None:
        """Move the cursor to a row; -1 is the last."""
        self.feed_event(MoveTo(index))

    def action_drill(self) -> None:
        """Open the row at the cursor."""
        self.feed_event(Drill())

    def action_go_back(self) -> None:
        """Close the help; clear the filter, then the marks; go back."""
        if self.screen.query(HelpPanel):
            self.action_help()
        else:
            self.feed_event(Back())

    def action_mark(self) -> None:
        """Mark the row at the cursor."""
        self.feed_event(Mark())

    def action_mark_all(self) -> None:
        """Mark all rows, or none."""
        self.feed_event(MarkAll())

    def action_freeze(self) -> None:
        """Freeze what is shown, or show what is new again."""
        if isinstance(self._feed, ReplayFeed):
            self._feed.toggle_pause()
        else:
            self.feed_event(TogglePause())

    def action_replay_seek(self, seconds: float) -> None:
        """Go back or forward in a recording."""
        if isinstance(self._feed, ReplayFeed):
            self._feed.seek_by(seconds)

    def action_replay_speed(self, steps: int) -> None:
        """Show a recording faster or slower."""
        if isinstance(self._feed, ReplayFeed):
            self._feed.change_speed(steps)

    def on_replay_bar_position_chosen(self, event: ReplayBar.PositionChosen) -> None:
        """Go to the clicked position of a recording."""
        if isinstance(self._feed, ReplayFeed):
            self._feed.seek_share(event.share)

    def action_span(self) -> None:
        """Show another time span."""
        self.feed_event(SetSpan())

    def action_items(self) -> None:
        """Go to the items of the job at the cursor, or of the one that is open."""
        if self.view.page in RUN_PAGES:
            run = next((text(row, "run") or text(row, "id") for row in here(self.view)), "")
            if run:
                self.feed_event(GoTo(Place(ConsolePage.ITEMS, run)))

    def action_charts(self) -> None:
        """Go to the charts of the job or the host at the cursor."""
        row = next(iter(here(self.view)), {})
        place = charts_of(self.view.page, row) if row else None
        if place is not None:
            self.feed_event(GoTo(place))

    def action_group(self) -> None:
        """Group the queues by the next thing."""
        grouping = next_grouping(self.view.page)
        if grouping:
            self.feed_event(GoTo(Place(BY[grouping])))

    def action_level(self) -> None:
        """Show all lines of the log, warnings, or errors."""
        self.feed_event(NextLevel())

    def action_command_palette(self) -> None:
        """Open the palette."""
        self.push_screen(Palette())

    def action_toggle_row(self) -> None:
        """Show or hide the runs of the job at the cursor."""
        self.feed_event(ToggleRow())

    def action_jump(self) -> None:
        """Go from an event to its job, host or node; ask which, if it has several."""
        row = next(iter(here(self.view)), {})
        places = jumps(self.view, row)
        if not places:
            self.feed_event(Say("this line names no job, host or node", "warn"))
        elif len(places) == 1:
            self.feed_event(GoTo(places[0].place))
        else:
            labels = [jump.label for jump in places]
            self.push_screen(
                ChoiceDialog("Go to", labels, lambda n: self.feed_event(GoTo(places[n].place)))
            )

    def action_help(self) -> None:
        """Show or hide the keys of this page and what its words mean."""
        if self.screen.query(HelpPanel):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()
        self.call_after_refresh(self.draw)  # the page has another width now

    def action_copy(self) -> None:
        """Copy what is selected with the mouse, the marked rows, or the row's main field."""
        selected = self.screen.get_selected_text()
        marks = self.view.table.marks
        value = selected or main_fields(self.view)
        if value:
            self.copy_to_clipboard(value)
            what = f"{len(marks)} rows" if marks and not selected else plain(value, 100)
            self.feed_event(Say(f"copied: {what}"))

    def action_copy_rows(self) -> None:
        """Copy the marked rows, or the row at the cursor: all columns, with tabs between them."""
        rows = whole_rows(self.view, self.size.width)
        if rows:
            self.copy_to_clipboard("\n".join(rows))
            self.feed_event(Say(f"copied: {plural(len(rows), 'row')}"))

    # ------------------------------------------------------------ typing

    def action_command(self) -> None:
        """Open the command line."""
        self.push_screen(
            PromptDialog(
                "command",
                accept=lambda typed: self.obey(commands.parse(typed, self.view)),
                complete=lambda typed: commands.completions(typed, self.view),
            )
        )

    def action_filter(self) -> None:
        """Open the line for a filter. What is typed counts at once; escape clears it."""
        state = self.view.table
        self.push_screen(
            PromptDialog(
                "filter (! in front: all that do not match)",
                ("!" if state.inverse else "") + state.filter,
                accept=lambda typed: self.feed_event(SetFilter(typed)),
                typed=lambda typed: self.feed_event(SetFilter(typed)),
                leave=lambda: self.feed_event(SetFilter("")),
            )
        )

    def obey(self, parsed: commands.ParsedCommand) -> None:
        """Do what was typed on the command line."""
        match parsed:
            case commands.Mistake(mistake):
                self.feed_event(Say(mistake, "bad"))
            case commands.Do(action, rows, typed):
                self._acting.begin(action, rows, typed)
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
            self.watch_other(argument)
        elif name == "submit":
            self.action_submit(argument)
        elif name == "help":
            self.action_help()
        elif name == "quit":
            self.exit()
        else:
            self.feed_event(Say(f"{name}: not from here", "bad"))

    def watch_other(self, name: str) -> None:
        """Watch another cluster, with a fresh View: nothing of the old one may stand beside it."""
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
        self._asking.forget()
        self._show_page()
        self._watch()
        self._painting.now()

    # ------------------------------------------------------------ acting

    def action_act(self, name: str) -> None:
        """Begin an action about the rows that were on the screen when its key was pressed."""
        self.begin(BY_NAME[name])

    def begin(self, action: Action, rows: list[Row] | None = None) -> None:
        """Ask about an action; about the chosen rows, if no others are given."""
        screen = self.page_screen
        if rows is None:
            rows = screen.chosen(self.view) if screen is not None else []
        self._acting.begin(action, rows)

    def action_submit(self, sources: str = "") -> None:
        """Open the form for a new job."""
        self._acting.submit(sources)

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that was agreed to."""
        self.run_worker(work, group="act")

    def line(self) -> ClusterLine:
        """The way to the cluster that is watched now."""
        return ClusterLine(self._feed.ask, self._target.flags)

    def acted(self, command: str, result: str, ok: bool) -> None:
        """Tell what became of an action."""
        self._asking.again(JOBS_SLOT)  # which runs there are
        self.feed_event(Acted(command, result, ok, self._clock(), self._utc()))
