"""What the command palette finds beyond Textual's own: pages, jobs, nodes, hosts, actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.worker import Worker, WorkerState

from console.actions import key_of, offered
from console.columns.work import job_rows, node_rows
from console.state import MAIN_PAGES, ConsolePage, GoTo, Place
from console.tables import Row, text

if TYPE_CHECKING:
    from console.app import ConsoleApp


class Palette(CommandPalette):
    """Textual's palette, safe against fast keys (textual 8.2.8).

    It can be closed while it still searches: its search then finds no list to fill. A key may come
    for a list that has no size yet, and a second enter while it closes, which would close the page
    below it too. None of these may end the app.
    """

    def __init__(self) -> None:
        super().__init__()  # no id: another may open while this one is being removed
        self._is_closed = False

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close, once."""
        if self._is_closed:
            return AwaitComplete()
        self._is_closed = True
        return super().dismiss(result)

    @property
    def _takes_keys(self) -> bool:
        return not self._is_closed and bool(self.query(CommandList))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Drop an enter that comes while it closes."""
        self._drop_if_closed(event)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Drop a choice that comes while it closes."""
        self._drop_if_closed(event)

    def _drop_if_closed(self, message: Message) -> None:
        if not self._takes_keys:
            message.stop()
            message.prevent_default()

    def _action_cursor_down(self) -> None:
        """Open the list, or move in it."""
        if self._takes_keys:
            super()._action_cursor_down()

    def _action_command_list(self, action: str) -> None:
        """Move in the list, once it is on the screen."""
        if self._takes_keys and self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)

    def run_worker(self, work: Any, *args: Any, **options: Any) -> Worker[Any]:
        """Run a search whose error does not end the app."""
        return super().run_worker(work, *args, **{**options, "exit_on_error": False})

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Tell an error of a search that is still looked at."""
        if event.state is WorkerState.ERROR and self.is_current:
            self.notify(str(event.worker.error), severity="error", markup=False)


class PaletteEntry(NamedTuple):
    """Something to choose."""

    text: str
    about: str
    do: Callable[[], None]


class ClusterProvider(Provider):
    """Searches by name."""

    @property
    def _console(self) -> ConsoleApp:
        from console.app import ConsoleApp

        app = self.app
        assert isinstance(app, ConsoleApp)
        return app

    def _entries(self) -> Iterator[PaletteEntry]:
        app = self._console
        view = app.view
        for action in offered(view):
            about = f"{action.about} Key {key_of(view, action)}."
            yield PaletteEntry(action.label.capitalize(), about, partial(app.begin, action))
        if view.may_act:
            yield PaletteEntry("New job", "Open the form.", app.action_submit)
        for page in MAIN_PAGES:
            yield PaletteEntry(f"Go to {page}", "", self._go(Place(page)))
        for cluster in view.clusters if len(view.clusters) > 1 else ():
            yield PaletteEntry(f"Cluster {cluster}", "Watch it.", partial(app.watch_other, cluster))

    def _names(self) -> Iterator[PaletteEntry]:
        """What there may be thousands of: found by typing only."""
        view = self._console.view
        for row in job_rows(view):
            place = Place(ConsolePage.JOB, text(row, "run"), _flat(row))
            yield PaletteEntry(
                f"Job {text(row, 'name')}", f"run {text(row, 'run')}", self._go(place)
            )
        for row in node_rows(view):
            place = Place(ConsolePage.NODE, text(row, "id"), _flat(row))
            yield PaletteEntry(f"Node {text(row, 'id')}", text(row, "kind"), self._go(place))
        for row in view.content.rows("hosts:"):
            place = Place(ConsolePage.HOST, text(row, "id"), _flat(row))
            yield PaletteEntry(f"Host {text(row, 'host')}", "", self._go(place))

    def _go(self, place: Place) -> Callable[[], None]:
        return partial(self._console.feed_event, GoTo(place))

    async def discover(self) -> Hits:
        """Offer what can be done here, before anything is typed."""
        for entry in self._entries():
            yield DiscoveryHit(Content(entry.text), entry.do, entry.text, entry.about or None)

    async def search(self, query: str) -> Hits:
        """Find by name."""
        matcher = self.matcher(query)
        for entry in (*self._entries(), *self._names()):
            score = matcher.match(entry.text)
            if score > 0:
                yield Hit(score, Content(entry.text), entry.do, entry.text, entry.about or None)


def _flat(row: Row) -> tuple[tuple[str, str | int | float], ...]:
    return tuple((k, v) for k, v in row.items() if isinstance(v, str | int | float))
