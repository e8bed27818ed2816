"""What a machine wants counted and logged.

The machines of masters and workers return it among their effects; their loops count and log it.
"""

from __future__ import annotations

import msgspec


class Note(msgspec.Struct, frozen=True):
    """A counter and a log event."""

    name: str
    detail: str = ""
    run: int = 0  # that it is about; 0: about none
