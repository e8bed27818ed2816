"""What survives a power cut: the order in which files are written, named and synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zcrawl.blobs.folder import FileBlobs
from zcrawl.cli.commands.export import write_file
from zcrawl.errors import StoreError, StoreUnavailable
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.sockets.keys import new_pair, write_key_file
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.roles.worker_files import MastersFile
from zcrawl.store.sql.dialects.sqlite_files import CommitMark
from zcrawl.store.sql.store import open_sqlite
from zcrawl.submit.output_rights import OutputRights


class Disk:
    """Records what is done to files below a folder, and what a power cut would take back.

    A disk that keeps nothing but what was synced: a name (of a file, a folder or after a rename) is
    lost until its folder was synced after it, the content of a file until the file was."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = str(root)
        self.names: set[str] = set()  # that a power cut would lose
        self.contents: set[str] = set()  # files that a power cut would leave empty
        self.renamed_unsynced: list[str] = []
        real = {
            name: getattr(os, name) for name in ("fsync", "fdatasync", "replace", "mkdir", "open")
        }
        self._real = real
        patch.setattr(os, "fsync", self._sync)
        patch.setattr(os, "fdatasync", self._sync)
        patch.setattr(os, "replace", self._replace)
        patch.setattr(os, "mkdir", self._mkdir)
        patch.setattr(os, "open", self._open)

    def _path(self, path: Any, dir_fd: int | None = None) -> str:
        if isinstance(path, int):
            return str(Path(f"/proc/self/fd/{path}").readlink())
        above = Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else Path.cwd()
        return os.path.normpath(os.path.join(above, os.fspath(path)))  # noqa: PTH118

    def _sync(self, descriptor: int) -> None:
        path = self._path(descriptor)
        self._real["fsync"](descriptor)
        self.contents.discard(path)
        self.names = {name for name in self.names if str(Path(name).parent) != path}

    def _named(self, path: str) -> None:
        if path.startswith(self._root):
            self.names.add(path)

    def _replace(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        old, new = self._path(src, src_dir_fd), self._path(dst, dst_dir_fd)
        self._real["replace"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if old in self.contents:
            self.renamed_unsynced.append(new)
        self.names.discard(old)
        self.contents.discard(old)
        self._named(new)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        self._named(self._path(path, dir_fd))

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._path(path, dir_fd)
        new = bool(flags & os.O_CREAT) and not Path(where).exists()
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if new:
            self._named(where)
            self.contents.add(where)
        return descriptor

    def lost(self) -> set[str]:
        """What a power cut would lose now of what is there."""
        return {name for name in self.names | self.contents if Path(name).exists()}


def keep_blob(folder: Path) -> None:
    FileBlobs(folder / "data" / "blobs").put(b"body")


def keep_blob_of_another(folder: Path) -> None:
    """A repeat of what another process has renamed, and not synced yet."""
    blobs = FileBlobs(folder)
    path = blobs.path("230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"body")
    blobs.put(b"body")


def append_output(folder: Path) -> None:
    places = OutputPlaces(folder / "data", folder / "data" / "outputs", OutputRights())
    with places.folder_of("deep/er/out.jsonl") as where:
        path = where.path / "out.jsonl"
        with OutputFile(path, "jsonl", 0, folder=where) as file:
            file.append([b"{}"])


def write_mark(folder: Path) -> None:
    CommitMark(folder / "zcrawl.db").write(1)


def write_key(folder: Path) -> None:
    write_key_file(folder / "key", new_pair())


def remember_masters(folder: Path) -> None:
    MastersFile(folder / "masters.json").remember([Endpoints("m", "tcp://a", "tcp://b", "tcp://c")])


def export(folder: Path) -> None:
    write_file(folder / "out.bin", lambda path: path.write_bytes(b"x"))


@pytest.mark.parametrize(
    "work",
    [
        keep_blob,
        keep_blob_of_another,
        append_output,
        write_mark,
        write_key,
        remember_masters,
        export,
    ],
)
def test_what_something_durable_refers_to_is_durable_first(
    work: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the call returns, a power cut takes no name and no content of it; and nothing got its
    final name before its content was on the disk."""
    disk = Disk(tmp_path, monkeypatch)
    work(tmp_path)
    assert disk.lost() == set()
    assert disk.renamed_unsynced == []


def test_a_new_database_has_its_name_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite syncs what it writes, but not the name of a file that it finds."""
    disk = Disk(tmp_path, monkeypatch)
    open_sqlite(tmp_path / "data" / "zcrawl.db").close()
    assert disk.names == set()


def test_a_place_that_is_away_is_not_a_lost_body(tmp_path: Path) -> None:
    """A disk that is not mounted comes back; one blob that is missing among others does not."""
    blobs = FileBlobs(tmp_path / "blobs")
    name = "0" * 64
    with pytest.raises(StoreUnavailable, match="mounted"):
        blobs.get(name)
    (tmp_path / "blobs").mkdir()
    with pytest.raises(StoreUnavailable, match="mounted"):
        blobs.get(name)
    blobs.put(b"another")
    with pytest.raises(StoreError) as caught:
        blobs.get(name)
    assert caught.value.code == "no_blob"
