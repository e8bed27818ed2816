"""As whom Chromium runs, and with what environment. Called by `chromium` at each start.

Chromium's sandbox refuses root. So where the worker is root, the driver and Chromium run as
`nobody`, who has the sandbox; only where that is impossible there is none, and that is told.
What the worker's environment holds (passwords of the cluster, keys of S3) is nothing that a program
which runs strangers' scripts has to know.
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
# Of older systems and those without user namespaces.
_HELPERS: Final = ("/usr/lib/chromium/chrome-sandbox", "/opt/google/chrome/chrome-sandbox")
# Besides what every child gets: where fonts and browsers are, what playwright tells its driver.
_KEPT: Final = lazy_pattern(
    r"FONTCONFIG_\w+|PLAYWRIGHT_NODEJS_PATH|PLAYWRIGHT_BROWSERS_PATH|PW_LANG_NAME\w*"
    r"|PW_CLI_DISPLAY_VERSION"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """`user` and `group` are another account's, by number; None: the worker's own."""

    sandbox: bool
    user: int | None = None
    group: int | None = None
    why: str = ""  # there is no sandbox

    @property
    def prefix(self) -> str:
        """What a shell puts before the program."""
        if self.user is None:
            return ""
        return f"setpriv --reuid {self.user} --regid {self.group} --clear-groups "


async def standing(needed: Sequence[str], euid: int | None = None) -> Standing:
    """`needed` are files that the account must be able to read, or folders that it must be able
    to enter."""
    if (os.geteuid() if euid is None else euid) != 0:
        return Standing(True)
    try:
        account = pwd.getpwnam(USER)
    except KeyError:
        return Standing(False, why=f"there is no user {USER}")
    if shutil.which("setpriv") is None:
        return Standing(False, why="there is no setpriv (Debian: util-linux)")
    account_standing = Standing(True, account.pw_uid, account.pw_gid)
    tests = [f"test -r {(name := shlex.quote(path))} && test -x {name}" for path in needed]
    readable = " && ".join(tests) or "true"
    if not await _succeeds(f"{account_standing.prefix}sh -c {shlex.quote(readable)}"):
        return Standing(False, why=f"{USER} cannot use {' or '.join(needed)}")
    helpers = " || ".join(f"test -u {path}" for path in _HELPERS)
    if not await _succeeds(f"{account_standing.prefix}unshare --user true || {helpers}"):
        return Standing(False, why=f"{USER} may not make user namespaces")
    return account_standing


def without(environ: Mapping[str, str]) -> str:
    """What a shell puts before the program, so that it does not get what it need not know. Not
    `unset`: that cannot name what is no variable of the shell, and some shells pass it on."""
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
