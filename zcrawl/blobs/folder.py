"""Blobs in a folder, named by the SHA-256 of their content: the same body is kept once.

Used by workers for bodies that a job keeps, and by whoever reads them again. A blob is written
aside and renamed, so a name that exists is complete, also after a crash. `put` returns when the
blob survives a power cut: content, name and new folders are on the disk, because the result that
refers to it is committed next. Several threads may call it: file systems write together what is
synced at the same time.
"""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

from zcrawl.errors import DiskFull, StoreCorrupt, StoreError, StoreUnavailable
from zcrawl.model.reasons.storage import BAD_BLOB_NAME, NO_BLOB
from zcrawl.runtime.files import make_durable_folder, replace_file, sync_folder

NAME_LENGTH = 64  # hexadecimal digits
MOST_REMEMBERED = 50_000  # names that need no look at the disk


class FileBlobs:
    """Two levels of folders with 256 entries each, so that no folder grows beyond reason."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._durable: dict[str, None] = {}  # names of blobs and folders that are on the disk

    def put(self, data: bytes) -> str:
        """Keep it; its name. A repeat writes nothing."""
        name = hashlib.sha256(data).hexdigest()
        path = self.path(name)
        try:
            if path.exists():
                if name in self._durable:
                    return name
                # Another process may have made it a moment ago, and not synced it yet.
            else:
                make_durable_folder(self._folder)
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, data)
            self._sync_names(path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{self._folder}: {error.strerror}") from error
            raise StoreUnavailable(f"cannot keep a blob in {path.parent}: {error}") from error
        if len(self._durable) >= MOST_REMEMBERED:
            self._durable.clear()
        self._durable[name] = None
        return name

    def _sync_names(self, path: Path) -> None:
        """The blob's name in its folder; the folders' own, unless this process did so before."""
        sync_folder(path.parent)
        for name, above in ((path.name[:4], path.parent.parent), (path.name[:2], self._folder)):
            if name not in self._durable:
                sync_folder(above)
                self._durable[name] = None

    def get(self, name: str) -> bytes:
        path = self.path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            self._check_place()
            raise StoreError(f"there is no blob {name} in {self._folder}", code=NO_BLOB) from error
        except OSError as error:
            raise StoreUnavailable(f"cannot read {path}: {error}") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise StoreCorrupt(f"the blob {path} does not hold what its name says; remove it")
        return data

    def _check_place(self) -> None:
        """StoreUnavailable if the whole place is away: then no blob is missing for good."""
        try:
            with os.scandir(self._folder) as entries:
                empty = next(entries, None) is None
        except OSError:
            empty = True
        if empty:
            raise StoreUnavailable(
                f"{self._folder} is missing or empty: is its disk mounted? If its bodies are gone "
                "for good, put any file into it, and archives are written without them"
            )

    def path(self, name: str) -> Path:
        """Where a blob lies. A name that is none cannot lead out of the folder."""
        if len(name) != NAME_LENGTH or set(name) - set("0123456789abcdef"):
            raise StoreError(f"{name!r} is no name of a blob", code=BAD_BLOB_NAME)
        return self._folder / name[:2] / name[2:4] / name
