"""The line at the bottom where commands and filters are typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

COMMAND, FILTER = ":", "/"


class Completer(Suggester):
    """Suggests the first command line that begins with what was typed."""

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        if not value.startswith(COMMAND):
            return None
        completions = self._complete(value[1:])
        return COMMAND + completions[0] if completions else None


class Prompt(Input):
    """Hidden until it is opened with `:` or `/`; the first character says what is being typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave", show=False),
        Binding("tab", "complete", "complete", show=False),
    ]

    class Typed(Message):
        """What is there, after each key and at the end."""

        def __init__(self, text: str, final: bool) -> None:
            super().__init__()
            self.text, self.final = text, final

    class Left(Message):
        """Escape: nothing is wanted."""

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        super().__init__(
            id="prompt", suggester=Completer(complete), compact=True, select_on_focus=False
        )
        self._complete = complete
        self.display = False

    def open(self, kind: str, text: str = "") -> None:
        self.value = kind + text
        self.display = True
        self.focus()
        self.cursor_position = len(self.value)

    def close(self) -> None:
        self.display = False
        self.value = ""
        self.screen.set_focus(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if not self.display:
            return
        if not event.value.startswith((COMMAND, FILTER)):  # the first character was deleted
            self.post_message(self.Left())
        else:
            self.post_message(self.Typed(event.value, False))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Typed(event.value, True))

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def action_complete(self) -> None:
        if self.value.startswith(COMMAND):
            completions = self._complete(self.value[1:])
            if completions:
                self.value = COMMAND + completions[0]
                self.cursor_position = len(self.value)
