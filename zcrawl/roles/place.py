"""Where things lie in a data folder, and how others find the master that runs there."""

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
OUTPUTS: Final = "outputs"  # on a cluster, the only folder that jobs name files in
LOG: Final = "zcrawl.log"
WORKER_ERRORS: Final = "workers.err"
MESH: Final = "mesh.json"
MOST_PATH_BYTES: Final = 90  # a Unix socket's path holds 107, and the sockets' names need some
MASTER: Final = "m1"


class MeshFile(msgspec.Struct, frozen=True):
    """Written by a master when it listens."""

    pid: int
    endpoints: Endpoints


def make_endpoints(data: Path) -> tuple[Endpoints, Path | None]:
    """Sockets in the data folder, or in a short temporary one, which is returned too."""
    folder, temporary = data / "run", None
    if len(os.fsencode(folder)) > MOST_PATH_BYTES:
        import tempfile  # 4 ms of a start, and few paths are that long

        folder = temporary = Path(tempfile.mkdtemp(prefix="zcrawl-"))
    else:
        _make_private(folder)
    control, reports, events = (f"ipc://{folder}/{name}" for name in ("ctl", "rep", "evt"))
    return Endpoints(MASTER, control, reports, events), temporary


def _make_private(folder: Path) -> None:
    """Whoever connects to the sockets counts as this folder's user, so no other may reach them,
    also where the folder was there before. UsageError if it is not ours to close."""
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
    """The folder in which nothing can be kept."""
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
    """What cannot be removed stays: the next start writes over it."""
    with contextlib.suppress(OSError):
        (data / MESH).unlink()
    for endpoint in (endpoints.control, endpoints.reports, endpoints.events):
        with contextlib.suppress(OSError):
            Path(endpoint.removeprefix("ipc://")).unlink()
    folder = temporary or data / "run"
    with contextlib.suppress(OSError):
        folder.rmdir()
