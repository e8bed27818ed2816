"""Page screens that are composed before anybody visits them.

Composing a screen takes 30 to 150 ms: too long for a key that changes the page. So the app composes
the screens of all pages as soon as the first picture is there, one at a time, and waits while keys
come. A page that is visited before its turn is composed by that visit, as Textual does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Final

from textual.app import App
from textual.events import ScreenResume

from console.screens.page import PageScreen
from console.state import ConsolePage
from console.textual_inside import register_screen

PAUSE_S: Final = 0.03  # between two screens: what waits in the queues of the app goes first
ENDS_S: Final = 2.0  # the longest that an end waits for a screen
SILENT_S: Final = 3.0  # the longest that the first full picture is waited for
QUIET_S: Final = 0.25  # after a key: whoever types is served first


class ScreensAhead:
    """Makes the screen of each page, on its first visit or ahead of it."""

    def __init__(self, app: App[None], screens: Mapping[ConsolePage, type[PageScreen]]) -> None:
        self._app, self._classes = app, screens
        self._screens: dict[ConsolePage, PageScreen] = {}
        self._started = asyncio.Event()  # Textual has mounted the first screen
        self._full_picture = asyncio.Event()
        self._ending = False
        self._quiet_at = 0.0  # the time of the event loop from which on a screen may be composed

    def factories(self) -> dict[str, Callable[[], PageScreen]]:
        """Return for each mode what Textual calls at its first visit."""
        return {str(page): functools.partial(self.screen_of, page) for page in self._classes}

    def screen_of(self, page: ConsolePage) -> PageScreen:
        """Return the screen of a page; the first time, begin to compose it."""
        if page not in self._screens:
            self._screens[page] = self._classes[page]()
            register_screen(self._app, self._screens[page])
        return self._screens[page]

    def key_came(self) -> None:
        """Compose nothing for a moment."""
        self._quiet_at = asyncio.get_running_loop().time() + QUIET_S

    def started(self) -> None:
        """Note that the first screen is there."""
        self._started.set()

    def full_picture(self) -> None:
        """Note that the first page shows what was heard and answered."""
        self._full_picture.set()

    async def compose_all(self) -> None:
        """Compose the screens of all pages that were not visited yet, after the first picture."""
        with contextlib.suppress(TimeoutError):  # a cluster that is silent: compose anyway
            async with asyncio.timeout(SILENT_S):
                await self._full_picture.wait()
        for page in self._classes:
            if page in self._screens:
                continue
            await self._quiet()
            if self._ending:
                return
            if page not in self._screens:  # nor while we waited
                screen = self.screen_of(page)
                await screen.composed.wait()
                screen.post_message(ScreenResume())  # it takes its size and its focus

    async def end(self) -> None:
        """Compose no other screen, and wait for the one that is half composed.

        Once an app exits, Textual attaches no widget any more: a widget that has yet to compose its
        children raises MountError, and Tabs miss their tabs ("No Tab with id").
        """
        self._ending = True
        with contextlib.suppress(TimeoutError):  # a screen that failed is never composed
            async with asyncio.timeout(ENDS_S):
                await self._started.wait()
                for screen in self._screens.values():
                    await screen.composed.wait()

    @property
    def may_end(self) -> bool:
        """Whether no screen is half composed."""
        screens = self._screens.values()
        return self._started.is_set() and all(screen.composed.is_set() for screen in screens)

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = PAUSE_S
        while wait_s > 0:
            await asyncio.sleep(wait_s)
            wait_s = self._quiet_at - loop.time()
