"""What every page has: the line at the top, the tabs, its own body, the footer.

Each page is a mode of the app with a screen of its own (`screens.pages`). The app calls `show` with
the View whenever it has changed and this screen is the active one; a page overrides `compose_body`
and `show_body`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Tab, Tabs

from console.drawing.frame import root_page, top_line
from console.state import MAIN_PAGES, ConsolePage, GoTo, Place, View
from console.tables import Row
from console.view import chosen_rows
from console.widgets.commanded import Commanded
from console.widgets.footer import PageFooter
from console.widgets.painted import Painted
from console.widgets.replay_bar import ReplayBar


class PageTabs(Tabs, can_focus=False):
    """The nine pages; the tab of this one stands out. A click goes to another page."""

    def __init__(self, page: ConsolePage) -> None:
        super().__init__(
            *(
                Tab(Content(_tab_label(n, name)), id=f"tab-{name}")
                for n, name in enumerate(MAIN_PAGES, 1)
            ),
            active=f"tab-{page if page in MAIN_PAGES else MAIN_PAGES[0]}",
            id="tabs",
        )

    # When an app is shut down while a screen is being composed, Textual attaches no more children
    # but sends Mount all the same: there are no tabs then ("No Tab with id"), or no line below.

    def validate_active(self, active: str) -> str:
        """Keep the tab when the new one is not there."""
        return active if self.query(f"#tabs-list > #{active}") else self.active

    def watch_active(self, previously_active: str, active: str) -> None:
        """Show the tab, if it is there with all its parts."""
        if self.query("Underline"):
            super().watch_active(previously_active, active)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Stay inside: the app hears of clicks only."""
        event.stop()

    def on_tab_clicked(self, event: Tab.Clicked) -> None:
        """Go to the page; this screen keeps its own tab."""
        event.stop()
        event.prevent_default()
        if event.tab.id is not None:
            self.post_message(
                Commanded(GoTo(Place(ConsolePage(event.tab.id.removeprefix("tab-")))))
            )


class PageScreen(Screen[None]):
    """A page of the console."""

    PAGE: ClassVar[ConsolePage]
    AUTO_FOCUS = "#body"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-high"), (44, "-tall")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.composed = asyncio.Event()  # with all widgets in it

    def on_mount(self) -> None:
        """Tell who waits for it."""
        self.composed.set()

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        yield Painted(id="top")
        yield PageTabs(self.PAGE)
        yield from self.compose_body()
        yield ReplayBar()
        yield PageFooter()

    def compose_body(self) -> Iterable[Widget]:
        """The widgets between the tabs and the footer."""
        raise NotImplementedError

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Show what is new since this page was left. Its styles are as they were: the app applies
        a new theme itself, and applying the same one again takes 30 ms."""
        event.refresh_styles = False
        self.call_after_refresh(self._show_again)

    def on_resize(self) -> None:
        """Draw for the new size, once the widgets have theirs."""
        self.call_after_refresh(self._show_again)

    def _show_again(self) -> None:
        if self.is_current:
            self.post_message(Commanded())

    def show(self, view: View) -> None:
        """Show the View, once the widgets are there."""
        if not self.is_mounted or not self.query("#top"):
            return
        top = self.query_one("#top", Painted)
        top.paint([top_line(view, top.size.width)])
        self.query_one(PageTabs).active = f"tab-{root_page(view)}"
        self.query_one(ReplayBar).show(view)
        self.show_body(view)

    def show_body(self, view: View) -> None:
        """Show what the page is for."""
        raise NotImplementedError

    def chosen(self, view: View) -> list[Row]:
        """What an action is about."""
        return chosen_rows(view)

    @property
    def page_rows(self) -> int:
        """How far page down goes."""
        return max(1, self.size.height - 5)


def _tab_label(number: int, page: ConsolePage) -> str:
    return f"{number} {str(page).capitalize()}"
