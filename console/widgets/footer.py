"""Textual's footer, made again only when the keys have changed.

Textual composes it anew whenever the focus or the screen changes: 40 ms of the time of a page key,
for the same keys.
"""

from __future__ import annotations

from typing import Any

from textual.screen import Screen
from textual.widgets import Footer

ShownKey = tuple[str, str, bool]  # key, description, enabled


class PageFooter(Footer):
    """The keys of a page."""

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._shown: tuple[ShownKey, ...] | None = None

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Compose again, if another key is to be shown."""
        if not self.is_attached or screen is not self.screen:
            return
        keys = tuple(
            (key, active.binding.description, active.enabled)
            for key, active in screen.active_bindings.items()
            if active.binding.show
        )
        if keys != self._shown:
            self._shown = keys
            super().bindings_changed(screen)
