"""A lone escape is known after 35 ms and not after 100.

An escape may be a key, or the first byte of a longer sequence: Textual waits for ESCDELAY, but it
looks at the time only when its wait for input ends, every 100 ms (textual 8.2, where that is a
number in the code). So the first wait after some input is made short. Called by `main`.
"""

from __future__ import annotations

import selectors
from typing import Any, Final

AFTER_INPUT_S: Final = 0.035  # longer than ESCDELAY


class QuickSelector(selectors.SelectSelector):
    _heard = False  # the last wait ended with input

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._heard and timeout is not None:
            timeout = min(timeout, AFTER_INPUT_S)
        events = super().select(timeout)
        self._heard = bool(events)
        return events


class _Selectors:
    """What Textual's driver knows as the module `selectors`."""

    SelectSelector = QuickSelector

    def __getattr__(self, name: str) -> Any:
        return getattr(selectors, name)


def quicken() -> None:
    from textual.drivers import linux_driver

    linux_driver.selectors = _Selectors()  # type: ignore[attr-defined, assignment]
