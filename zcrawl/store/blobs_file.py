"""Blobs in a folder, named by the SHA-256 of their content: the same body is kept once.

Used by workers for bodies that a job keeps, and by whoever reads them again. A blob is written
aside and renamed, so a name that exists is complete, also after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from pathlib import Path

from zcrawl.errors import DiskFull, StoreCorrupt, StoreError, StoreUnavailable

NAME_LENGTH = 64  # hexadecimal digits


class FileBlobs:
    """Two levels of folders with 256 entries each, so that no folder grows beyond reason."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Keep it; its name. A repeat writes nothing."""
        name = hashlib.sha256(data).hexdigest()
        path = self.path(name)
        if path.exists():
            return name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_and_rename(path, data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{self._folder}: {error.strerror}") from error
            raise StoreUnavailable(f"cannot keep a blob in {path.parent}: {error}") from error
        return name

    def get(self, name: str) -> bytes:
        path = self.path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise StoreError(
                f"there is no blob {name} in {self._folder}", code="no_blob"
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"cannot read {path}: {error}") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise StoreCorrupt(f"the blob {path} does not hold what its name says; remove it")
        return data

    def path(self, name: str) -> Path:
        """Where a blob lies. A name that is none cannot lead out of the folder."""
        if len(name) != NAME_LENGTH or set(name) - set("0123456789abcdef"):
            raise StoreError(f"{name!r} is no name of a blob", code="bad_blob_name")
        return self._folder / name[:2] / name[2:4] / name


def _write_and_rename(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what happened before it is what is told
            Path(temporary).unlink()
        raise
