"""What the app needs of a line to a cluster. Backends: `feed.mesh` (live) and `feed.replay`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from console.state import ConsoleEvent

Emit: TypeAlias = Callable[[ConsoleEvent], None]


class Feed(Protocol):
    async def watch(self, emit: Emit) -> None:
        """Hand over what is heard, for as long as it is not cancelled."""
        ...

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """A master's answer. ZcrawlError for a refusal, or when nobody answers."""
        ...
