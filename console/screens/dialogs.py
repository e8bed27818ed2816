"""Dialogs over a page: a question before something is changed, and the line to type on.

The app pushes them in the handler of the key itself, and `keyboard` holds all further keys until
the dialog has the focus; so no key of a burst reaches the page behind. Their keys call back at
once, before the next key is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.suggester import Suggester
from textual.widgets import Button, Input, OptionList

from console.drawing.lines import Picture
from console.keyboard import DialogScreen
from console.widgets.painted import Painted


class ConfirmDialog(DialogScreen):
    """A question. Enter presses the button that has the focus: no, if something would be lost.

    A yes does not count if it was typed before the question was on the screen, or right before or
    after other keys: it may be part of a word that was meant for another place.
    """

    KEEPS_EARLY_KEYS = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
        Binding("enter", "press", "press the button", priority=True, show=False),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]

    AUTO_FOCUS = ""

    def __init__(
        self,
        title: str,
        question: Picture,
        answer: Callable[[bool], None],
        *,
        destructive: bool,
        ready: bool = True,
    ) -> None:
        super().__init__()
        self._title, self._question, self._answer = title, question, answer
        self._destructive, self._ready = destructive, ready

    def compose(self) -> ComposeResult:
        """The question and two buttons."""
        with Vertical(classes="box") as box:
            box.border_title = self._title
            yield Painted(id="question")
            with Horizontal(classes="buttons"):
                yield Button("y: yes", id="yes", disabled=not self._ready)
                yield Button("n: no", id="no")

    def on_mount(self) -> None:
        """Show the question, and put the focus on the answer that does no harm."""
        if not self.query("#no"):  # closed before it opened
            return
        self.ask(self._question, self._ready)
        yes = self.query_one("#yes", Button)
        yes.variant = "error" if self._destructive else "primary"
        safe = self._destructive or not self._ready
        self.set_focus(self.query_one("#no", Button) if safe else yes)

    def ask(self, question: Picture, ready: bool) -> None:
        """Show this question; it can be answered with yes once it is `ready`."""
        self._question, self._ready = question, ready
        if not self.query("#no"):  # it opens: `on_mount` shows it
            return
        painted = self.query_one("#question", Painted)
        painted.styles.height = len(question)
        painted.paint(question)
        self.query_one("#yes", Button).disabled = not ready

    def agrees(self, event: events.Key) -> bool:
        """Return whether this key says yes."""
        if event.key == "enter":
            return self.focused is not None and self.focused.id == "yes"
        return event.key == "y"

    def explain_quiet(self) -> None:
        """Say that the yes did not count."""
        for box in self.query(".box"):
            box.border_subtitle = "not counted: press y alone"

    def action_press(self) -> None:
        """Press the button that has the focus."""
        self.action_answer(self.focused is not None and self.focused.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Close; then say what the answer was."""
        if (yes and not self._ready) or not self.is_current:
            return
        self.dismiss()
        self._answer(yes)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A click."""
        event.stop()
        self.action_answer(event.button.id == "yes")


class ChoiceDialog(DialogScreen):
    """One of a few things to choose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "leave"),
        Binding("enter", "choose", "choose", priority=True),
    ]
    AUTO_FOCUS = "#choices"

    def __init__(self, title: str, labels: list[str], choose: Callable[[int], None]) -> None:
        super().__init__()
        self._title, self._labels, self._choose = title, labels, choose

    def compose(self) -> ComposeResult:
        """A list."""
        choices = OptionList(*(Content(label) for label in self._labels), id="choices")
        choices.border_title = self._title
        choices.add_class("box")
        yield choices

    def action_choose(self) -> None:
        """Close; then say which it was."""
        index = self.query_one(OptionList).highlighted
        self.dismiss()
        if index is not None:
            self._choose(index)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click."""
        event.stop()
        self.dismiss()
        self._choose(event.option_index)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss()


class Completer(Suggester):
    """Suggests the first command line that begins with what was typed."""

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        """The whole line, if there is one."""
        completions = self._complete(value) if value else []
        return completions[0] if completions else None


class PromptDialog(DialogScreen):
    """A line at the bottom where a command or a filter is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave", priority=True),
        Binding("enter", "accept", "accept", priority=True),
        Binding("tab", "complete", "complete", priority=True),
    ]
    AUTO_FOCUS = "#prompt"

    def __init__(
        self,
        label: str,
        value: str = "",
        *,
        accept: Callable[[str], None],
        typed: Callable[[str], None] = lambda text: None,
        leave: Callable[[], None] = lambda: None,
        complete: Callable[[str], list[str]] = lambda text: [],
    ) -> None:
        super().__init__()
        self._label, self._value = label, value
        self._accept, self._typed, self._leave, self._complete = accept, typed, leave, complete

    def compose(self) -> ComposeResult:
        """One input with a border that says what it is for."""
        prompt = Input(
            self._value,
            id="prompt",
            suggester=Completer(self._complete),
            select_on_focus=True,
        )
        prompt.border_title = self._label
        yield prompt

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what is typed so far."""
        event.stop()
        if self.is_current:
            self._typed(event.value)

    def action_accept(self) -> None:
        """Close; then say what was typed."""
        text = self.query_one(Input).value
        self.dismiss()
        self._accept(text)

    def action_leave(self) -> None:
        """Close without a result."""
        self.dismiss()
        self._leave()

    def action_complete(self) -> None:
        """Take the first line that fits."""
        prompt = self.query_one(Input)
        completions = self._complete(prompt.value)
        if completions:
            prompt.value = completions[0]
            prompt.cursor_position = len(prompt.value)
