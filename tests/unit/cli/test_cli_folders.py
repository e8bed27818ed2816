"""Folders and files that belong to somebody else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zcrawl.cli.base import check_data_folder, load_settings
from zcrawl.cli.specs import check_writable
from zcrawl.errors import UsageError

NOBODY = 65534


@contextlib.contextmanager
def closed_to_me(folder: Path) -> Iterator[None]:
    """Nobody may enter the folder, and this process is not root meanwhile."""
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


@pytest.mark.parametrize("inner", ["", "data"])
def test_a_data_folder_that_may_not_be_entered_is_a_usage_error(inner: str, tmp_path: Path) -> None:
    """Whether it is the folder itself, or one above it. Not an internal error, and not `no
    database`."""
    settings = load_settings(None, {"data.dir": str(tmp_path / inner)})
    with (
        closed_to_me(tmp_path),
        pytest.raises(UsageError, match="cannot be read: Permission denied"),
    ):
        check_data_folder(settings, "--data")


def test_an_output_in_a_folder_that_may_not_be_entered_is_a_usage_error(tmp_path: Path) -> None:
    """Before the crawl, with the path."""
    with (
        closed_to_me(tmp_path),
        pytest.raises(UsageError, match=r"x\.csv: cannot be written: Permission denied"),
    ):
        check_writable(tmp_path / "x.csv")
