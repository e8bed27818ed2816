"""The way to a robots.txt on another origin is packed and unpacked in one place."""

from __future__ import annotations

import zlib

import pytest

from zcrawl.frontier.robots_place import ELSEWHERE, RobotsWay, is_way, place_in, unpack_way
from zcrawl.model.host import RobotsFile
from zcrawl.model.rows import StoredRobots

WAY = RobotsWay(("http://a.test/robots.txt", "https://there.test/r"))


def test_a_way_survives_the_report_and_the_store() -> None:
    """A worker reports it, the leader stores it, the next owner of the host reads it."""
    file = WAY.pack(60.0)
    stored = StoredRobots(file.status, file.body, 1_000.0)
    assert is_way(file)
    assert file.lasts_s == 60.0
    assert unpack_way(file) == unpack_way(stored) == WAY
    assert place_in(stored) == WAY.place == "https://there.test"


def test_the_form_of_a_way_is_as_older_versions_stored_it() -> None:
    """Status 301 and a compressed list, one URL a line: a database keeps its meaning."""
    body = zlib.compress(b"http://a.test/robots.txt\nhttps://there.test/r")
    assert WAY.pack(60.0) == RobotsFile(301, body, 60.0)


@pytest.mark.parametrize(
    "file",
    [
        RobotsFile(200, zlib.compress(b"https://there.test/r"), 60.0),
        RobotsFile(ELSEWHERE, b"damaged", 60.0),
        RobotsFile(ELSEWHERE, zlib.compress(b"\xff"), 60.0),
        RobotsFile(ELSEWHERE, zlib.compress(b"ftp://there.test/r\nwords"), 60.0),
    ],
    ids=["a robots.txt", "damaged", "no text", "no URLs"],
)
def test_what_is_no_way_leads_nowhere(file: RobotsFile) -> None:
    """It is asked for again from the beginning."""
    assert unpack_way(file) is None
    assert place_in(file) == ""
