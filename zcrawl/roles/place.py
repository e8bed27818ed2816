"""The files of a data folder, and how other processes find the master that runs there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from zcrawl.errors import DiskFull, UsageError, ZcrawlError
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.reasons.usage import DATA_NOT_PRIVATE, DATA_UNWRITABLE

DATABASE: Final = "zcrawl.db"
BLOBS: Final = "blobs"
OUTPUTS: Final = "outputs"  # on a cluster, the folder for files of jobs
LOG: Final = "zcrawl.log"
WORKER_ERRORS: Final = "workers.err"
MESH: Final = "mesh.json"
MOST_PATH_BYTES: Final = 90  # a Unix socket's path holds 107, and the sockets' names need some
MASTER: Final = "m1"


class MeshFile(msgspec.Struct, frozen=True):
    """The addresses of a master, written when it listens."""

    pid: int
    endpoints: Endpoints


def make_endpoints(data: Path) -> tuple[Endpoints, Path | None]:
    """Return socket addresses in the data folder, or in a temporary folder, returned as well."""
    folder, temporary = data / "run", None
    if len(os.fsencode(folder)) > MOST_PATH_BYTES:
        import tempfile  # 4 ms of a start, and few paths are that long

        folder = temporary = Path(tempfile.mkdtemp(prefix="zcrawl-"))
    else:
        _make_private(folder)
    control, reports, events = (f"ipc://{folder}/{name}" for name in ("ctl", "rep", "evt"))
    return Endpoints(MASTER, control, reports, events), temporary


def _make_private(folder: Path) -> None:
    """Close a folder to other users, because a connection to its sockets has the rights of its
    owner. UsageError if the folder belongs to another user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UsageError(
            f"{folder} holds the sockets, so it must be a folder of the user who runs this; "
            "remove it, or choose another --data",
            code=DATA_NOT_PRIVATE,
        )
    if stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)


def write_mesh_file(data: Path, endpoints: Endpoints) -> None:
    path = data / MESH
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        aside.write_bytes(msgspec.json.encode(MeshFile(os.getpid(), endpoints)))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def unusable(data: Path, error: OSError) -> ZcrawlError:
    """Return the error for a data folder that cannot be used."""
    text = f"{error.filename or data}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(text)
    return UsageError(text, code=DATA_UNWRITABLE)


def read_mesh_file(data: Path) -> MeshFile | None:
    try:
        return msgspec.json.decode((data / MESH).read_bytes(), type=MeshFile)
    except (OSError, msgspec.DecodeError):
        return None


def remove_mesh_file(data: Path, endpoints: Endpoints, temporary: Path | None) -> None:
    """Remove the files; those that cannot be removed are overwritten at the next start."""
    with contextlib.suppress(OSError):
        (data / MESH).unlink()
    for endpoint in (endpoints.control, endpoints.reports, endpoints.events):
        with contextlib.suppress(OSError):
            Path(endpoint.removeprefix("ipc://")).unlink()
    folder = temporary or data / "run"
    with contextlib.suppress(OSError):
        folder.rmdir()
