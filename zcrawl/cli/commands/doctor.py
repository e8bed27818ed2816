"""`zcrawl doctor`: check whether this machine can crawl and the data folder is undamaged.

Each check looks at one thing and says ok, warn or fail, with advice. A check that raises an
exception counts as failed, and the others still run.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.errors import ZcrawlError

Status = Literal["ok", "warn", "fail"]
DATABASE: Final = "zcrawl.db"
MIN_PYTHON: Final = (3, 11)
FILES_WANTED: Final = 4096  # file descriptors; libzmq uses a whole core when there are none left
DISK_WARN: Final = 1_000_000_000  # bytes
DISK_FAIL: Final = 50_000_000
SUN_PATH: Final = 107  # bytes; the longest possible path of a Unix socket
SOCKET_NAME: Final = 24  # bytes that the mesh adds to the folder's path
NAMES_SHOWN: Final = 10
CLOCK_FLOOR: Final = 1_767_225_600  # 2026-01-01: before that the clock is certainly wrong
PACKAGES: Final = (
    "brotli",
    *("pyzmq", "msgpack", "msgspec", "httpx", "aiohttp", "selectolax", "peewee", "aiolimiter"),
    *("uvloop", "click", "rich-click", "rich", "ada-url"),
    *("charset-normalizer", "webencodings"),
)


@dataclasses.dataclass(frozen=True)
class Check:
    name: str
    status: Status
    detail: str
    advice: str = ""


@click.command("doctor", cls=Command)
@common
def doctor_command(settings: Settings) -> int:
    """Check this machine and the data folder."""
    from zcrawl.cli import output

    results = examine(settings)
    if settings.json:
        output.print_json([dataclasses.asdict(check) for check in results])
    else:
        for check in results:
            advice = f" -> {check.advice}" if check.advice else ""
            output.data(f"{check.status:4}  {check.name}: {check.detail}{advice}")
    return 1 if any(check.status == "fail" for check in results) else 0


def examine(settings: Settings) -> list[Check]:
    """Run all checks, in the order in which failures should be repaired."""
    data = settings.data
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("python", check_python),
        ("packages", check_packages),
        ("open files", check_files),
        ("clock", check_clock),
        ("data folder", lambda: check_folder(data)),
        ("disk space", lambda: check_disk(data)),
        ("socket paths", lambda: check_socket_path(data)),
        ("keys", lambda: check_keys(settings)),
        ("cluster", lambda: check_cluster(settings)),
        ("database", lambda: check_database(data)),
        ("spiders", check_spiders),
        ("commands", lambda: check_commands(settings)),
    ]
    results = []
    for name, check in checks:
        try:
            results.append(check())
        except Exception as error:  # reported as a failed check, because the others must still run
            results.append(Check(name, "fail", f"{type(error).__name__}: {error}"))
    return results + check_connections(settings)


def check_python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()} {platform.release()}"
    if sys.version_info < MIN_PYTHON:
        return Check("python", "fail", detail, "install Python 3.11 or newer")
    return Check("python", "ok", detail)


def check_packages() -> Check:
    versions, missing = [], []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        detail = f"missing: {', '.join(missing)}"
        return Check("packages", "fail", detail, "install zcrawl again: pip install zcrawl")
    return Check("packages", "ok", ", ".join(versions))


def check_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    detail = f"{'unlimited' if soft == unlimited else soft} (hard limit {hard})"
    if hard != unlimited and hard < FILES_WANTED:
        return Check("open files", "warn", detail, f"raise it: ulimit -Hn {FILES_WANTED}")
    return Check("open files", "ok", detail)  # zcrawl raises the soft limit by itself


def check_clock() -> Check:
    now = time.time()
    detail = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < CLOCK_FLOOR:
        return Check("clock", "fail", detail, "set the clock: TLS and pacing depend on it")
    return Check("clock", "ok", detail)


def check_folder(data: Path) -> Check:
    from zcrawl.runtime.files import folder_warning

    place = _existing(data)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "choose another with --data, or correct its permissions"
        return Check("data folder", "fail", f"{place}: {error.strerror}", advice)
    if place != data:
        return Check("data folder", "ok", f"{data} does not exist yet and can be made")
    warning, _, advice = folder_warning(data).partition("; ")
    if warning:
        return Check("data folder", "warn", warning, advice)
    return Check("data folder", "ok", f"{data} can be written")


def check_spiders() -> Check:
    from zcrawl.runtime.confine import landlock_version

    version = landlock_version()
    if version:
        return Check(
            "spiders", "ok", f"Landlock {version} keeps spiders from reading the worker's key"
        )
    detail = "this system has no Landlock: a spider can read what its worker's user can read"
    return Check("spiders", "warn", detail, "run only spiders that you trust; docs/spiders.md")


def check_commands(settings: Settings) -> Check:
    """Say how the limits of shell jobs are kept, if this machine allows them."""
    from zcrawl.runtime.cgroups import cgroup_place

    shell = settings.config.worker.shell
    if not shell.any and not shell.allow:
        return Check("commands", "ok", "the configuration allows no commands of shell jobs")
    place = cgroup_place(prepare=False)
    if place.folder:
        return Check("commands", "ok", f"limits are kept by {place.why}")
    return Check(
        "commands",
        "warn",
        f"processes and memory are counted every 0.1 s, because there is no cgroup: {place.why}",
        "let the kernel keep the limits: Delegate=yes in the systemd unit; docs/tasks.md",
    )


def check_disk(data: Path) -> Check:
    from zcrawl.cli.output import size

    free = shutil.disk_usage(_existing(data)).free
    detail = f"{size(free)} free"
    if free < DISK_FAIL:
        return Check(
            "disk space", "fail", detail, "free some space: a crawl stops when the disk is full"
        )
    if free < DISK_WARN:
        return Check("disk space", "warn", detail, "a large crawl may fill it")
    return Check("disk space", "ok", detail)


def check_socket_path(data: Path) -> Check:
    length = len(os.fsencode(data)) + SOCKET_NAME
    detail = f"{length} of {SUN_PATH} bytes"
    if length > SUN_PATH:
        return Check("socket paths", "warn", detail, "use a data folder with a shorter path")
    return Check("socket paths", "ok", detail)


def check_keys(settings: Settings) -> Check:
    """Check that the masters' list of allowed keys has a role for each key."""
    file = settings.config.mesh.allow_file
    if not file:
        return Check("keys", "ok", "this configuration has no list of allowed keys")
    from zcrawl.errors import ConfigError
    from zcrawl.mesh.sockets.keys import AllowList

    try:
        allowed = AllowList(Path(file)).poll() or {}
    except ConfigError as error:
        return Check("keys", "fail", str(error), "correct it: masters keep the list they had")
    names = [key.name for key in allowed.values() if not key.has_roles]
    if names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (" ..." if len(names) > NAMES_SHOWN else "")
        detail = f"{file}: no role for {shown}: each may both work and submit"
        advice = "put worker, viewer or operator after the name"
        return Check("keys", "warn", detail, advice)
    return Check("keys", "ok", f"{file}: {len(allowed)} keys, each with a role")


