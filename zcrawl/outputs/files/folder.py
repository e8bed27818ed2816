"""Open the folders of outputs so that no name can lead out of them.

Used by `growing`, `parts`, `parquet` and `master.driver.outputs`. `OutputPlaces` checks the rights
of the master for every path, also for stored paths of a run, because it may have been submitted
under other rights. Below the allowed folder, each step of a path is opened relative to the previous
one, and symbolic links are refused (`path_not_allowed`): so the checked file is the written file,
even if something is renamed or linked meanwhile. The outputs folder itself, and the prefixes in the
configuration, may be links, because they belong to the operator.

The machine's own user may use any path and links. Their new files outside the data folder get the
mode of their umask; all others are not readable for other users (`runtime.files`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from zcrawl.errors import RefusedError, StoreUnavailable, UsageError
from zcrawl.model.reasons.storage import OUTPUT_UNWRITABLE, OUTPUTS_NOT_SHARED
from zcrawl.model.reasons.usage import PATH_NOT_ALLOWED
from zcrawl.runtime.files import (
    PRIVATE_FOLDER,
    is_within,
    make_durable_folder,
    make_folder_of_user,
    users_file_mode,
)
from zcrawl.store.output_pieces import Stamp
from zcrawl.submit.output_rights import OUTPUTS, OutputRights

MARKER: Final = ".zcrawl-shared"  # identifies a shared folder
ASIDES: Final = (".part", ".piece")
OUTGOING: Final = "outgoing"  # of the data folder: parts that wait for their upload
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK  # so that a pipe of that name does not
# block


class OutputFolder:
    """One open folder. `path` is for messages and for libraries that need a name."""

    def __init__(self, path: Path, descriptor: int, *, links: bool, of_user: bool = False) -> None:
        self.path = path
        self._mode = users_file_mode() if of_user else None  # of new files
        self._descriptor = descriptor
        self._link_flag = 0 if links else os.O_NOFOLLOW

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def open(self, name: str) -> tuple[BinaryIO, bool]:
        """Open a file to read and write; return it and whether it is new. OSError; UsageError if it
        is not a regular file."""
        flags, where = _FILE | self._link_flag, self._descriptor
        new = True
        try:
            descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=where)
            self._give_to_user(descriptor)
        except FileExistsError:
            new = False
            try:
                # CREAT: the user's own link may lead to a file that does not exist yet.
                descriptor = os.open(name, flags | os.O_CREAT, 0o666, dir_fd=where)
            except IsADirectoryError as error:
                raise self._not_a_file(name) from error
            except OSError as error:
                raise self._explained(name, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._not_a_file(name)
        return os.fdopen(descriptor, "r+b", buffering=0), new

    def create(self, name: str, buffering: int = 0) -> BinaryIO:
        """Create a file that does not exist yet. OSError; RefusedError for a link in its place."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | self._link_flag
        try:
            descriptor = os.open(name, flags, 0o666, dir_fd=self._descriptor)
        except OSError as error:
            raise self._explained(name, error) from error
        self._give_to_user(descriptor)
        return os.fdopen(descriptor, "w+b", buffering=buffering)

    def read(self, name: str) -> BinaryIO:
        """Open one of our files to read. OSError."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.fdopen(os.open(name, flags, dir_fd=self._descriptor), "rb")

    def stamp(self, name: str) -> Stamp | None:
        """Return the size and time of a file; None if it does not exist."""
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return Stamp(status.st_size, status.st_mtime_ns)

    def _give_to_user(self, descriptor: int) -> None:
        if self._mode is not None:
            os.fchmod(descriptor, self._mode)

    def sync(self) -> None:
        """Make the names in the folder durable, so that new files survive a power cut."""
        os.fsync(self._descriptor)

    def check_name(self, name: str) -> None:
        """Raise RefusedError or UsageError if a file of that name cannot be written."""
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return
        if self._is_link(name):
            raise _link(self.path / name)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise self._not_a_file(name)

    def sync_file(self, name: str) -> Stamp:
        """Make a complete file durable; return its size and time. StoreUnavailable."""
        try:
            with self.read(name) as file:
                os.fsync(file.fileno())
                status = os.fstat(file.fileno())
        except OSError as error:
            shown = self.path / name
            raise StoreUnavailable(f"cannot write {shown}: {error.strerror}") from error
        return Stamp(status.st_size, status.st_mtime_ns)

    def publish(self, aside: str, name: str) -> None:
        """Rename a temporary file to its name, durably. A link of that name is replaced, not
        followed."""
        try:
            descriptor = os.open(aside, _FILE | os.O_NOFOLLOW, dir_fd=self._descriptor)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(aside, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            self.sync()
        except OSError as error:
            shown = self.path / name
            raise StoreUnavailable(f"cannot write {shown}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_asides(self, name: str, keep: Collection[str] = ()) -> None:
        """Remove temporary files of the part `name` by earlier leaders, except `keep`. A paused
        leader then cannot publish its file any more."""
        begin = f".{name}."
        with os.scandir(self._descriptor) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.name.startswith(begin) and entry.name.endswith(ASIDES)
            ]
        names = [aside for aside in names if aside not in keep]
        for other in names:
            with contextlib.suppress(OSError):  # it belongs to another user
                self.remove(other)

    def _not_a_file(self, name: str) -> UsageError:
        return UsageError(f"{self.path / name} is not a regular file", code=OUTPUT_UNWRITABLE)

    def _explained(self, name: str, error: OSError) -> Exception:
        return _link(self.path / name) if self._is_link(name) else error

    def _is_link(self, name: str) -> bool:
        return bool(self._link_flag) and _is_link(self._descriptor, name)


def folder_at(path: Path) -> OutputFolder:
    """Open a folder of a user who may use any path; OSError if it does not exist."""
    return OutputFolder(path, os.open(path, _FOLDER), links=True)


class OutputPlaces:
    """The places for outputs: `data` is the data folder, relative paths are in `outputs`."""

    def __init__(
        self, data: Path, outputs: Path, rights: OutputRights, *, shared: bool = False
    ) -> None:
        """`shared`: all masters have the same folders, by the configuration."""
        self.shared = shared
        self._data, self._outputs, self._rights = data, outputs, rights

    def folder_of(self, path: str) -> OutputFolder:
        """Open the folder of a local path; create it if it is missing. RefusedError: not
        allowed."""
        located = self._rights.locate(path)
        if located is None:
            folder = self._outputs / Path(path).parent
            return _open(folder, (), links=True, of_user=not _is_inside(folder, self._data))
        root = self._outputs if located.folder == OUTPUTS else Path(located.folder)
        return _open(root, located.parts[:-1], links=False)

    def check_shared(self, path: str, expected: str) -> str:
        """Return the marker of the shared folder of a path; empty if it is not shared.

        StoreUnavailable: it is not the folder that an earlier leader wrote this output to."""
        located = self._rights.locate(path) if self.shared else None
        if located is None:
            return ""
        root = self._outputs if located.folder == OUTPUTS else Path(located.folder)
        try:
            marker = _marker(root, make=not expected)
        except (OSError, ValueError) as error:
            marker, reason = "", f"cannot be read ({error})"
        else:
            reason = f"has {marker!r}"
        if not marker or expected not in ("", marker):
            raise StoreUnavailable(
                f"outputs.shared is set, but {root} is not the folder that another master wrote "
                f"{path} to: {MARKER} in it {reason}, not {expected!r}. Is it mounted?",
                code=OUTPUTS_NOT_SHARED,
            )
        return marker

    def outgoing(self, url: str) -> OutputFolder:
        """Open the folder where a part waits for its upload to `url`. RefusedError: not allowed."""
        self.check_remote(url)
        return _open(self._data / OUTGOING, (), links=False)

    def check_remote(self, url: str) -> None:
        self._rights.check_remote(url)


def _marker(root: Path, *, make: bool) -> str:
    """Return the marker of a shared folder; OSError. A new one is written to a temporary file
    first, because another master may read it at the same time."""
    path = root / MARKER
    if make and not path.exists():
        make_durable_folder(root, PRIVATE_FOLDER)
        aside = root / f"{MARKER}.{secrets.token_hex(8)}"
        try:
            aside.write_text(secrets.token_hex(8))
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    return path.read_text()


def _is_inside(folder: Path, data: Path) -> bool:
    try:
        return is_within(folder, data)
    except (OSError, ValueError):  # opening it reports what is wrong
        return True


def _open(
    root: Path, parts: tuple[str, ...], *, links: bool, of_user: bool = False
) -> OutputFolder:
    here = root
    try:
        if of_user:
            make_folder_of_user(root)
        else:
            make_durable_folder(root, PRIVATE_FOLDER)
        descriptor = os.open(root, _FOLDER)
        for part in parts:
            here = here / part
            descriptor = _step(descriptor, part, here)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot make {here}: {reason}", code=OUTPUT_UNWRITABLE) from error
    return OutputFolder(here, descriptor, links=links, of_user=of_user)


def _step(above: int, name: str, shown: Path) -> int:
    """Open the folder of that name, created if it is missing; close the parent."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, PRIVATE_FOLDER, dir_fd=above)
            os.fsync(above)
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        except OSError:
            if _is_link(above, name):
                raise _link(shown) from None
            raise
    finally:
        os.close(above)


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False  # it is gone: the first error is reported


def _link(path: Path) -> RefusedError:
    return RefusedError(
        f"output {str(path)!r} is not allowed here: it is a symbolic link. Replace it by a folder, "
        "or add its target to outputs.allow",
        code=PATH_NOT_ALLOWED,
    )
