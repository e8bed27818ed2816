"""Regular expressions of modules, compiled when they are first used.

A crawl loads 100 of them and uses 40; compiling one takes 0.1 to 1.3 ms, and a start 8 ms for all.
Every module declares its expressions by `lazy_pattern`; those of jobs are `text.expressions`. Pure.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Uncompiled:
    """Becomes the compiled expression, method by method, as they are asked for."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)  # `re` keeps the last 512
        setattr(self, name, value)
        return value


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what has all methods of the compiled expression. Errors in `text` come at first use:
    the tests compile all of them."""
    return cast("re.Pattern[AnyStr]", _Uncompiled(text, flags))
