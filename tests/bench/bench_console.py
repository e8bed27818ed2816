"""`make bench-console`: what the console costs, and what ten of them cost the leader.

The console runs in a real pseudo-terminal of 160 × 48; a key's time is from the write of its byte
to the arrival of the new page's own words. CPU and memory are the kernel's count of the process.
The leader is the real machine with 500 workers, 200 runs and 10,000 hosts in its memory, and real
sockets to ten subscribers in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.console_load import HOSTS, JOBS, WORKERS
from tests.unit.machine_tools import LeaderStory, heartbeat, hello, spec
from zcrawl.master import events as m
from zcrawl.mesh.mesh_zmq_master import ZmqMasterMesh
from zcrawl.mesh.messages import Request, Snapshot
from zcrawl.mesh.ports import Endpoints

TICKS = os.sysconf("SC_CLK_TCK")
# A key, and what only the page that it leads to shows.
KEYS = [
    (b"2", "Memory"),
    (b"3", "Progress"),
    (b"5", "Why it waits"),
    (b"9", "Latency"),
    (b"8", "Level"),
    (b"7", "What"),
    (b"6", "Newest URL"),
    (b"1", "Why not faster"),
]
CONSOLES = 10


# ---------------------------------------------------------------- the console


class Watched:
    """A console in a pseudo-terminal."""

    def __init__(self) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            os.execv(sys.executable, [sys.executable, "-m", "tests.bench.console_load"])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))

    def read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._fd], [], [], seconds)
        return os.read(self._fd, 1 << 16) if ready else b""

    def drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)

    def key_ms(self, key: bytes, shows: str) -> float:
        wanted, seen = shows.encode(), b""
        began = time.perf_counter()
        os.write(self._fd, key)
        while wanted not in seen:
            seen += self.read(5.0)
            if time.perf_counter() - began > 10:
                raise RuntimeError(f"{key!r} never showed {shows!r}")
        return (time.perf_counter() - began) * 1000

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1000

    def close(self) -> None:
        os.write(self._fd, b"q")
        os.waitpid(self.pid, 0)
        os.close(self._fd)


def bench_console(rounds: int, seconds: float) -> dict[str, float]:
    console = Watched()
    try:
        console.drain(6.0)
        taken: list[float] = []
        cpu, at = console.cpu_s(), time.monotonic()
        for _ in range(rounds):
            for key, shows in KEYS:
                taken.append(console.key_ms(key, shows))
                console.drain(0.12)
        busy, passed = console.cpu_s() - cpu, time.monotonic() - at
        moves: list[float] = []
        console.key_ms(b"2", "Memory")
        for _ in range(rounds * 4):
            moves.append(console.key_ms(b"j", "▶"))
            console.drain(0.05)
        figures = {
            "page key p50 ms": statistics.median(taken),
            "page key p95 ms": statistics.quantiles(taken, n=20)[-1],
            "cursor key p95 ms": statistics.quantiles(moves, n=20)[-1],
        }
        for page, name in ((b"1", "overview"), (b"2", "nodes"), (b"5", "hosts")):
            os.write(console._fd, page)
            console.drain(2.0)
            before, at = console.cpu_s(), time.monotonic()
            console.drain(seconds / 3)
            spent = (console.cpu_s() - before) / (time.monotonic() - at)
            figures[f"CPU on {name} %"] = spent * 100
        steady_s = figures["CPU on overview %"] / 100 * passed
        figures["CPU of a page key ms"] = max(0.0, busy - steady_s) / len(taken) * 1000
        first = console.rss_mb()
        console.drain(seconds)
        figures |= {"RSS MB": console.rss_mb(), "RSS grown MB": console.rss_mb() - first}
        return figures
    finally:
        console.close()


# ---------------------------------------------------------------- the leader


def big_leader() -> LeaderStory:
    story = LeaderStory().elect()
    story.master.check = lambda now: None  # type: ignore[method-assign]
    for n in range(WORKERS):  # before the hosts: each that joins has every host looked at again
        story.hear(hello(), f"w{n}")
        story.hear(heartbeat(story.now), f"w{n}")
    for n in range(JOBS):
        share = HOSTS // JOBS
        seeds = [f"http://h{n * share + one}.test/" for one in range(share)]
        of = msgspec.to_builtins(spec()) | {"name": f"job{n}"}
        args = {"spec": of, "mode": "new", "seeds": seeds}
        story.handle(m.ClientAsked(b"c", Request(f"s{n}", "submit", args)))  # and no planning
    return story


def ask(story: LeaderStory, number: int, op: str, args: dict[str, Any]) -> None:
    asked = m.ClientAsked(b"c", Request(f"b{number}", op, args))
    story.leader.handle(asked, story.now)


WANTS: list[tuple[str, dict[str, Any]]] = [
    ("hosts", {"limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("hosts", {"limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("hosts", {"limit": 200, "sort": "host", "offset": 0, "filter": "h77"}),
    ("queues", {"limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("queues", {"limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("errors", {"limit": 200, "sort": "count", "desc": True, "offset": 0}),
    ("overview", {}),
    ("overview", {}),
    ("overview", {}),
    ("history", {"span_s": 900}),
]


async def bench_leader(seconds: int) -> dict[str, float]:
    story = big_leader()
    with tempfile.TemporaryDirectory() as folder:
        ends = Endpoints("m1", *(f"ipc://{folder}/{name}" for name in ("ctl", "rep", "evt")))
        with ZmqMasterMesh(ends, 1) as mesh:
            mesh.listen(lambda arrived: None)
            alone = await _publish(story, mesh, seconds, asks=False)
            command = [sys.executable, "-m", "tests.bench.console_listeners", ends.events]
            ears = await asyncio.create_subprocess_exec(*command, str(CONSOLES))
            await asyncio.sleep(3.0)
            watched = await _publish(story, mesh, seconds, asks=True)
            ears.terminate()
            await ears.wait()
    return {
        "snapshot alone, CPU %": alone * 100,
        f"with {CONSOLES} consoles, CPU %": watched * 100,
        f"cost of {CONSOLES} consoles, CPU %": (watched - alone) * 100,
        "snapshot kB": len(_encoded(story)) / 1000,
    }


def _encoded(story: LeaderStory) -> bytes:
    import msgpack

    packed: bytes = msgpack.packb(story.leader.current_snapshot(story.now))
    return packed


async def _publish(story: LeaderStory, mesh: ZmqMasterMesh, seconds: int, asks: bool) -> float:
    """CPU seconds a second, of this whole process, with its sockets' threads."""
    began, at = time.process_time(), time.monotonic()
    number = 0
    for _ in range(seconds):
        story.now += 1.0
        mesh.publish(1, Snapshot(story.leader.current_snapshot(story.now)))
        if asks:
            for op, args in WANTS:
                number += 1
                ask(story, number, op, args)
        await asyncio.sleep(1.0)
    return (time.process_time() - began) / (time.monotonic() - at)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{WORKERS} workers, {JOBS} jobs, {HOSTS} hosts, 2,000 pages/s simulated")
    _show(bench_console(options.rounds, options.seconds))
    _show(asyncio.run(bench_leader(int(options.seconds / 3))))


def _show(figures: dict[str, float]) -> None:
    for name, value in figures.items():
        print(f"{name:36} {value:8.1f}", flush=True)


if __name__ == "__main__":
    main()
