"""When the screen is drawn: at once after a key, and together with others after what was heard.

A leader may tell two hundred things in a second; nobody reads faster than this draws, and a key
must not wait for any of it. Called by `app`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LEAST_S: Final = 0.05  # between two drawings of what was heard


class Painting:
    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._drawn_at = float("-inf")
        self._soon: asyncio.TimerHandle | None = None

    def now(self) -> None:
        """What waits to be drawn is drawn with it."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._draw()
        self._drawn_at = asyncio.get_running_loop().time()

    def soon(self) -> None:
        if self._soon is None:
            loop = asyncio.get_running_loop()
            wait_s = max(0.0, self._drawn_at + LEAST_S - loop.time())
            self._soon = loop.call_later(wait_s, self.now)
