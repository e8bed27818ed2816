"""How something is done: ask, send one request for each row, tell what became of it.

Called by `app` in the handler of the key, so that no further key reaches the page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from console.actions import (
    Action,
    ActionRequest,
    Gather,
    PlannedChange,
    Values,
    changes,
    may_do,
    plan,
    result_text,
    typed_values,
)
from console.drawing.lines import Picture, Span
from console.drawing.question import question_lines, question_title
from console.plain import plain
from console.screens.action_form import ActionForm
from console.screens.dialogs import ConfirmDialog
from console.screens.submit import SubmitForm
from console.state import Say, rows_of
from console.tables import Row
from zcrawl.errors import ZcrawlError

if TYPE_CHECKING:
    from console.app import ConsoleApp

PAGE_ROWS = 500  # the most that a leader gives at once
MOST_GATHERED = 10_000


class ClusterLine(NamedTuple):
    """The way to the cluster that was on the screen when something was begun: whichever is looked
    at meanwhile, the rest of it goes there too."""

    ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    flags: str  # what a command line needs to mean this cluster


class Acting:
    """Asks, and does it after a yes."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app

    def _say(self, text: str, style: str = "") -> None:
        self._app.feed_event(Say(text, style))

    def refuses(self, action: Action | None = None) -> bool:
        """Whether nothing may be changed from here, or not by this action; the reason is told."""
        view = self._app.view
        if view.may_act and action is not None and not may_do(view, action):
            self._say(
                f"cannot {action.label}: the key of this console has the role {view.role!r}, which "
                "may change its own jobs only. Nothing was changed.",
                "warn",
            )
            return True
        if view.may_act:
            return False
        if view.readonly:
            why = "this console was started with --readonly, or shows a recording"
        else:
            why = f"the key of this console has the role {view.role!r}, which may only watch"
        self._say(f"read-only: {why}. Nothing was changed.", "warn")
        return True

    # ------------------------------------------------------------ asking

    def begin(self, action: Action, rows: list[Row], typed: str = "") -> None:
        """Open the dialog or the form of an action, at once."""
        if self.refuses(action):
            return
        line = self._app.line()
        if action.gather is not None:
            self._ask_about_all(action, action.gather, line)
            return
        if not rows and action.name != "step_down":
            self._say(f"no row to {action.label}", "warn")
            return
        if action.name == "step_down":
            rows = [self._leader_row()]
        if action.form and not typed:
            fitting = [row for row in rows if action.fits(row)]
            if not fitting:
                self._say(f"cannot {action.label}: {_states(rows)}", "warn")
                return
            form = ActionForm(
                action, fitting, self._app.view, lambda v: self._send_form(action, fitting, v, line)
            )
            self._app.push_screen(form)
            return
        try:
            values = typed_values(action, typed) if typed else {}
            planned = changes(action, rows, values)
        except ValueError as error:
            self._say(str(error), "bad")
            return
        if not planned:
            self._say(f"cannot {action.label}: {_states(rows)}", "warn")
            return
        self._confirm(action, planned, _misfits(action, rows), line)

    def _leader_row(self) -> Row:
        """The leader that is on the screen, and the epoch that is to end."""
        snapshot = self._app.view.content.snapshot
        if snapshot is None:
            return {"leader": "unknown", "epoch": 0}
        return {"leader": snapshot.leader, "epoch": snapshot.epoch}

    def _confirm(
        self, action: Action, planned: list[PlannedChange], left_out: int, line: ClusterLine
    ) -> None:
        def answer(yes: bool) -> None:
            if yes:
                self._app.do(self._perform_all(action, planned, left_out, line))
            else:
                self._say("nothing was changed")

        dialog = ConfirmDialog(
            question_title(planned),
            question_lines(action, planned, left_out),
            answer,
            destructive=action.destructive,
        )
        self._app.push_screen(dialog)

    def _ask_about_all(self, action: Action, gather: Gather, line: ClusterLine) -> None:
        """Open the dialog now; count what it is about while it is open."""
        gathered: list[PlannedChange] = []

        def answer(yes: bool) -> None:
            if yes:
                self._app.do(self._perform_all(action, gathered, 0, line))
            else:
                self._say("nothing was changed")

        waiting: Picture = [(Span("  counting what matches …", "dim"),)]
        title = f"{action.label.capitalize()}?"
        dialog = ConfirmDialog(title, waiting, answer, destructive=action.destructive, ready=False)
        self._app.push_screen(dialog)

        async def count() -> None:
            rows = await self._gathered(gather, line)
            if not dialog.is_current:
                return
            if not rows:
                dialog.dismiss()
                if rows is not None:  # else it was told why they cannot be had
                    self._say("nothing to retry", "warn")
                return
            gathered.extend(changes(action, rows))
            dialog.ask(question_lines(action, gathered, 0), ready=True)

        self._app.do(count())

    async def _gathered(self, gather: Gather, line: ClusterLine) -> list[Row] | None:
        """All rows that match, also those that are not on the screen; None if they cannot be had,
        which is told."""
        op, args = gather(self._app.view)
        rows: list[Row] = []
        try:
            while len(rows) < MOST_GATHERED:
                page = await line.ask(op, {**args, "offset": len(rows), "limit": PAGE_ROWS})
                page_rows = rows_of(page)
                rows += page_rows
                if len(page_rows) < PAGE_ROWS:
                    break
        except ZcrawlError as error:
            self._say(f"{error} [{error.code}]", "bad")
            return None
        return rows

    # ------------------------------------------------------------ doing

    async def _perform_all(
        self, action: Action, planned: list[PlannedChange], left_out: int, line: ClusterLine
    ) -> None:
        done = [await self._perform(change.request, line) == "" for change in planned]
        if len(done) + left_out > 1:
            counts = {"done": sum(done), "refused": done.count(False), "left out": left_out}
            summary = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
            style = "good" if all(done) and not left_out else "warn"
            self._say(f"{action.label}: {summary}; the log has each", style)

    async def _perform(self, request: ActionRequest, line: ClusterLine) -> str:
        """Send it, and tell what became of it. Return why it was refused; empty: it was done."""
        refusal = ""
        try:
            reply = await line.ask(request.op, request.args)
            result = result_text(request, reply)
        except ZcrawlError as error:
            result = refusal = f"{error} [{error.code}]"
        command = f"{request.command} {line.flags}".strip()
        self._app.acted(plain(command), plain(result), not refusal)
        return refusal

    async def _send_form(
        self, action: Action, rows: list[Row], values: Values, line: ClusterLine
    ) -> str:
        """What the form of an action sends. Return why it was refused."""
        refusals = [await self._perform(request, line) for request in plan(action, rows, values)]
        return "; ".join(refusal for refusal in refusals if refusal)

    def submit(self, sources: str = "") -> None:
        """Open the form for a new job."""
        if self.refuses():
            return
        line = self._app.line()

        async def send(request: ActionRequest) -> dict[str, Any]:
            """Send it; ZcrawlError is the form's matter, and told here too."""
            command = plain(f"{request.command} {line.flags}".strip())
            try:
                reply = await line.ask(request.op, request.args)
            except ZcrawlError as error:
                self._app.acted(command, plain(f"{error} [{error.code}]"), False)
                raise
            self._app.acted(command, plain(result_text(request, reply)), True)
            return reply

        self._app.push_screen(SubmitForm(sources, send))


def _misfits(action: Action, rows: list[Row]) -> int:
    return len([row for row in rows if not action.fits(row)])


def _states(rows: list[Row]) -> str:
    """Why an action fits none of these rows, as far as their state says it."""
    states = sorted({plain(row["state"], 20) for row in rows if row.get("state")})
    return f"state {', '.join(states)}" if states else "it does not apply here"
