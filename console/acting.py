"""How something is done: what must be typed is asked for, what cannot be undone is confirmed, it is
sent, one request for each row, and what became of it is told. Called by `app`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from console.actions import Action, ActionRequest, Gather, plan, result_text
from console.lines import Picture, Span, title
from console.lines import line as spans
from console.plain import plain
from console.screens.dialogs import AskDialog, ConfirmDialog
from console.screens.submit import Form, SubmitScreen
from console.state import Say, rows_of
from console.tables import Row
from zcrawl.errors import ZcrawlError

if TYPE_CHECKING:
    from console.app import ConsoleApp

MOST_TARGETS = 12  # lines of a question; the rest is counted
PAGE_ROWS = 500  # the most that a leader gives at once
MOST_GATHERED = 10_000


class ClusterLine(NamedTuple):
    """The way to the cluster that was on the screen when something was begun: whichever is looked
    at meanwhile, the rest of it goes there too."""

    ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    flags: str  # what a command line needs to mean this cluster


class Acting:
    def __init__(self, app: ConsoleApp) -> None:
        self._app = app

    def _say(self, text: str, style: str = "") -> None:
        self._app.feed_event(Say(text, style))

    def _is_readonly(self) -> bool:
        view = self._app.view
        if not view.may_act:
            why = "nothing is changed from here" if view.readonly else "this key may only watch"
            self._say(f"read-only: {why}", "bad")
        return not view.may_act

    async def act(self, action: Action, rows: list[Row], typed: str = "") -> None:
        if self._is_readonly():
            return
        line = self._app.line()
        if action.gather is not None:
            gathered_rows = await self._gathered(action.gather, line)
            if gathered_rows is None:
                return
            rows = gathered_rows
        if action.ask and not typed:
            lines: Picture = [
                title(action.label.capitalize(), 80),
                spans(Span(f"  {action.ask}", "dim")),
            ]
            answer = await self._app.push_screen_wait(AskDialog(lines))
            if not answer:
                return
            typed = answer
        try:
            snapshot = self._app.view.known.snapshot
            epoch = snapshot.epoch if snapshot is not None else 0
            requests = plan(action, rows, typed, epoch)
        except ValueError as error:
            self._say(str(error), "bad")
            return
        if not requests:
            self._say(f"nothing here to {action.label}", "warn")
            return
        if action.confirm and not await self._app.push_screen_wait(
            ConfirmDialog(_question(action, requests))
        ):
            self._say("nothing was done")
            return
        done = [await self._perform(request, line) for request in requests]
        left_out = len([row for row in rows if not action.fits(row)])
        if len(done) + left_out > 1:
            counts = {"done": sum(done), "refused": done.count(False), "left out": left_out}
            summary = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
            style = "good" if all(done) and not left_out else "warn"
            self._say(f"{action.label}: {summary}; the log has each", style)

    async def _perform(self, request: ActionRequest, line: ClusterLine) -> bool:
        """Whether it was done; what became of it is told."""
        try:
            reply = await line.ask(request.op, request.args)
            result, ok = result_text(request, reply), True
        except ZcrawlError as error:
            result, ok = f"{error} [{error.code}]", False
        command = f"{request.command} {line.flags}".strip()
        self._app.acted(plain(command), plain(result), ok)
        return ok

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

    async def submit(self, sources: str = "") -> None:
        if self._is_readonly():
            return
        line = self._app.line()
        form: Form | None = await self._app.push_screen_wait(SubmitScreen(sources))
        if form is None or form.submission is None:
            return
        if form.submission.more:
            self._say("more than 1,000 seeds: use zcrawl submit", "bad")
            return
        request = ActionRequest("submit", form.submission.args("new", None), form.command)
        await self._perform(request, line)


def _question(action: Action, requests: list[ActionRequest]) -> Picture:
    lines: Picture = [
        title(f"{action.label.capitalize()}?", 100),
        (),
        *(
            spans(Span(f"  {plain(request.command)}", "bold"))
            for request in requests[:MOST_TARGETS]
        ),
    ]
    if len(requests) > MOST_TARGETS:
        lines.append(spans(Span(f"  and {len(requests) - MOST_TARGETS} more", "dim")))
    return [
        *lines,
        (),
        spans(Span("  y", "accent"), Span(" does it   "), Span("n", "accent"), Span(" does not")),
    ]
