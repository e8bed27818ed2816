"""Store blobs in a folder, named by the SHA-256 of their content, so equal bodies are stored once.

Used by workers for bodies that a job keeps, and by readers of these bodies. A blob is written to a
temporary file and renamed, so an existing name is complete, also after a crash. `put` returns when
the blob survives a power cut (content, name and new folders are on the disk), because the result
that refers to it is committed next. Several threads may call it: file systems combine syncs at the
same time.
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
MOST_REMEMBERED = 50_000  # names that are known to be on the disk


class FileBlobs:
    """Blobs in two levels of folders with 256 entries each, so that no folder becomes too large."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._durable: dict[str, None] = {}  # names of blobs and folders that are on the disk

    def put(self, data: bytes) -> str:
        """Store a blob; return its name. A repeat writes nothing."""
        name = hashlib.sha256(data).hexdigest()
        path = self.path(name)
        try:
            if path.exists():
                if name in self._durable:
                    return name
                # Another process may have written it just now, and not synced it yet.
            else:
                make_durable_folder(self._folder)
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, data)
            self._sync_names(path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{self._folder}: {error.strerror}") from error
            raise StoreUnavailable(f"cannot write a blob in {path.parent}: {error}") from error
        if len(self._durable) >= MOST_REMEMBERED:
            self._durable.clear()
        self._durable[name] = None
        return name

    def _sync_names(self, path: Path) -> None:
        """Make the name of the blob durable, and those of its folders unless they are already."""
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
            raise StoreCorrupt(
                f"the blob {path} is damaged: its content does not match its name; remove it"
            )
        return data

    def _check_place(self) -> None:
        """Raise StoreUnavailable if the whole folder is missing or empty: then the blob is not
        lost."""
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
        """Return the path of a blob. Invalid names are refused, so none can lead out of the
        folder."""
        if len(name) != NAME_LENGTH or set(name) - set("0123456789abcdef"):
            raise StoreError(f"{name!r} is not the name of a blob", code=BAD_BLOB_NAME)
        return self._folder / name[:2] / name[2:4] / name
