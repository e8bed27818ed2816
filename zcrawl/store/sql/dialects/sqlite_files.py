"""The files of a SQLite database: how it is opened for reading, checked and marked.

How a SQLite database that is only read is named to SQLite. Used by the store and by `doctor`.

A mark beside a SQLite database: how many commits the database must hold at least.

SQLite takes a database whose write-ahead log is missing or emptied for a whole one: the newest
commits are gone, and nothing says so. The mark says it. After each commit its number
(`leaders.commits`) is written here, so the mark is never ahead of the database; whoever opens the
database compares them first. Invariant: a number in the mark was committed before.

The file is written in place, without fsync except every few seconds: a process that is killed loses
none of it, a power cut a few seconds, and an older mark is as true, it only shows less. Used by
`sql.store.open_sqlite`, `roles.offline` and `doctor`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from pathlib import Path
from typing import Final, Literal, TypeAlias

from zcrawl.errors import StoreCorrupt, StoreUnavailable
from zcrawl.model.reasons.storage import STORE_LOST
from zcrawl.runtime.files import PRIVATE_FILE, sync_folder

FileCondition: TypeAlias = Literal["whole", "unreadable", "damaged"]


def quick_check(path: Path) -> tuple[FileCondition, str]:
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


SUFFIX: Final = "-mark"
SYNC_EVERY_S: Final = 5.0
BUSY_TIMEOUT_S: Final = 5.0


def mark_path(database: Path) -> Path:
    return database.with_name(database.name + SUFFIX)


class CommitMark:
    """Written by the one process that writes to the database."""

    def __init__(self, database: Path) -> None:
        self._path = mark_path(database)
        self._file = -1
        self._synced_at = 0.0  # monotonic

    def write(self, commits: int) -> None:
        """Note a commit that is durable. OSError if that cannot be."""
        if self._file < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, PRIVATE_FILE)
            os.pwrite(self._file, _encode(commits), 0)
            os.fsync(self._file)
            sync_folder(self._path.parent)
            self._synced_at = time.monotonic()
            return
        os.pwrite(self._file, _encode(commits), 0)
        if time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self._sync()

    def close(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):  # an older mark is true as well
                self._sync()
            os.close(self._file)
            self._file = -1

    def _sync(self) -> None:
        os.fdatasync(self._file)
        self._synced_at = time.monotonic()


def check_mark(database: Path) -> None:
    """Raise StoreCorrupt if the database lacks commits that were made to it.

    A folder without a mark is taken as it is. What else is wrong with the database is told by
    whoever opens it."""
    marked = _read(mark_path(database))  # first: meanwhile a leader may go on
    if marked is None:
        return
    try:
        size = database.stat().st_size
    except FileNotFoundError:
        raise _lost(database, "is missing, but crawls were started in this folder") from None
    except OSError as error:
        raise StoreUnavailable(f"{database}: {error.strerror}") from error
    if size == 0 and not _has_bytes(database.with_name(database.name + "-wal")):
        raise _lost(database, "is empty, but crawls were started in this folder")
    stored = _commits_in(database)
    if stored is not None and stored < marked:
        raise _lost(database, f"lacks {marked - stored} of the {marked} commits made to it")


def _lost(database: Path, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{database} {what}: it or its -wal file was removed, emptied or replaced by an older "
        f"copy. Restore {database.name} and {database.name}-wal together, from the same moment; or "
        f"remove {mark_path(database)} to go on with what is there (later pages and items are lost "
        f"from it; output files may still hold them); or move all {database.name}* files away to "
        "start anew",
        code=STORE_LOST,
    )


def _commits_in(database: Path) -> int | None:
    """How many commits it holds; None if it cannot be read, which its opening will explain."""
    try:
        uri = readonly_uri(database)
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as opened:
            row = opened.execute("SELECT MAX(commits) FROM leaders").fetchone()
    except sqlite3.DatabaseError as error:
        return 0 if str(error).startswith("no such") else None  # a table or column: an old schema
    return int(row[0] or 0)


def _has_bytes(path: Path) -> bool:
    """Whether a file holds anything but zeros at its beginning."""
    try:
        with path.open("rb") as file:
            return any(file.read(32))
    except OSError:
        return False


def _encode(commits: int) -> bytes:
    text = b"zcrawl mark 1 %020d" % commits
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _read(path: Path) -> int | None:
    """None: there is no mark. A damaged one still says that there were commits."""
    try:
        text, _, crc = path.read_bytes().rstrip(b"\n").rpartition(b" ")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    with contextlib.suppress(ValueError):
        if int(crc, 16) == zlib.crc32(text):
            return int(text.rpartition(b" ")[2])
    return 1
