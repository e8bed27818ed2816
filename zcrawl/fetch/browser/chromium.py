"""One Chromium with playwright's driver in front of it: started, watched, and ended for certain.

Used by `engine`, which has at most one at a time. The processes are

    worker ── driver (node, of the playwright package) ── Chromium ── its renderers

and none of them outlives the one before it: the driver and Chromium are started by small scripts
that let the kernel kill them when their parent dies (PR_SET_PDEATHSIG), and renderers end with
Chromium. What they keep on the disk is in one temporary folder, which is locked by its worker;
folders that nobody locks belong to workers that were killed and are removed by the next start.
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
from zcrawl.fetch.browser.sandbox import Standing, standing, without
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
    # Chromium looks nothing up by itself: names are the gate's business. The address is the gate's.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    # All connections go through the gate, which carries TCP only: nothing else may leave.
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-pings",
    "--disable-crash-reporter",
    "--disable-gpu",
)
NOWHERE: Final = "socks5://127.0.0.1:9"  # what has no context, and so no gate, reaches nobody


def find_chromium() -> str:
    """The system's Chromium; JobError if there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise JobError(
        f"no Chromium on this worker's PATH ({', '.join(NAMES)}); Debian's package is chromium",
        code=NO_BROWSER,
    )


class Chromium:
    """`start`, then `browser` is there until `stop`; `on_gone` is called when it ends by itself."""

    def __init__(self, executable: str, on_gone: Callable[[], None]) -> None:
        self._executable = executable
        self._on_gone = on_gone
        self._folder: Path | None = None
        self._standing = Standing(False)  # until it starts
        self._lock = -1
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self.memory_kills = 0  # renderers that were ended for their size

    @property
    def browser(self) -> Browser:
        if self._browser is None:
            raise fetch_error(BROWSER, "Chromium has ended")
        return self._browser

    @property
    def unsandboxed(self) -> str:
        """Why it runs without a sandbox; empty if it has one."""
        return self._standing.why

    @property
    def pid(self) -> int:
        """Chromium's first process, the leader of its group; 0 before it has started."""
        if self._folder is None:
            return 0
        try:
            return int((self._folder / "chromium.pid").read_text())
        except (OSError, ValueError):
            return 0

    async def start(self) -> None:
        """FetchError `browser` if it does not start."""
        remove_leftovers()
        needed = [_driver(), shutil.which(self._executable) or "", str(_temporary())]
        self._standing = await standing(needed)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=_temporary()))
        if self._standing.user is not None and self._standing.group is not None:
            os.chown(self._folder, self._standing.user, self._standing.group)
        self._lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            async with asyncio.timeout(START_S):
                self._playwright = await self._start_driver(self._folder)
                self._browser = await self._playwright.chromium.launch(
                    executable_path=self._script(self._folder, "chromium", self._executable),
                    args=[*FLAGS],
                    proxy={"server": NOWHERE},
                    chromium_sandbox=self._standing.sandbox,
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
        theirs = os.environ.get(_NODE)
        # Playwright takes it from the environment only, when it starts its driver.
        os.environ[_NODE] = self._script(folder, "driver", theirs or _driver())
        try:
            return await async_playwright().start()
        finally:
            if theirs is None:
                del os.environ[_NODE]
            else:
                os.environ[_NODE] = theirs

    def _script(self, folder: Path, name: str, program: str) -> str:
        """A script that becomes the program, tied to its parent's life; notes its own pid, and
        keeps its files together."""
        tie = shutil.which("setpriv")  # of util-linux; without it the closed pipes have to do
        prefix = f"{shlex.quote(tie)} --pdeathsig KILL " if tie else ""
        if name == "driver":  # what it starts is of its own user; the kernel forgets the tie of
            prefix = self._standing.prefix + prefix  # a process that becomes somebody else
        place = shlex.quote(str(folder))
        script = folder / name
        script.write_text(
            f"#!/bin/sh\necho $$ > {place}/{name}.pid\n"
            f"TMPDIR={place} HOME={place}\nexport TMPDIR HOME\n"
            f'exec {without(os.environ)}{prefix}{shlex.quote(program)} "$@"\n'
        )
        script.chmod(0o755 if self._standing.user is not None else 0o700)
        return str(script)

    async def stop(self) -> None:
        """Whatever state it is in: afterwards there is no process and no file of it."""
        pid = self.pid
        browser, driver = self._browser, self._playwright
        self._browser = self._playwright = None
        with contextlib.suppress(Error, TimeoutError, OSError):  # it is killed below anyhow
            async with asyncio.timeout(STOP_S):
                if browser is not None:
                    await browser.close()
        if pid:
            _kill_group(pid)
        with contextlib.suppress(Exception):  # a driver that is gone answers in many ways
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
        """Kill the renderers above the limit; how many. Their pages see a crash."""
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
    """Where folders are made. Chromium puts a socket into its own, whose path has to be short."""
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) <= _MOST_PATH else "/tmp")


def descendants(pid: int) -> Iterator[int]:
    if not pid:
        return
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = [int(child) for child in children.read_text().split()]
        except OSError:
            continue  # ended meanwhile, or a system that does not tell
        for child in pids:
            yield child
            yield from descendants(child)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; its number is another's
        os.killpg(pid, signal.SIGKILL)  # playwright makes Chromium the leader of a group


def remove_leftovers() -> None:
    """Folders of workers that were killed: nobody holds their locks."""
    for folder in _temporary().glob(_FOLDER + "*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue  # being made, being removed, or somebody else's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its worker lives
        else:
            _remove(folder)
        finally:
            os.close(lock)


def _remove(folder: Path) -> bool:
    """Whether it is gone. A process that is just dying may write into it again; then it keeps a
    lock file, by which the next start knows it for what it is."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return True
    with contextlib.suppress(FileNotFoundError):  # gone after all
        (folder / "lock").touch()
    return False
