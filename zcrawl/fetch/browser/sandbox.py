"""Choose the account and the environment of Chromium. Called by `chromium` at each start.

Chromium's sandbox refuses root. So if the worker is root, the driver and Chromium run as `nobody`,
with the sandbox. If that is impossible, Chromium runs without a sandbox, and the operator gets a
warning. The worker's environment has secrets (passwords of the cluster, keys of S3), and Chromium
runs scripts of unknown sites, so it gets only a few variables.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pwd
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from zcrawl.runtime.child_environment import is_kept
from zcrawl.text.patterns import lazy_pattern

USER: Final = "nobody"
PROBE_S: Final = 10.0
# For older systems and systems without user namespaces.
_HELPERS: Final = ("/usr/lib/chromium/chrome-sandbox", "/opt/google/chrome/chrome-sandbox")
# Also kept: the places of fonts and browsers, and playwright's variables for its driver.
_KEPT: Final = lazy_pattern(
    r"FONTCONFIG_\w+|PLAYWRIGHT_NODEJS_PATH|PLAYWRIGHT_BROWSERS_PATH|PW_LANG_NAME\w*"
    r"|PW_CLI_DISPLAY_VERSION"
)


@dataclasses.dataclass(frozen=True, slots=True)
class BrowserAccount:
    """The account that Chromium runs as: user and group by number; None: those of the worker."""

    sandbox: bool
    user: int | None = None
    group: int | None = None
    why: str = ""  # the reason for running without a sandbox

    @property
    def prefix(self) -> str:
        """The command that runs a program as this account, to put before the program."""
        if self.user is None:
            return ""
        return f"setpriv --reuid {self.user} --regid {self.group} --clear-groups "


async def choose_account(needed: Sequence[str], euid: int | None = None) -> BrowserAccount:
    """Choose the account. It must be able to read the files and enter the folders in `needed`."""
    if (os.geteuid() if euid is None else euid) != 0:
        return BrowserAccount(True)
    try:
        account = pwd.getpwnam(USER)
    except KeyError:
        return BrowserAccount(False, why=f"there is no user {USER}")
    if shutil.which("setpriv") is None:
        return BrowserAccount(False, why="there is no setpriv (Debian: util-linux)")
    nobody = BrowserAccount(True, account.pw_uid, account.pw_gid)
    tests = [f"test -r {(name := shlex.quote(path))} && test -x {name}" for path in needed]
    readable = " && ".join(tests) or "true"
    if not await _succeeds(f"{nobody.prefix}sh -c {shlex.quote(readable)}"):
        return BrowserAccount(False, why=f"{USER} cannot use {' or '.join(needed)}")
    helpers = " || ".join(f"test -u {path}" for path in _HELPERS)
    if not await _succeeds(f"{nobody.prefix}unshare --user true || {helpers}"):
        return BrowserAccount(False, why=f"{USER} may not make user namespaces")
    return nobody


def unset_command(environ: Mapping[str, str]) -> str:
    """Return the command that removes all other variables, to put before a program. Not `unset`: it
    accepts only valid names of shell variables, and some shells pass other names on."""
    names = [name for name in environ if not is_kept(name) and not _KEPT.fullmatch(name)]
    return f"env {' '.join(f'-u {shlex.quote(name)}' for name in sorted(names))} " if names else ""


async def _succeeds(command: str) -> bool:
    child = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PROBE_S):
            return await child.wait() == 0
    except TimeoutError:
        child.kill()
        await child.wait()
        return False
