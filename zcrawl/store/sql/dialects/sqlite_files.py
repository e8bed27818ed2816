"""The files of a SQLite database: open it read-only, check it, and mark its commits.

The mark is a small file next to the database. It says how many commits the database must have at
least. SQLite does not notice when the write-ahead log is missing or emptied, although the newest
commits are then gone; the mark shows it. After each commit, its number (`leaders.commits`) is
written to the mark, and every open of the database compares them first. Invariant: a number in the
mark was committed before.

The mark is written in place, with fsync only every few seconds. A killed process loses nothing of
it, a power cut a few seconds. An older mark is still true; it only detects less. Used by
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
    """Check whether SQLite can read the database and finds no damage; return what is wrong."""
    try:
        uri = readonly_uri(path)
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:  # the file itself may be undamaged
        return "unreadable", str(error)
    except sqlite3.DatabaseError as error:
        return "damaged", str(error)
    return ("whole", "") if verdict == "ok" else ("damaged", str(verdict))


def readonly_uri(path: Path) -> str:
    """Return the URI to open a database read-only.

    In WAL mode even readers create a file next to it. On a disk that is full or read-only this is
    impossible, so the file is opened as immutable: no other process can write it there.
    """
    shut = is_full(path) or not os.access(path.absolute().parent, os.W_OK)
    fixed = shut and not _has_wal(path)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if fixed else ''}"


def _has_wal(path: Path) -> bool:
    """Return whether the write-ahead log has commits that are not in the file yet."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def is_full(path: Path) -> bool:
    """Return whether the disk is full; SQLite then reports some errors as "disk I/O error"."""
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
    """The mark, written by the one process that writes to the database."""

    def __init__(self, database: Path) -> None:
        self._path = mark_path(database)
        self._file = -1
        self._synced_at = 0.0  # monotonic

    def write(self, commits: int) -> None:
        """Write the number of a durable commit. OSError if that fails."""
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
            with contextlib.suppress(OSError):  # an older mark is also true
                self._sync()
            os.close(self._file)
            self._file = -1

    def _sync(self) -> None:
        os.fdatasync(self._file)
        self._synced_at = time.monotonic()


def check_mark(database: Path) -> None:
    """Raise StoreCorrupt if the database lacks commits that were made to it.

    A folder without a mark is accepted. Other damage is reported when the database is opened."""
    marked = _read(mark_path(database))  # before the database, because a leader may commit now
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
        f"remove {mark_path(database)} to continue with this database (later pages and items are "
        f"lost; output files may still have them); or move all {database.name}* files away to "
        "start with an empty database",
        code=STORE_LOST,
    )


def _commits_in(database: Path) -> int | None:
    """Return how many commits the database has; None if it cannot be read."""
    try:
        uri = readonly_uri(database)
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as opened:
            row = opened.execute("SELECT MAX(commits) FROM leaders").fetchone()
    except sqlite3.DatabaseError as error:
        return 0 if str(error).startswith("no such") else None  # a table or column: an old schema
    return int(row[0] or 0)


def _has_bytes(path: Path) -> bool:
    """Return whether a file has anything but zeros at its beginning."""
    try:
        with path.open("rb") as file:
            return any(file.read(32))
    except OSError:
        return False


def _encode(commits: int) -> bytes:
    text = b"zcrawl mark 1 %020d" % commits
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _read(path: Path) -> int | None:
    """Return the number in the mark; None: no mark. A damaged mark still means some commits."""
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
