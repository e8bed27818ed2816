"""Blobs in a folder: named by content, complete or absent."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from zcrawl.blobs.folder import FileBlobs
from zcrawl.errors import StoreCorrupt, StoreError, StoreUnavailable


def test_a_blob_comes_back_by_its_name(tmp_path: Path) -> None:
    """The name is the SHA-256 of the content, below two levels of folders."""
    blobs = FileBlobs(tmp_path / "blobs")
    name = blobs.put(b"body")
    assert name == hashlib.sha256(b"body").hexdigest()
    assert blobs.get(name) == b"body"
    assert blobs.path(name) == tmp_path / "blobs" / name[:2] / name[2:4] / name
    assert blobs.get(blobs.put(b"")) == b""


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    """A repeat does not touch the file, and nothing temporary stays."""
    blobs = FileBlobs(tmp_path)
    name = blobs.put(b"body")
    before = blobs.path(name).stat().st_mtime_ns
    assert blobs.put(b"body") == name
    assert blobs.path(name).stat().st_mtime_ns == before
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [blobs.path(name)]


def test_a_missing_a_damaged_and_an_impossible_name_are_told_apart(tmp_path: Path) -> None:
    """Each has its own error; a name cannot lead out of the folder."""
    blobs = FileBlobs(tmp_path)
    name = blobs.put(b"body")
    blobs.path(name).write_bytes(b"bady")
    with pytest.raises(StoreCorrupt):
        blobs.get(name)
    with pytest.raises(StoreError) as caught:
        blobs.get("0" * 64)
    assert caught.value.code == "no_blob"
    for bad in ("", "../../etc/passwd", "A" * 64, "../" + "0" * 61):
        with pytest.raises(StoreError) as caught:
            blobs.get(bad)
        assert caught.value.code == "bad_blob_name"


def test_a_folder_that_cannot_be_made_is_an_error_to_try_again(tmp_path: Path) -> None:
    """A file where the folder should be: named, and nothing is half written."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        FileBlobs(tmp_path / "file").put(b"body")
