"""What is asked of the cluster for the page on the screen, and when again.

`console.questions` says what a page needs; here is when each question is due: its answer is old, or
was to something else. Called by `app`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from console.feed.ports import Feed
from console.questions import Question, questions
from console.state import Answered, View
from zcrawl.errors import ZcrawlError

SLOTS_KEPT: Final = 100
REFUSED_AGAIN_S: Final = 10.0


class Asking:
    """The questions that are out, and when each was asked last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._out: set[str] = set()
        self._last: dict[str, tuple[dict[str, Any], float]] = {}  # slot → arguments, time

    def due(self, view: View) -> list[Question]:
        """Return the questions that are to be asked now. Each counts as asked."""
        now = self._clock()
        if len(self._last) > SLOTS_KEPT:  # of places that were left: they are asked anew
            self._last.clear()
        due = [question for question in questions(view) if self._is_due(question, view, now)]
        for question in due:
            self._out.add(question.slot)
            self._last[question.slot] = (question.args, now)
        return due

    def _is_due(self, question: Question, view: View, now: float) -> bool:
        args, at = self._last.get(question.slot, ({}, float("-inf")))
        answer = view.live.answers.get(question.slot)
        if answer is not None and view.replay is not None:
            return False  # a recording has what it has
        # After a refusal ask more rarely: each refusal is a line in the leader's log.
        refused = answer is not None and answer.error
        every_s = max(REFUSED_AGAIN_S, question.every_s) if refused else question.every_s
        return question.slot not in self._out and (args != question.args or now - at >= every_s)

    async def answer(self, feed: Feed, question: Question) -> Answered:
        """Ask, and return what was said or why nothing was."""
        try:
            data = await feed.ask(question.op, question.args)
            answered = Answered(question.slot, data, self._clock())
        except ZcrawlError as error:
            answered = Answered(question.slot, {}, self._clock(), str(error))
        self._out.discard(question.slot)
        return answered

    def again(self, slot: str) -> None:
        """Ask this with the next question: an action has changed it, or was refused because the
        answer is old."""
        self._last.pop(slot, None)

    def forget(self) -> None:
        """Ask all of it anew: another cluster is watched."""
        self._last.clear()
        self._out.clear()
