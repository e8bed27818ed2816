"""What the tests of whole crawls share: one in this process, one by the command, and a wait."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from zcrawl.model.spec import JobSpec, Politeness
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.read import to_dict

PATIENCE_S = 60.0
FAST = Politeness(rate=0.0, concurrency=16, spread=True)
ZCRAWL = [sys.executable, "-m", "zcrawl"]


def submission(spec: JobSpec, seeds: list[str], out: Path | None) -> dict[str, Any]:
    return {
        "spec": to_dict(spec),
        "mode": "update",
        "seeds": seeds,
        "seeding": False,
        "vouched": seeds,
        "output": [str(out), "csv" if out.suffix == ".csv" else "jsonl"] if out else None,
    }


async def until(what: Callable[..., bool], patience_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(patience_s):
        while not what():  # noqa: ASYNC110 - processes and files set no event
            await asyncio.sleep(0.02)


def wait_until(what: Callable[..., bool], patience_s: float = PATIENCE_S) -> None:
    """Look often at first; what takes seconds is asked of processes that have other work to do."""
    deadline, pause_s = time.monotonic() + patience_s, 0.02
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 0.15)


OVER = ("completed", "failed")  # a run that nobody ended: it is judged at its end


def run_of(cluster: EmbeddedCluster, run: int) -> dict[str, Any]:
    runs = [msgspec.structs.asdict(view) for view in cluster.snapshot().runs if view.run == run]
    return runs[0] if runs else {}


async def crawl(
    cluster: EmbeddedCluster, spec: JobSpec, seeds: list[str], out: Path | None = None
) -> dict[str, Any]:
    """Submit, wait for the end, flush; the job's view."""
    reply = await cluster.ask("submit", submission(spec, seeds, out))
    try:
        await until(lambda: run_of(cluster, reply["run"]).get("state") in OVER)
    except TimeoutError:
        raise AssertionError(f"not finished: {cluster.snapshot()}") from None
    await cluster.flush_outputs()
    return await cluster.ask("job", {"ref": str(reply["job"])})


def command(*args: object, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ZCRAWL, *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **options,
    )


def start(*args: object, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ZCRAWL, *map(str, args)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a test's Ctrl-C goes to it alone
    )


def items(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended meanwhile
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                pids.append(int(folder.name))
    return pids
