"""Files that survive a power cut: what is in them, and that they are there.

`fsync` of a file keeps its content. Its name is an entry of its folder, which is kept by `fsync` of
the folder; so is a new folder, by its parent. The order matters: content, rename, folder, and only
then may something durable (a commit, an answer) refer to the file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path) -> None:
    """Make a folder and those above it; each new one is durable in its parent."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        sync_folder(one.parent)


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file aside and rename it: at each moment, the old or the whole new one is there."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    aside = Path(name)
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
    sync_folder(path.parent)