def check_connections(settings: Settings) -> list[Check]:
    """Say of each connection to another service whether it is encrypted."""
    from zcrawl.cli.transport import connection_lines

    return [
        Check(f"{line.name} connection", "ok" if line.well else "warn", line.detail, line.advice)
        for line in connection_lines(settings.config)
    ]


def check_cluster(settings: Settings) -> Check:
    from zcrawl.cli.connect import is_live

    if not is_live(settings):
        return Check("cluster", "ok", "nobody runs here")
    import asyncio

    from zcrawl.cli.connect import running

    async def ask() -> dict[str, Any]:
        async with running(settings) as send_request:
            return await send_request("nodes", {})

    reply = asyncio.run(ask())
    workers, mishaps = reply["workers"], reply.get("mishaps", {})
    if mishaps.get("total"):
        detail = f"its leader failed {mishaps['total']} times by an internal error, "
        detail += f"{mishaps['in_row']} times in a row; the last: {mishaps['last']}"
        advice = "a bug: look for machine_error in the log, and report it"
        return Check("cluster", "fail" if mishaps["in_row"] > 1 else "warn", detail, advice)
    here = [worker for worker in workers if worker["state"] not in ("suspect", "lost", "offline")]
    gone = ", ".join(
        f"{worker['id']} is {worker['state']}" for worker in workers if worker not in here
    )
    detail = f"it runs with {len(here)} workers" + (f"; {gone}" if gone else "")
    if not here:
        return Check("cluster", "warn", detail, "look at `zcrawl nodes`")
    return Check("cluster", "ok", detail)


def check_database(data: Path) -> Check:
    from zcrawl.store.sql.dialects.sqlite_files import check_mark, quick_check

    file = data / DATABASE
    try:
        check_mark(file)
    except ZcrawlError as error:
        what, _, advice = str(error).partition(". ")
        return Check("database", "fail", what, advice)
    if not file.exists():
        return Check("database", "ok", "none yet")
    restore = "restore it from a backup, or move it away and crawl again"
    condition, wrong = quick_check(file)
    if condition == "unreadable":  # the file itself may be undamaged
        advice = "correct its permissions; if the disk is read-only, copy it to another disk"
        return Check("database", "fail", f"{file}: {wrong}", advice)
    if condition == "damaged":
        return Check("database", "fail", f"{file}: {wrong}", restore)
    return Check("database", "ok", f"{file} is not damaged")


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())
