"""Keys in the order in which they were pressed, however fast they come.

Textual hands a key to the widget that has the focus when the app takes it from its queue, and the
widget handles it later, in a task of its own. Of a burst `:hosts`, the `h` would reach the page
before the `:` has opened the prompt. Here a key is finished before the next one is looked at: its
binding runs at once, or its widget is waited for. While a dialog opens, keys wait for its input.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import ClassVar, Final

from textual import events
from textual._time import get_time
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import ModalScreen

DELIVERED_S: Final = 0.5  # the longest that a widget is waited for
LOOK_S: Final = 0.005  # how often a dialog that opens is looked at
OPENED_S: Final = 2.0  # a dialog without focus after this time gets its keys anyway
MOST_WAITING: Final = 10_000  # keys; whoever pastes more without brackets loses the rest

TypedEvent = events.Key | events.Paste


class DialogScreen(ModalScreen[None]):
    """A dialog. Keys that come while it opens are kept for it, or dropped."""

    KEEPS_EARLY_KEYS: ClassVar[bool] = True
    seen_at: float | None = None  # when it was painted first

    @property
    def seen(self) -> bool:
        """Whether it was painted, with its focus."""
        return self.seen_at is not None


class OrderedApp(App[None]):
    """An app that finishes a key before it looks at the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[TypedEvent] = deque(maxlen=MOST_WAITING)
        self._waits_since: float | None = None

    async def on_event(self, event: events.Event) -> None:
        """Take keys and pastes out of Textual's way; all else goes it."""
        if isinstance(event, TypedEvent) and not event.is_forwarded:
            self._typed.append(event)
            await self._type()
            return
        await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """A key that no widget took comes back here: its bindings have been looked at already."""
        event.prevent_default()

    async def _type(self) -> None:
        while self._typed:
            if not self._takes_keys():
                self.set_timer(LOOK_S, self._type)
                return
            event = self._typed.popleft()
            if self._is_early(event):
                continue
            if isinstance(event, events.Key):
                await self._press(event)
            else:
                await self._paste(event)

    def _takes_keys(self) -> bool:
        """Whether the screen on top is there; a dialog must also have its focus."""
        screen = self.screen
        seen = not isinstance(screen, DialogScreen) or screen.KEEPS_EARLY_KEYS or screen.seen
        if not isinstance(screen, ModalScreen) or (screen.focused is not None and seen):
            self._waits_since = None
            return True
        now = asyncio.get_running_loop().time()
        if self._waits_since is None:
            self._waits_since = now
        return now - self._waits_since > OPENED_S

    def _is_early(self, event: TypedEvent) -> bool:
        """Whether it was typed before the dialog on top could be read."""
        screen = self.screen
        if not isinstance(screen, DialogScreen) or screen.KEEPS_EARLY_KEYS:
            return False
        return screen.seen_at is not None and event.time < screen.seen_at

    def post_display_hook(self) -> None:
        """Note when a dialog is on the screen."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, DialogScreen) and screen.focused is not None and not screen.seen:
            screen.seen_at = get_time()

    async def _press(self, event: events.Key) -> None:
        focused = self.focused
        if focused is not None:
            self.screen._clear_tooltip()
            if focused.check_consume_key(event.key, event.character):
                await self._deliver(event, focused)
                return
        if await self._check_bindings(event.key, priority=True):
            return
        if await self._check_bindings(event.key):
            return
        if not self.unbound_key(event):
            await self._deliver(event, focused or self.screen)

    def unbound_key(self, event: events.Key) -> bool:
        """Handle a key that no binding is for; False hands it to the widget with the focus."""
        return False

    async def _paste(self, event: events.Paste) -> None:
        """Into the input that has the focus, or nowhere."""
        focused = self.focused
        if focused is not None and focused.check_consume_key("a", "a"):
            await self._deliver(event, focused)

    async def _deliver(self, event: TypedEvent, target: MessagePump) -> None:
        """Give it to a widget, and wait until the widget is done with it."""
        done = asyncio.Event()
        target._forward_event(event)  # type: ignore[attr-defined]
        if target.call_later(done.set):
            # A widget that takes longer is stuck; the next key must not wait for it for ever.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DELIVERED_S):
                    await done.wait()
