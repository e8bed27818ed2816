"""Dialogs over the main screen: help, a question before something is done, a value to type."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from console.lines import Picture, Span, line
from console.widgets.canvas import Canvas


class PictureDialog(ModalScreen[bool]):
    """Shows lines until a key closes it; what does not fit can be scrolled to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "answer(False)", "close"),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("pagedown,space", "scroll(10)", "down", show=False),
        Binding("pageup", "scroll(-10)", "up", show=False),
    ]

    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self._lines = picture
        self._top = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.styles.height = min(len(self._lines) + 2, self.app.size.height - 2)
            yield Canvas("dialog")

    def on_mount(self) -> None:
        self.call_after_refresh(self.action_scroll, 0)

    def on_resize(self) -> None:
        self.call_after_refresh(self.action_scroll, 0)

    def action_scroll(self, by: int) -> None:
        """The last line that is shown says if there are more."""
        canvas = self.query_one("#dialog", Canvas)
        room = canvas.size.height
        self._top = max(0, min(self._top + by, len(self._lines) - room))
        shown = self._lines[self._top : self._top + room]
        left = len(self._lines) - self._top - room
        if left > 0 and shown:
            shown = [*shown[:-1], line(Span(f"  ↓ {left + 1} more lines", "accent"))]
        canvas.show(shown)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class ConfirmDialog(PictureDialog):
    """Does nothing unless `y` is pressed: enter and escape mean no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q,enter", "answer(False)", "no"),
    ]


class AskDialog(ModalScreen[str | None]):
    """One line of text; escape means nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, picture: Picture, value: str = "") -> None:
        super().__init__()
        self._lines, self._value = picture, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.styles.height = min(len(self._lines) + 5, self.app.size.height - 2)
            yield Canvas("dialog")
            yield Input(self._value, id="answer", compact=True)

    def on_mount(self) -> None:
        canvas = self.query_one("#dialog", Canvas)
        canvas.styles.height = len(self._lines)
        canvas.show(self._lines)
        self.query_one("#answer", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)
