"""The whole screen of a View as lines: what `--snapshot` prints, and what the widgets share."""

from __future__ import annotations

from console.lines import Picture, cut
from console.pictures.frame import top_line
from console.pictures.overview import overview
from console.view import View


def body(view: View, cells: int, rows: int) -> Picture:
    return overview(view, cells, rows)


def whole(view: View, cells: int, rows: int) -> Picture:
    lines = [top_line(view, cells), (), *body(view, cells, rows - 2)]
    return [cut(one, cells) for one in lines[:rows]]
