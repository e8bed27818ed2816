"""Patterns of command lines: which ones they cover, and which spellings lead around them."""

from __future__ import annotations

import pytest

from zcrawl.text.commands import is_plain_path, parse_command_pattern


def allows(pattern: str, *argv: str) -> bool:
    return parse_command_pattern(pattern).allows(argv)


@pytest.mark.parametrize(
    ("pattern", "argv"),
    [
        ("/usr/bin/true", ("/usr/bin/true",)),
        ("/usr/bin/rsync *", ("/usr/bin/rsync",)),
        ("/usr/bin/rsync *", ("/usr/bin/rsync", "-a", "/x", "--delete")),
        ("/usr/bin/rsync -a *", ("/usr/bin/rsync", "-a", "b c")),
        ("/usr/bin/test -d /srv/*", ("/usr/bin/test", "-d", "/srv/a/b")),
        ("/opt/jobs/* *", ("/opt/jobs/nightly.sh", "1")),
        ("/opt/jobs/nightly-*", ("/opt/jobs/nightly-a",)),
        ("/usr/bin/touch '/srv/a file'", ("/usr/bin/touch", "/srv/a file")),
        ("/usr/bin/x '*'y", ("/usr/bin/x", "anything y")),
    ],
)
def test_a_pattern_covers(pattern: str, argv: tuple[str, ...]) -> None:
    """The program exactly, each argument by its word, the rest by a last *."""
    assert allows(pattern, *argv)


@pytest.mark.parametrize(
    ("pattern", "argv"),
    [
        ("/usr/bin/true", ("/usr/bin/true", "x")),
        ("/usr/bin/rsync -a *", ("/usr/bin/rsync",)),
        ("/usr/bin/rsync -a *", ("/usr/bin/rsync", "-e", "sh")),
        ("/usr/bin/rsync *", ("/usr/bin/rsyncd",)),
        ("/usr/bin/rsync *", ("/usr/bin/rsync *",)),
        ("/usr/bin/rsync *", ("rsync", "-a")),
        ("/usr/bin/rsync *", ("/usr/bin/../bin/rsync", "-a")),
        ("/usr/bin/rsync *", ("/usr/bin//rsync",)),
        ("/usr/bin/rsync *", ("/usr/bin/./rsync",)),
        ("/opt/jobs/* *", ("/opt/jobs/sub/x",)),
        ("/opt/jobs/* *", ("/opt/jobs/..",)),
        ("/opt/jobs/* *", ("/opt/jobs/../../bin/sh", "-c", "x")),
        ("/opt/jobs/* *", ("/opt/jobs/",)),
        ("/usr/bin/test -d /srv/*", ("/usr/bin/test", "-d", "/etc")),
        ("/usr/bin/test -d /srv/*", ("/usr/bin/test", "-d", "/srv/a", "-o", "x")),
    ],
)
def test_a_pattern_does_not_cover(pattern: str, argv: tuple[str, ...]) -> None:
    """Another program, another spelling of its path, other arguments, or more of them."""
    assert not allows(pattern, *argv)


@pytest.mark.parametrize("path", ["", "/", "a", "a/b", "/a/../b", "/a//b", "/a/", "/./a", "//a"])
def test_a_path_that_can_be_read_in_two_ways_is_not_plain(path: str) -> None:
    """A pattern compares names, so each program has one name."""
    assert not is_plain_path(path)
