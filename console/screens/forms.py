"""A form over a page: labelled fields with validators, the reason of a mistake at its field.

It stays open until what it sends is accepted, so a refusal costs nobody what was typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.validation import Integer, Number, Validator
from textual.widget import Widget
from textual.widgets import Button, Input, Label, Select, Static, Switch

from console.keyboard import DialogScreen
from zcrawl.text.terminal import shown


class FormField(NamedTuple):
    """One field: what is typed or chosen, under a label."""

    name: str
    label: str
    kind: str = "text"  # text, rate, count, choice, switch
    value: str = ""
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()  # label, value


class Checked(NamedTuple):
    """What a form would do, and what is wrong with it: field → reason."""

    command: str
    mistakes: dict[str, str]


class FormRefusal(NamedTuple):
    """Why the cluster said no, at which field, and what would work."""

    field: str
    reason: str
    offers: tuple[tuple[str, str], ...] = ()  # the id of a button, its label


def _validators(kind: str) -> list[Validator]:
    if kind == "rate":
        return [Number(minimum=0, failure_description="give a number, 0 or more")]
    if kind == "count":
        return [Integer(minimum=0, failure_description="give a whole number")]
    return []


class FormDialog(DialogScreen):
    """Fields, a line with the command that does the same, and buttons."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave", priority=True),
        Binding("ctrl+s", "send", "send", priority=True),
        Binding("enter", "enter", "send", priority=True, show=False),
    ]
    SEND: ClassVar[str] = "Send"
    AUTO_FOCUS = ""

    def __init__(self, title: str, fields: Sequence[FormField]) -> None:
        super().__init__()
        self._title, self._fields = title, fields
        self._sending = False

    # ------------------------------------------------------------ for the kinds of forms

    def check(self, values: dict[str, str]) -> Checked:
        """Say what would be sent, and what is wrong with it."""
        raise NotImplementedError

    async def send(self, values: dict[str, str], offer: str) -> FormRefusal | None:
        """Send it. `offer`: the button that was pressed after a refusal, or empty."""
        raise NotImplementedError

    def extra(self) -> Iterable[Widget]:
        """Widgets between the fields and the buttons."""
        return ()

    # ------------------------------------------------------------ what is on the screen

    def compose(self) -> ComposeResult:
        """A label, an input and room for a mistake, for each field."""
        with Vertical(classes="box form") as box:
            box.border_title = self._title
            with VerticalScroll(classes="fields", can_focus=False):
                for field in self._fields:
                    with Horizontal(classes="field"):
                        yield Label(field.label, classes="label")
                        yield _widget(field)
                    yield Label("", id=f"mistake-{field.name}", classes="mistake")
            yield from self.extra()
            yield Static("", id="command")
            yield Static("", id="reason", classes="mistake")
            with Horizontal(classes="buttons", id="buttons"):
                yield Button(self.SEND, id="send", variant="primary")
                yield Button("Cancel", id="cancel")

    def on_mount(self) -> None:
        """Say at once what would be sent; mistakes are told when something was typed."""
        self.set_focus(self.query_one(f"#field-{self._fields[0].name}"))
        self._tell(Checked(self.check(self.values).command, {}))

    @property
    def values(self) -> dict[str, str]:
        """What the fields hold now."""
        return {field.name: self._value(field) for field in self._fields}

    def _value(self, field: FormField) -> str:
        widget = self.query_one(f"#field-{field.name}")
        if isinstance(widget, Switch):
            return "true" if widget.value else ""
        if isinstance(widget, Select):
            return str(widget.value) if widget.value is not Select.NULL else ""
        assert isinstance(widget, Input)
        return widget.value

    def _tell(self, checked: Checked) -> None:
        self.query_one("#command", Static).update(Content(shown(checked.command)))
        for field in self._fields:
            self._mistake(field.name, checked.mistakes.get(field.name, ""))
        self.query_one("#reason", Static).update(Content(""))

    def _mistake(self, name: str, reason: str) -> None:
        label = self.query_one(f"#mistake-{name}", Label)
        label.update(Content(shown(reason)))
        label.display = bool(reason)
        self.query_one(f"#field-{name}").set_class(bool(reason), "-mistaken")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Check what was typed; only the field that is being filled in may complain."""
        event.stop()
        self._check_again((event.input.id or "").removeprefix("field-"))

    def on_select_changed(self, event: Select.Changed) -> None:
        """Check again."""
        event.stop()
        self._check_again((event.select.id or "").removeprefix("field-"))

    def on_switch_changed(self, event: Switch.Changed) -> None:
        """Check again."""
        event.stop()
        self._check_again((event.switch.id or "").removeprefix("field-"))

    def _check_again(self, name: str) -> None:
        checked = self.check(self.values)
        here = {field: why for field, why in checked.mistakes.items() if field == name}
        self._tell(Checked(checked.command, here))

    # ------------------------------------------------------------ sending

    def action_enter(self) -> None:
        """Press the button with the focus; open a choice; otherwise send."""
        focused = self.focused
        if isinstance(focused, Button):
            self._pressed(focused.id or "")
        elif isinstance(focused, Select):
            focused.action_show_overlay()
        elif isinstance(focused, Input):
            self.action_send()
        else:
            self._pass_enter()

    def _pass_enter(self) -> None:
        """Let a list that has the focus take the key."""
        select = getattr(self.focused, "action_select", None)
        select_cursor = getattr(self.focused, "action_select_cursor", select)
        if select_cursor is not None:
            select_cursor()

    def action_send(self, offer: str = "") -> None:
        """Check everything; send it, if nothing is wrong."""
        values = self.values
        checked = self.check(values)
        self._tell(checked)
        if checked.mistakes:
            self.query_one(f"#field-{next(iter(checked.mistakes))}").focus()
            return
        if not self._sending:
            self._sending = True
            self.query_one("#send", Button).disabled = True
            self.run_worker(self._send(values, offer))

    async def _send(self, values: dict[str, str], offer: str) -> None:
        # By the app: what is on its way is finished and told, also if the form is closed meanwhile.
        sending = self.app.run_worker(self.send(values, offer), group="act")
        refused = await asyncio.shield(sending.wait())
        self._sending = False
        if not self.is_current:
            return
        if refused is None:
            self.dismiss()
            return
        self.query_one("#send", Button).disabled = False
        if refused.field:
            self._mistake(refused.field, refused.reason)
            self.query_one(f"#field-{refused.field}").focus()
        else:
            self.query_one("#reason", Static).update(Content(shown(refused.reason)))
        buttons = self.query_one("#buttons")
        await buttons.query(".offer").remove()
        offers = [Button(label, id=id, classes="offer") for id, label in refused.offers]
        if offers:
            await buttons.mount(*offers, before="#cancel")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A click."""
        event.stop()
        self._pressed(event.button.id or "")

    def _pressed(self, id: str) -> None:
        if id == "cancel":
            self.action_leave()
        else:
            self.action_send("" if id == "send" else id)

    def action_leave(self) -> None:
        """Close; nothing is sent."""
        self.dismiss()


def _widget(field: FormField) -> Widget:
    id = f"field-{field.name}"
    if field.kind == "switch":
        return Switch(field.value == "true", id=id)
    if field.kind == "choice":
        choices = [(Content(label), value) for label, value in field.choices]
        value = field.value or Select.NULL
        return Select(choices, value=value, id=id, prompt=field.hint or "choose")
    validators = _validators(field.kind)
    restrict = {"rate": r"[0-9.]*", "count": r"[0-9]*"}.get(field.kind)
    return Input(
        field.value,
        placeholder=field.hint,
        id=id,
        validators=validators,
        valid_empty=True,
        restrict=restrict,
        select_on_focus=False,
    )
