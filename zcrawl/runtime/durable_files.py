"""Files that survive a power cut: what is in them, and that they are there.

`fsync` of a file keeps its content. Its name is an entry of its folder, which is kept by `fsync` of
the folder; so is a new folder, by its parent. The order matters: content, rename, folder, and only
then may something durable (a commit, an answer) refer to the file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable that somebody else has written and closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path, mode: int = 0o777) -> list[Path]:
    """Make a folder and those above it, each durable in its parent; those that were missing."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for one in reversed(missing):
        sync_folder(one.parent)
    return missing


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file aside and rename it: at each moment, the old or the whole new one is there."""
    replace_file(path, data)
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """The same for a caller who syncs the folder: after a power cut the old one may be back."""
    aside = path.with_name(f".new-{os.urandom(8).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what happened before it is what is told
            aside.unlink()
        raise
