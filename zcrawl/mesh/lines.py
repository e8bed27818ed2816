"""LINES: what a worker, or a master that does not lead, has logged; for those who watch.

Nothing is decided by it, and nothing of it is sent again. A part of the closed union `messages`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

LINE_TEXT_MOST = 500
LINES_MOST = 100


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One event of a process's log."""

    ago_s: Annotated[float, Meta(ge=0, le=100_000)]
    level: Annotated[str, Meta(max_length=20)]
    name: Annotated[str, Meta(max_length=100)]
    text: Annotated[str, Meta(max_length=LINE_TEXT_MOST)]


class Lines(msgspec.Struct, frozen=True, array_like=True):
    lines: Annotated[list[Line], Meta(max_length=LINES_MOST)]
    left_out: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
