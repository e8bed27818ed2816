"""As whom Chromium runs, and what of the worker's environment it gets."""

from __future__ import annotations

import os
import pwd
import shutil

import pytest

from zcrawl.fetch import sandbox_os
from zcrawl.fetch.sandbox_os import Standing, standing, unset


async def test_a_plain_user_keeps_its_name_and_has_the_sandbox() -> None:
    """Nothing has to be tried."""
    found = await standing(["/no/such/file"], euid=1000)
    assert found == Standing(True) and found.prefix == ""


async def test_where_root_cannot_become_somebody_else_it_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No such user, no program for it, or files that others cannot read."""
    monkeypatch.setattr(sandbox_os, "USER", "no-such-user")
    assert (await standing([], euid=0)).why == "there is no user no-such-user"
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "setpriv" in (await standing([], euid=0)).why
    monkeypatch.undo()
    if os.geteuid() == 0:
        found = await standing(["/no such/file"], euid=0)
        assert (found.sandbox, found.why) == (False, "nobody cannot use /no such/file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_root_becomes_nobody() -> None:
    """If that one may make user namespaces, which not every machine allows."""
    found = await standing([shutil.which("sh") or ""])
    if not found.why:
        nobody = pwd.getpwnam("nobody")
        assert (found.sandbox, found.user, found.group) == (True, nobody.pw_uid, nobody.pw_gid)
        assert found.prefix.startswith(f"setpriv --reuid {nobody.pw_uid} ")


def test_what_the_browser_need_not_know_is_unset() -> None:
    """Secrets, keys of S3, anything; names that a shell cannot say are no variables to it."""
    environ = {"PATH": "/bin", "LC_ALL": "C", "ZCRAWL_SECRET_PW": "x", "AWS_KEY": "y", "a b;c": "z"}
    assert unset(environ) == "unset AWS_KEY ZCRAWL_SECRET_PW\n"
    assert unset({"PATH": "/bin"}) == ""
