"""Runs one command and tells what it cost, the whole process tree included."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SAMPLE_S = 0.05


class CommandFailed(RuntimeError):
    """The measured command ended with an error; the benchmark has no figure to show."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one run took."""

    wall_s: float
    cpu_s: float  # user + system of the process and of all children it waited for
    peak_mb: float  # the largest sum of resident memory over the process tree that was seen
    stdout: str


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure over several runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int = 0) -> str:
        if self.low == self.high:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    timeout_s: float = 600.0,
    notes: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Cost:
    """Runs a command to its end; what it says goes to files in `notes`, or where it runs. CPU is
    the kernel's own account, from wait4."""
    notes = notes or cwd
    with (notes / "stdout.txt").open("w+") as out, (notes / "stderr.txt").open("w+") as err:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        peak = _PeakMemory(process.pid)
        watchdog = threading.Timer(timeout_s, process.kill)
        peak.start()
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin
        watchdog.cancel()
        peak.stop()
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen asks no more
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            words = " ".join(map(str, command))
            raise CommandFailed(f"{words}\nended with {process.returncode}:\n{err.read()[-3000:]}")
        # ru_maxrss counts the largest single process; the sampled sum counts the tree.
        largest_mb = usage.ru_maxrss / 1024
        return Cost(wall_s, usage.ru_utime + usage.ru_stime, max(peak.mb, largest_mb), out.read())


class _PeakMemory(threading.Thread):
    """Sample the resident memory of a process tree until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="peak-memory", daemon=True)
        self.mb = 0.0
        self._pid = pid
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self.mb = max(self.mb, sum(resident_mb(pid) for pid in tree(self._pid)))

    def stop(self) -> None:
        self._done.set()
        self.join()


def tree(pid: int) -> list[int]:
    """A process and all its descendants, as far as they still live."""
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").glob("*"):
            try:
                pids += [int(child) for child in (task / "children").read_text().split()]
            except OSError:
                continue  # it ended meanwhile and holds no memory
    return pids


def resident_mb(pid: int) -> float:
    """VmRSS, or 0 for a process that ended meanwhile."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
