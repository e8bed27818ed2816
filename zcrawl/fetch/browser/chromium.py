"""Start, watch and stop one Chromium with playwright's driver.

Used by `engine`, which has at most one at a time. The processes are

    worker ── driver (node, of the playwright package) ── Chromium ── its renderers

and each ends with its parent: small scripts start the driver and Chromium so that the kernel kills
them when their parent dies (PR_SET_PDEATHSIG), and renderers end with Chromium. Their files are in
one temporary folder, which is locked by its worker. A folder without a lock belongs to a killed
worker, and the next start removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import playwright
from playwright.async_api import Browser, Error, Playwright, async_playwright

from zcrawl.errors import JobError
from zcrawl.fetch.browser.sandbox import BrowserAccount, choose_account, unset_command
from zcrawl.fetch.browser_plan import start_failure
from zcrawl.fetch.policy import fetch_error
from zcrawl.model.reasons.failure import BROWSER
from zcrawl.model.reasons.usage import NO_BROWSER

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
START_S: Final = 30.0
STOP_S: Final = 5.0
_NODE: Final = "PLAYWRIGHT_NODEJS_PATH"
_FOLDER: Final = "zcrawl-browser-"
_MOST_PATH: Final = 32  # characters; a socket's path has 107, and Chromium takes 46 of them
_MOST_TRIES: Final = 10  # to remove a folder that dying processes still write into
_BETWEEN_TRIES_S: Final = 0.1
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

FLAGS: Final = (
    # Chromium does not resolve names: the gate does. 127.0.0.1 is the address of the gate.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    # All connections go through the gate, which carries TCP only: other protocols are disabled.
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-pings",
    "--disable-crash-reporter",
    "--disable-gpu",
)
# The proxy outside of contexts: nothing listens there, so nothing can be reached.
NOWHERE: Final = "socks5://127.0.0.1:9"


def find_chromium() -> str:
    """Return the path of the system's Chromium; JobError if there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise JobError(
        f"no Chromium on this worker's PATH ({', '.join(NAMES)}); Debian's package is chromium",
        code=NO_BROWSER,
    )


