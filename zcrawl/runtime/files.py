"""Files that survive a power cut, and that only their own user can read.

**Durable.** `fsync` of a file keeps its content. Its name is an entry of its folder, which is kept
by `fsync` of the folder; so is a new folder, by its parent. The order matters: content, rename,
folder, and only then may something durable (a commit, an answer) refer to the file.

**Private.** What zcrawl makes is for its own user, what a user names is the user's. The rule is the
process's umask: every process of zcrawl sets 077 first of all (`keep_private`), so no file or
folder of it can come to be readable by others, whichever library makes it: database, logs, bodies,
outputs in the data folder, temporary files, recordings. Children (workers, spiders, Chromium)
inherit it.

A file that a user names outside the data folder (`--out`, `init`) is made the same way and then
gets the mode that the user's own umask gives (`give_to_user`). That is one chmod of one file; to
change the umask for a moment would open whatever other threads make meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable that other code has written and closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path, mode: int = 0o777) -> list[Path]:
    """Create a folder and its parents, each durable; return those that were missing."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)
    return missing


def replace_durably(path: Path, data: bytes, like: os.stat_result | None = None) -> None:
    """Write a temporary file and rename it, so that always the old or the whole new one exists."""
    replace_file(path, data, like)
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes, like: os.stat_result | None = None) -> None:
    """Replace a file without syncing its folder; after a power cut the old one may be back.

    `like`: give the new file the mode, user and group of this one; without it, only this user may
    read it.
    """
    aside = path.with_name(f".new-{os.urandom(8).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what happened before it is what is told
            aside.unlink()
        raise


PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_UMASK: Final = 0o077
_OTHERS: Final = 0o077  # the bits of a mode that let others in

_users_umask: int | None = None  # None: `keep_private` was not called, so files are the user's


def keep_private() -> None:
    """Make all files that this process creates from now on unreadable for other users."""
    global _users_umask
    before = os.umask(_UMASK)
    if _users_umask is None:
        _users_umask = before


def give_to_user(path: Path) -> None:
    """Give a new file or folder, which the user named, the mode of the user's umask."""
    if _users_umask is not None:
        whole = 0o777 if path.is_dir() else 0o666
        path.chmod(whole & ~_users_umask)


def users_file_mode() -> int | None:
    """Return the mode of a new file that the user named; None: the default is already right."""
    return None if _users_umask is None else 0o666 & ~_users_umask


def make_folder_of_user(folder: Path) -> None:
    """Make a folder for a file that the user named, and those above it."""
    for new_folder in make_durable_folder(folder):
        give_to_user(new_folder)


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is inside a folder, with links and `..` resolved."""
    return path.resolve().is_relative_to(folder.resolve())


def make_private_folder(folder: Path) -> str:
    """Create the folder if it is missing; return a warning if other users can read it, else ''."""
    make_durable_folder(folder, PRIVATE_FOLDER)
    return folder_warning(folder)


def folder_warning(folder: Path) -> str:
    """Return a warning about the owner or the mode of this folder; '' if both are right."""
    status = folder.stat()
    if status.st_uid != os.geteuid():
        return (
            f"the data folder {folder} belongs to another user (uid {status.st_uid}), who can "
            "read and replace what is kept there; use a folder of your own"
        )
    if status.st_mode & _OTHERS:
        return (
            f"the data folder {folder} is open to other users (mode "
            f"{stat.S_IMODE(status.st_mode):o}); to close it: chmod 700 {folder}"
        )
    return ""


def tighten(paths: Iterable[Path]) -> None:
    """Remove the rights of other users from files that belong to this user."""
    for path in paths:
        with contextlib.suppress(OSError):  # there is none, or its disk knows no modes
            status = path.lstat()
            ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if ours and status.st_mode & _OTHERS:
                path.chmod(PRIVATE_FILE)
