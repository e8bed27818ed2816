"""The folder of a data folder's sockets: a connection to them has the rights of its owner."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from zcrawl.errors import UsageError
from zcrawl.roles.place import make_endpoints


def test_the_sockets_are_in_a_folder_that_only_its_user_may_enter(tmp_path: Path) -> None:
    """Also if it was there before, and open to others."""
    folder = tmp_path / "run"
    for made in (False, True):
        if made:
            folder.chmod(0o777)
        make_endpoints(tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """It leads to somebody else's."""
    (tmp_path / "other").mkdir(mode=0o777)
    (tmp_path / "run").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError) as caught:
        make_endpoints(tmp_path)
    assert caught.value.code == "data_not_private"