class Chromium:
    """One Chromium process. Between `start` and `stop`, `browser` can be used; `on_gone` is called
    when it ends by itself."""

    def __init__(self, executable: str, on_gone: Callable[[], None]) -> None:
        self._executable = executable
        self._on_gone = on_gone
        self._folder: Path | None = None
        self._account = BrowserAccount(False)  # until it starts
        self._lock = -1
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self.memory_kills = 0  # renderers that were killed because of their size

    @property
    def browser(self) -> Browser:
        if self._browser is None:
            raise fetch_error(BROWSER, "Chromium has ended")
        return self._browser

    @property
    def unsandboxed(self) -> str:
        """The reason why it runs without a sandbox; empty if it has one."""
        return self._account.why

    @property
    def pid(self) -> int:
        """The process id of Chromium, the leader of its group; 0 before it has started."""
        if self._folder is None:
            return 0
        try:
            return int((self._folder / "chromium.pid").read_text())
        except (OSError, ValueError):
            return 0

    async def start(self) -> None:
        """Start Chromium; FetchError `browser` if it does not start."""
        remove_leftovers()
        needed = [_driver(), shutil.which(self._executable) or "", str(_temporary())]
        self._account = await choose_account(needed)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=_temporary()))
        if self._account.user is not None and self._account.group is not None:
            os.chown(self._folder, self._account.user, self._account.group)
        self._lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            async with asyncio.timeout(START_S):
                self._playwright = await self._start_driver(self._folder)
                self._browser = await self._playwright.chromium.launch(
                    executable_path=self._script(self._folder, "chromium", self._executable),
                    args=[*FLAGS],
                    proxy={"server": NOWHERE},
                    chromium_sandbox=self._account.sandbox,
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
        except (Error, OSError, TimeoutError) as error:
            await self.stop()
            why = start_failure(str(error) or f"not within {START_S} s")
            raise fetch_error(BROWSER, f"Chromium did not start: {why}") from error
        self._browser.on("disconnected", lambda _: self._on_gone())

    async def _start_driver(self, folder: Path) -> Playwright:
        configured = os.environ.get(_NODE)
        # Playwright reads it only from the environment, when it starts its driver.
        os.environ[_NODE] = self._script(folder, "driver", configured or _driver())
        try:
            return await async_playwright().start()
        finally:
            if configured is None:
                del os.environ[_NODE]
            else:
                os.environ[_NODE] = configured

    def _script(self, folder: Path, name: str, program: str) -> str:
        """Write a script that starts the program so that it ends with its parent, saves its process
        id, and has its temporary files in the folder. Return the path of the script."""
        setpriv = shutil.which("setpriv")  # without it, processes end when their pipes close
        prefix = f"{shlex.quote(setpriv)} --pdeathsig KILL " if setpriv else ""
        if name == "driver":  # its children have the same user
            # First the user, then --pdeathsig: the kernel resets it when the user changes.
            prefix = self._account.prefix + prefix
        place = shlex.quote(str(folder))
        script = folder / name
        script.write_text(
            f"#!/bin/sh\necho $$ > {place}/{name}.pid\n"
            f"TMPDIR={place} HOME={place}\nexport TMPDIR HOME\n"
            f'exec {unset_command(os.environ)}{prefix}{shlex.quote(program)} "$@"\n'
        )
        script.chmod(0o755 if self._account.user is not None else 0o700)
        return str(script)

    async def stop(self) -> None:
        """Stop it in any state; afterwards none of its processes and files are left."""
        pid = self.pid
        browser, driver = self._browser, self._playwright
        self._browser = self._playwright = None
        with contextlib.suppress(Error, TimeoutError, OSError):  # it is killed below in any case
            async with asyncio.timeout(STOP_S):
                if browser is not None:
                    await browser.close()
        if pid:
            _kill_group(pid)
        with contextlib.suppress(Exception):  # a driver that has ended raises many kinds of errors
            async with asyncio.timeout(STOP_S):
                if driver is not None:
                    await driver.stop()
        if self._folder is not None:
            for _ in range(_MOST_TRIES):
                if _remove(self._folder):
                    break
                await asyncio.sleep(_BETWEEN_TRIES_S)
            os.close(self._lock)
            self._folder = None

    # ------------------------------------------------------------ memory

    def end_large_renderers(self, most_bytes: int) -> int:
        """Kill the renderers above the limit, and return their number. Their pages crash."""
        count = 0
        for pid in list(descendants(self.pid)):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"--type=renderer" not in command:
                    continue
                statm = Path(f"/proc/{pid}/statm").read_text().split()
                if (int(statm[1]) - int(statm[2])) * _PAGE_BYTES > most_bytes:
                    os.kill(pid, signal.SIGKILL)
                    count += 1
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
        self.memory_kills += count
        return count


def _driver() -> str:
    return str(Path(playwright.__file__).parent / "driver" / "node")


def _temporary() -> Path:
    """Return the parent of temporary folders. Its path must be short, because Chromium creates a
    socket in it."""
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) <= _MOST_PATH else "/tmp")


def descendants(pid: int) -> Iterator[int]:
    if not pid:
        return
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = [int(child) for child in children.read_text().split()]
        except OSError:
            continue  # ended meanwhile, or the system has no such file
        for child in pids:
            yield child
            yield from descendants(child)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended; another process
        # has its id
        os.killpg(pid, signal.SIGKILL)  # playwright makes Chromium the leader of a group


def remove_leftovers() -> None:
    """Remove the folders of killed workers: their locks are free."""
    for folder in _temporary().glob(_FOLDER + "*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue  # being created, being removed, or of another user
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its worker lives
        else:
            _remove(folder)
        finally:
            os.close(lock)


def _remove(folder: Path) -> bool:
    """Remove a folder; return whether it is gone. A dying process may write into it again; then it
    keeps a lock file, so that the next start removes it."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return True
    with contextlib.suppress(FileNotFoundError):  # gone after all
        (folder / "lock").touch()
    return False
