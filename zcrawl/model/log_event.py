"""A log event: its name, its text for people, and what programs know of it, as fields.

Nothing is read out of the text: whoever logs about a run says which. Everything that logs is
given a `Log`; `telemetry.logs.files` has the real one.
"""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    def __call__(self, name: str, detail: str, *, run: int = 0) -> object:
        """Write an event. `run`: the run that it is about, 0 if about none."""
