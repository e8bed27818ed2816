"""Celery's part of `make bench-dispatch`: broker and results in Redis, and two worker processes.

    .bench/celery-venv/bin/python -m tests.bench.dispatch_celery throughput|latency|together [...]

Runs in a venv of its own, without zcrawl; starts a redis-server and the workers, in a temporary
folder. Prints its figures as JSON.

Durability: Redis writes to its append-only file and syncs it once a second. So the last second of
tasks and results is lost with the machine's power. `acks_late`: the task of a dead worker runs
again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from celery import Celery, group

from tests.bench import dispatch_shared as shared
from tests.bench.dispatch_shared import PIECE, Meter

SOCKET: Final = "ZCRAWL_BENCH_REDIS"
START_TIMEOUT_S: Final = 60.0

_url = f"redis+socket://{os.environ.get(SOCKET, '/not-started')}"
app = Celery("dispatch", broker=_url, backend=_url)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=64,  # the default is 4; more suits short tasks
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(number: int) -> None:
    return None


@app.task(name="stamp")
def stamp(submitted_at: float, number: int) -> float:
    return time.monotonic() - submitted_at


@app.task(name="stay")
def stay(number: int) -> tuple[float, float]:
    begin = time.monotonic()
    time.sleep(shared.STAY_S)
    return begin, time.monotonic()


def throughput(tasks: int, processes: list[int]) -> dict[str, Any]:
    group(noop.s(n) for n in range(PIECE)).apply_async().get()
    meter = Meter(*processes)
    results = [
        group(noop.s(n) for n in range(at, min(at + PIECE, tasks))).apply_async()
        for at in range(0, tasks, PIECE)
    ]
    for result in results:
        result.get()
    return meter.figures(tasks)


def latency(seconds: int) -> dict[str, Any]:
    begin, results = time.monotonic(), []
    for at in range(int((seconds + 1) / shared.EACH_S)):
        time.sleep(max(0.0, begin + at * shared.EACH_S - time.monotonic()))
        now = time.monotonic()
        results.append(group(stamp.s(now, n) for n in range(shared.SIZE)).apply_async())
    waited_s = [value for result in results for value in result.get()]
    return shared.percentiles(waited_s[shared.PER_SECOND :])


def together(tasks: int) -> dict[str, Any]:
    begin = time.monotonic()
    return shared.most_at_once(begin, group(stay.s(n) for n in range(tasks)).apply_async().get())


def redis(folder: Path) -> subprocess.Popen[bytes]:
    options = ["--port", "0", "--unixsocket", os.environ[SOCKET], "--dir", str(folder)]
    options += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
    with (folder / "redis.log").open("w") as log:
        return subprocess.Popen(["redis-server", *options], stdout=log)


def workers(folder: Path, what: str, tasks: int) -> list[subprocess.Popen[bytes]]:
    """Two processes that each execute tasks themselves, without the pipes of a pool; or two with
    so many threads."""
    command = [sys.executable, "-m", "celery", "-A", __spec__.name, "worker", "-l", "WARNING"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    pool = ["-P", "solo"]
    if what == "together":
        pool = ["-P", "threads", "-c", str(tasks // shared.WORKERS), "--prefetch-multiplier", "1"]
    with (folder / "celery.log").open("w") as log:
        return [
            subprocess.Popen([*command, *pool, "-n", f"w{n}"], stdout=log, stderr=log)
            for n in range(shared.WORKERS)
        ]


def measured(processes: list[int]) -> dict[str, Any]:
    options = shared.parsed()
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(app.control.ping(timeout=1.0)) < shared.WORKERS:
        if time.monotonic() > deadline:
            raise SystemExit("Celery's workers do not answer")
    match options.what:
        case "throughput":
            return throughput(options.tasks, processes)
        case "latency":
            return latency(options.seconds)
        case _:
            return together(options.tasks)


def main() -> None:
    if SOCKET in os.environ:  # the configuration above has the place of the server
        print(json.dumps(measured([int(pid) for pid in os.environ["PIDS"].split()])))
        return
    options = shared.parsed()
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as name:
        folder = Path(name)
        os.environ[SOCKET] = str(folder / "redis.sock")
        processes = [redis(folder)]
        try:
            processes += workers(folder, options.what, options.tasks)
            os.environ["PIDS"] = " ".join(str(process.pid) for process in processes)
            subprocess.run([sys.executable, "-m", __spec__.name, *sys.argv[1:]], check=True)
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait()


if __name__ == "__main__":
    main()
