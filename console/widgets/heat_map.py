"""The heat map of workers: hundreds on one screen, by load and state; enter opens one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from console.drawing.heat_map import Tile, TileGrid, common_prefix, layout, legend, tile_row
from console.drawing.lines import Span
from console.widgets.panel import Panel
from console.widgets.pointing import Pointing

BELOW = 2  # rows: the legend, and the line about the worker at the cursor or under the mouse


class HeatMap(Panel, Pointing, can_focus=True):
    """Tiles in reading order. The cursor keeps its worker when others come and go."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    HeatMap {
        min-height: 5;
        &:focus { border: round $primary; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1, 0)", "left", show=False),
        Binding("right,l", "step(1, 0)", "right", show=False),
        Binding("up,k", "step(0, -1)", "up", show=False),
        Binding("down,j", "step(0, 1)", "down", show=False),
        Binding("home", "first", "first", show=False),
        Binding("end", "last", "last", show=False),
        Binding("enter", "open", "open"),
    ]

    class WorkerOpened(Message):
        """Enter, or a second click, on a worker."""

        def __init__(self, heat_map: HeatMap, worker: str) -> None:
            super().__init__()
            self.heat_map, self.worker = heat_map, worker

        @property
        def control(self) -> HeatMap:
            """The widget that sent it."""
            return self.heat_map

    class WorkerHighlighted(WorkerOpened):
        """The cursor is on another worker."""

    def __init__(
        self, title: str = "Workers", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(title, id=id, classes=classes)
        self._tiles: tuple[Tile, ...] = ()
        self._given: Sequence[Tile] | None = None  # an equal list need not be drawn again
        self._total = 0
        self._cursor = ""
        self._layout = TileGrid(1, 2, 0)

    def show(self, tiles: Sequence[Tile], total: int = 0) -> None:
        """Show these workers; `total` counts also those that the leader does not send."""
        if tiles is self._given and total == self._total:
            return
        self._given, self._tiles, self._total = tiles, tuple(tiles), total
        self.draw()

    @property
    def cursor(self) -> int:
        """The index of the worker at the cursor; -1 when there is none."""
        ids = [tile.id for tile in self._tiles]
        return ids.index(self._cursor) if self._cursor in ids else min(0, len(ids) - 1)

    def draw(self) -> None:
        """Paint the tiles, the legend and the line about one worker."""
        cells, rows = self.content_size
        self._layout = layout(len(self._tiles), cells, rows - BELOW)
        prefix = common_prefix([tile.name for tile in self._tiles])
        cursor = self.cursor if self.has_focus else -1
        used = -(-self._layout.shown // self._layout.columns)
        picture = [
            tile_row(self._tiles, row, self._layout, prefix, cursor, self.hover)
            for row in range(used)
        ]
        picture += [()] * (rows - BELOW - len(picture))
        about = self.hover if 0 <= self.hover < len(self._tiles) else cursor
        picture.append(legend(self._tiles, max(self._total, len(self._tiles)), cells))
        picture.append((Span(" " + self._tiles[about].detail),) if about >= 0 else ())
        if not self._tiles:
            picture[0] = (Span(" no workers: start one with zcrawl worker", "bad"),)
        self.paint(picture)

    # ------------------------------------------------------------ cursor

    def _put(self, index: int) -> None:
        if 0 <= index < self._layout.shown:
            self._cursor = self._tiles[index].id
            self.post_message(self.WorkerHighlighted(self, self._cursor))
            self.draw()

    def action_step(self, right: int, down: int) -> None:
        """Move the cursor by tiles."""
        self._put(self.cursor + right + down * self._layout.columns)

    def action_first(self) -> None:
        """Move the cursor to the first worker."""
        self._put(0)

    def action_last(self) -> None:
        """Move the cursor to the last worker."""
        self._put(self._layout.shown - 1)

    def action_open(self) -> None:
        """Ask for the page of the worker at the cursor."""
        if self._tiles:
            self.post_message(self.WorkerOpened(self, self._tiles[self.cursor].id))

    # ------------------------------------------------------------ mouse

    def index_at(self, x: int, y: int) -> int:
        """Return the tile at a cell."""
        index = self._layout.index_at(x, y)
        return -1 if index is None else index

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a worker; a second click opens it."""
        index = self.index_under(event)
        if index >= 0:
            self._put(index)
            if event.chain == 2:
                self.action_open()
