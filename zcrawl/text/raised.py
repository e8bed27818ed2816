"""Describe an exception of user code in one line: its type, message, and the line that raised it.

Called where zcrawl runs user code: spiders, middlewares, parsers, executors. Pure. The line is the
last one in the file that zcrawl called; deeper lines, in a library, follow from it.
"""

from __future__ import annotations

import traceback
from typing import Final

import zcrawl

_OWN: Final = zcrawl.__file__.rpartition("/")[0] + "/"
_LIBRARY: Final = traceback.__file__.rpartition("/")[0] + "/"
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")


def raised_text(error: BaseException) -> str:
    """Return for example `IndexError: list index out of range (sp.py, line 8, in parse)`."""
    message = str(error)
    name = type(error).__name__
    text = f"{name}: {message}" if message else name
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _is_foreign(frame.filename)
    ]
    if not frames:
        return text
    file = frames[0].filename
    last = [frame for frame in frames if frame.filename == file][-1]
    return f"{text} ({file.rpartition('/')[2]}, line {last.lineno}, in {last.name})"


def _is_foreign(filename: str) -> bool:
    """Return whether a file belongs neither to zcrawl nor to Python."""
    if filename.startswith((_OWN, "<frozen ")):
        return False
    return not filename.startswith(_LIBRARY) or any(part in filename for part in _INSTALLED)
