"""An app whose screens are composed ahead of their first visit; it ends between two of them.

`ahead` composes. Here keys go before it, and an end waits for a screen that is half composed.
`console.app` is the one app of this kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from textual import events

from console.keyboard import KeyClock, OrderedApp
from console.screens.ahead import ScreensAhead
from console.screens.page import PageScreen
from console.state import ConsolePage


class AheadApp(OrderedApp):
    """Each page is a mode with a screen of its own."""

    def __init__(
        self, screens: Mapping[ConsolePage, type[PageScreen]], key_clock: KeyClock | None = None
    ) -> None:
        super().__init__(key_clock)
        self._ahead = ScreensAhead(self, screens)
        for mode, screen in self._ahead.factories().items():
            self.add_mode(mode, screen)
        self._ends: asyncio.Task[None] | None = None  # waits for a screen

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """End the app, but not while a screen is half composed."""
        if self._ahead.may_end:
            super().exit(result, return_code, message)
        elif self._ends is None:
            self._ends = asyncio.ensure_future(self._exit_later(result, return_code, message))

    async def _shutdown(self) -> None:
        """Also where Textual itself ends the app: the one private method that is overridden."""
        await self._ahead.end()
        await super()._shutdown()

    async def _exit_later(self, result: None, return_code: int, message: Any) -> None:
        await self._ahead.end()
        super().exit(result, return_code, message)

    async def on_event(self, event: events.Event) -> None:
        """Let keys go before screens that are composed ahead."""
        if isinstance(event, events.Key):
            self._ahead.key_came()
        await super().on_event(event)
