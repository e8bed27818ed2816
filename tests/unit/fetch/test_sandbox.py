"""As whom Chromium runs, and what of the worker's environment it gets."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

import pytest

from zcrawl.fetch.browser import sandbox
from zcrawl.fetch.browser.sandbox import BrowserAccount, choose_account, unset_command


async def test_a_plain_user_keeps_its_name_and_has_the_sandbox() -> None:
    """Nothing has to be tried."""
    account = await choose_account(["/no/such/file"], euid=1000)
    assert account == BrowserAccount(True)
    assert account.prefix == ""


async def test_where_root_cannot_become_somebody_else_it_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No such user, no program for it, or files that others cannot read."""
    monkeypatch.setattr(sandbox, "USER", "no-such-user")
    assert (await choose_account([], euid=0)).why == "there is no user no-such-user"
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "setpriv" in (await choose_account([], euid=0)).why
    monkeypatch.undo()
    if os.geteuid() == 0:
        account = await choose_account(["/no such/file"], euid=0)
        assert (account.sandbox, account.why) == (False, "nobody cannot use /no such/file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_root_becomes_nobody() -> None:
    """If that one may make user namespaces, which not every machine allows."""
    account = await choose_account([shutil.which("sh") or ""])
    if not account.why:
        nobody = pwd.getpwnam("nobody")
        assert (account.sandbox, account.user, account.group) == (
            True,
            nobody.pw_uid,
            nobody.pw_gid,
        )
        assert account.prefix.startswith(f"setpriv --reuid {nobody.pw_uid} ")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_what_the_browser_need_not_know_it_does_not_get(shell: str) -> None:
    """Secrets, keys of S3, tokens of playwright's services, and names that no shell can say."""
    secret = {"ZCRAWL_SECRET_PW": "x", "AWS_KEY": "y", "a b;c": "z", "BASH_FUNC_f%%": "() { :; }"}
    secret["PLAYWRIGHT_SERVICE_ACCESS_TOKEN"] = "t"
    kept = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PW_LANG_NAME": "python"}
    environ = {**kept, **secret}
    line = f'exec {unset_command(environ)}env -0 "$@"'
    output = subprocess.run(
        [shell, "-c", line], env=environ, capture_output=True, check=True
    ).stdout
    names = {variable.partition("=")[0] for variable in output.decode().split("\0") if variable}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == set(kept)
    assert unset_command({"PATH": "/bin"}) == ""
