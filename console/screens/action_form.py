"""The form of an action that needs values: a rate limit, a target worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from console.actions import LIMITS, Action, ActionField, Values, plan
from console.columns.work import node_rows
from console.screens.forms import Checked, FormDialog, FormField, FormRefusal
from console.state import View
from console.tables import Row, number, text
from console.targets import without_covered

TAKES_HOSTS = ("joining", "idle", "busy")  # states in which the leader gives a worker new hosts
SendValues = Callable[[Values], Awaitable[str]]


class ActionForm(FormDialog):
    """Fields with what is so today; the rows that it is about are in its title."""

    SEND = "Change"

    def __init__(self, action: Action, rows: list[Row], view: View, send: SendValues) -> None:
        targets = without_covered([action.target(row) for row in rows])
        title = f"{action.label.capitalize()}: {targets[0].text}{_more(len(targets))}"
        super().__init__(title, [_field(field, rows, view) for field in action.form])
        self._action, self._rows, self._send_values = action, rows, send

    def check(self, values: dict[str, str]) -> Checked:
        """The command line of the first row and how many more, or the field that is wrong."""
        try:
            requests = plan(self._action, self._rows, values)
        except ValueError as error:
            name = str(error).partition(":")[0]
            names = [field.name for field in self._action.form]
            return Checked("", {name if name in names else names[0]: str(error)})
        return Checked(f"{requests[0].command}{_more(len(requests))}" if requests else "", {})

    async def send(self, values: dict[str, str], offer: str) -> FormRefusal | None:
        """Send one request for each row."""
        refusal = await self._send_values(values)
        if not refusal:
            return None
        names = [field.name for field in self._action.form]
        return FormRefusal(next((n for n in names if n in refusal), names[0]), refusal)


def _more(number: int) -> str:
    return f" and {number - 1:,} more" if number > 1 else ""


def _field(field: ActionField, rows: list[Row], view: View) -> FormField:
    row = rows[0]
    if field.kind == "worker":
        workers = [node for node in node_rows(view) if node["kind"] == "worker"]
        usable = [node for node in workers if text(node, "state") in TAKES_HOSTS]
        choices = tuple(
            (f"{text(node, 'id')}  {text(node, 'state')}", text(node, "id")) for node in usable
        )
        return FormField(field.name, field.label, "choice", hint="choose", choices=choices)
    value = ""
    if field.name in LIMITS and field.name in row and len(rows) == 1:
        value = f"{number(row, field.name):g}"
    return FormField(field.name, field.label, field.kind, value, field.hint)
