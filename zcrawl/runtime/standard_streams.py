"""Make sure that standard input, output and error exist. Every command calls this first.

A shell can start a program with some of them closed (`zcrawl jobs >&-`). Then Python has None for
them, and worse, the next file or socket gets the free number: a library that writes to number 2
writes into a database, and libuv aborts. So what is missing is opened on /dev/null.
"""

from __future__ import annotations

import os
import sys
from typing import Final

NUMBERS: Final = (0, 1, 2)


def open_missing() -> None:
    for number in NUMBERS:
        try:
            os.fstat(number)
        except OSError:  # closed: the lowest free number is this one
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - for the whole run
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
