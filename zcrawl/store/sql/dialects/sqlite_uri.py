"""How a SQLite database that is only read is named to SQLite. Used by the store and by `doctor`."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Literal, TypeAlias

Condition: TypeAlias = Literal["whole", "unreadable", "damaged"]


def quick_check(path: Path) -> tuple[Condition, str]:
    """Whether SQLite can read the database and finds it whole; else what is wrong."""
    try:
        uri = readonly_uri(path)
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:  # it may be as whole as ever
        return "unreadable", str(error)
    except sqlite3.DatabaseError as error:
        return "damaged", str(error)
    return ("whole", "") if verdict == "ok" else ("damaged", str(verdict))


def readonly_uri(path: Path) -> str:
    """A database in WAL mode makes a file beside it even for readers. Where that cannot be, on a
    disk that is full or mounted read-only, it is read as it is: nobody can be writing it."""
    shut = is_full(path) or not os.access(path.absolute().parent, os.W_OK)
    fixed = shut and not _has_wal(path)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if fixed else ''}"


def _has_wal(path: Path) -> bool:
    """Whether commits lie beside the file that are not in it yet."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def is_full(path: Path) -> bool:
    """Whether its disk has no block left: SQLite then calls some of its errors "disk I/O error"."""
    try:
        return os.statvfs(path.absolute().parent).f_bavail == 0
    except OSError:
        return False
