"""The bar of a replay: where it is, how fast; a click goes to another position."""

from __future__ import annotations

from textual import events
from textual.message import Message

from console.drawing.replay import replay_line
from console.state import View
from console.widgets.painted import Painted


class ReplayBar(Painted):
    """One line above the footer; not there while a cluster is watched live."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    ReplayBar { height: 1; display: none; background: $panel; }
    ReplayBar.-shown { display: block; }
    """

    class PositionChosen(Message):
        """A click on the bar."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.share = share

    def __init__(self) -> None:
        super().__init__()
        self._first, self._cells = 0, 0  # where the bar itself is, in the line

    def show(self, view: View) -> None:
        """Show the position, if this is a recording."""
        self.set_class(view.replay is not None, "-shown")
        if view.replay is not None:
            drawn = replay_line(view.replay, self.size.width or 80)
            self._first, self._cells = drawn.first, drawn.cells
            self.paint([drawn.line])

    def on_click(self, event: events.Click) -> None:
        """Go to the position under the mouse."""
        if self._cells and self._first <= event.x < self._first + self._cells:
            share = (event.x - self._first) / max(1, self._cells - 1)
            self.post_message(self.PositionChosen(share))
