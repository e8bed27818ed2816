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
from typing import ClassVar, Final, NamedTuple

from textual import events
from textual.app import App
from textual.screen import ModalScreen
from textual.widget import Widget

from console.textual_inside import forward, hide_tooltip, run_binding

DELIVERED_S: Final = 0.5  # the longest that a widget is waited for
LOOK_S: Final = 0.005  # how often a dialog that opens is looked at
OPENED_S: Final = 2.0  # a dialog without focus after this time gets its keys anyway
QUIET_BEFORE_S: Final = 0.3  # without any key before a key that agrees to a question
QUIET_AFTER_S: Final = 0.15  # and after it: less than between two letters of a word
MOST_WAITING: Final = 10_000  # keys; whoever pastes more without brackets loses the rest

TypedEvent = events.Key | events.Paste


class KeyClock:
    """When keys were pressed, and what time it is."""

    def now(self) -> float:
        """Return the time of now by the clock of all events."""
        return events.Idle().time

    def of(self, event: TypedEvent) -> float:
        """Return when a key or a paste arrived."""
        return event.time


class LoneKey(NamedTuple):
    """A key that agrees to a question, if nothing is typed right behind it."""

    event: events.Key
    screen: DialogScreen
    at: float


class DialogScreen(ModalScreen[None]):
    """A dialog. Keys that come while it opens are kept for it, or dropped."""

    KEEPS_EARLY_KEYS: ClassVar[bool] = True
    seen_at: float | None = None  # when it was painted first

    @property
    def seen(self) -> bool:
        """Whether it was painted, with its focus."""
        return self.seen_at is not None

    def agrees(self, event: events.Key) -> bool:
        """Return whether this key would agree to a question. It has to stand alone."""
        return False

    def explain_quiet(self) -> None:
        """Say that a key did not count, because it did not stand alone."""


class OrderedApp(App[None]):
    """An app that finishes a key before it looks at the next one."""

    def __init__(self, key_clock: KeyClock | None = None) -> None:
        super().__init__()
        self._key_clock = key_clock or KeyClock()
        self._typed_at = float("-inf")  # the newest key or paste
        self._lone_key: LoneKey | None = None
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
            before, self._typed_at = self._typed_at, self._key_clock.of(event)
            self._drop_lone_key()
            if self._is_early(event):
                continue
            if isinstance(event, events.Key):
                if not self._waits_alone(event, before):
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
        return screen.seen_at is not None and self._key_clock.of(event) < screen.seen_at

    # ------------------------------------------------------------ keys that agree to something

    def _waits_alone(self, event: events.Key, before: float) -> bool:
        """Whether a key has to stand alone. Then it counts only if it does: a `y` within a word
        that is typed while a question is on the screen agrees to nothing."""
        screen = self.screen
        if not isinstance(screen, DialogScreen) or not screen.agrees(event):
            return False
        since = max(before, screen.seen_at or before)
        if self._typed_at - since < QUIET_BEFORE_S:
            screen.explain_quiet()
            return True
        self._lone_key = LoneKey(event, screen, self._typed_at)
        self.set_timer(QUIET_AFTER_S, self._press_lone_key)
        return True

    def _drop_lone_key(self) -> None:
        """Another key came right behind it."""
        if self._lone_key is not None:
            self._lone_key.screen.explain_quiet()
            self._lone_key = None

    async def _press_lone_key(self) -> None:
        """Press the key that agrees, if nothing came behind it."""
        lone_key = self._lone_key
        if lone_key is None or self._typed:  # the keys that wait will drop it
            return
        left = lone_key.at + QUIET_AFTER_S - self._key_clock.now()
        if left > 0:
            self.set_timer(left, self._press_lone_key)
            return
        self._lone_key = None
        if self.screen is lone_key.screen:
            await self._press(lone_key.event)

    def post_display_hook(self) -> None:
        """Note when a dialog is on the screen."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, DialogScreen) and screen.focused is not None and not screen.seen:
            screen.seen_at = self._key_clock.now()

    async def _press(self, event: events.Key) -> None:
        focused = self.focused
        if focused is not None:
            hide_tooltip(self.screen)
            if focused.check_consume_key(event.key, event.character):
                await self._deliver(event, focused)
                return
        if await run_binding(self, event.key, priority=True):
            return
        if await run_binding(self, event.key):
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

    async def _deliver(self, event: TypedEvent, target: Widget) -> None:
        """Give it to a widget, and wait until the widget is done with it."""
        done = asyncio.Event()
        forward(event, target)
        if target.call_later(done.set):
            # A widget that takes longer is stuck; the next key must not wait for it for ever.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DELIVERED_S):
                    await done.wait()
