"""What widgets share in which something is under the mouse or at a cursor."""

from __future__ import annotations

from textual import events

from console.widgets.painted import Painted


class Pointing(Painted):
    """Draws again when the focus, the size or the thing under the mouse changes.

    A widget says what is at a cell (`index_at`) and draws itself (`draw`).
    """

    hover = -1  # the index under the mouse; -1 for none

    def draw(self) -> None:
        """Paint all of it, with the cursor and what is under the mouse."""
        raise NotImplementedError

    def index_at(self, x: int, y: int) -> int:
        """Return the index at a cell of the content; -1 for none."""
        raise NotImplementedError

    def index_under(self, event: events.MouseEvent) -> int:
        """Return the index under the mouse; -1 for none."""
        inside = event.get_content_offset(self)
        return self.index_at(inside.x, inside.y) if inside is not None else -1

    def _point_at(self, index: int) -> None:
        if index != self.hover:
            self.hover = index
            self.draw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show what a click would be about."""
        self._point_at(self.index_under(event))

    def on_leave(self) -> None:
        """Forget what was under the mouse."""
        self._point_at(-1)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.draw()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.draw()
