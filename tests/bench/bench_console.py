"""`make bench-console`: what the console costs, and what ten of them cost the leader.

The console runs in a real pseudo-terminal of 160 × 48, on a leader in another process; a key's time
is from the write of its byte to the arrival of the new page's own words, page by page and cut by
what it was spent on (`console_watched`). CPU and memory are the kernel's count of the process.
The leader's cost is that of the real machine with 500 workers, 200 runs and 10,000 hosts in its
memory, and real sockets to ten subscribers in another process.

`--only start`: the first full picture; `keys`, `cpu`, `leader`; `--only hurry`: the memory of
half an hour's snapshots and keys in a minute; `--only memory`: of half an hour (`--minutes`), with
a line a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from console.state import MAIN_PAGES
from tests.bench.console_master import HOSTS, JOBS, WORKERS
from tests.bench.console_watched import Watched, Way
from tests.unit.machine_tools import LeaderStory, heartbeat, hello, spec
from zcrawl.master import events as m
from zcrawl.master.snapshot import published
from zcrawl.mesh.messages import ClientRequest, Snapshot
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.sockets.master import ZmqMasterMesh

# A key, and what only the page that it leads to shows.
KEYS = [
    (b"2", "Memory"),
    (b"3", "Progress"),
    (b"4", "Delayed"),
    (b"5", "Robots"),
    (b"9", "24 h"),
    (b"8", "Level"),
    (b"7", "What"),
    (b"6", "Newest URL"),
    (b"1", "Why not faster"),
]
PAGES = {str(n).encode(): str(page) for n, page in enumerate(MAIN_PAGES, 1)}
PARTS = ("input", "drawing", "frame", "terminal")
ASIDE = ("no_core", "snapshot", "collector")
CONSOLES = 10
HALF_HOUR = 1_800  # snapshots
# What is wanted, at most.
KEY_MS, CPU_PERCENT, START_S, LEADER_PERCENT = 30.0, 5.0, 1.5, 2.0
SLOPE_KB = 50.0  # a minute: 3 MB an hour
# What a snapshot and the first answers bring; an ETA needs a second snapshot.
FULL_PICTURE = ("pages/s", "rate limit", "queued", "busy", "job-199")
HURRY_S = 0.03  # between two snapshots: 33 times as fast


# ---------------------------------------------------------------- the console


@contextlib.contextmanager
def leading(interval_s: float) -> Iterator[str]:
    """A leader that speaks so often; the folder of its sockets."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.bench.console_master", folder, str(interval_s)]
        leader = subprocess.Popen(command)
        try:
            yield folder
        finally:
            leader.terminate()
            leader.wait()


@contextlib.contextmanager
def watched(interval_s: float = 1.0) -> Iterator[Watched]:
    """A console on a leader that speaks so often."""
    with leading(interval_s) as folder:
        console = Watched(folder)
        try:
            console.drain(6.0)
            yield console
        finally:
            console.close()


def bench_keys(console: Watched, rounds: int) -> None:
    ways: dict[str, list[Way]] = {}
    cpu, at = console.cpu_s(), time.monotonic()
    for number in range(rounds):
        for key, shows in KEYS:
            ways.setdefault(PAGES[key], []).append(console.shows(key, shows))
            console.drain(0.11 + 0.013 * (number % 7))  # at all moments of the leader's second
    busy, passed = console.cpu_s() - cpu, time.monotonic() - at
    console.shows(b"2", "Memory")
    for number in range(rounds * 4):
        ways.setdefault("j on nodes", []).append(console.shows(b"j", "▶"))
        console.drain(0.05 + 0.007 * (number % 7))
    console.shows(b"3", "Progress")
    for number in range(rounds):
        console.drain(0.1)
        console.press(b"\r")
        console.drain(0.3 + 0.02 * (number % 5))
        ways.setdefault("escape of a job", []).append(console.shows(b"\x1b", "Progress"))
        console.drain(0.1)
    show_ways(ways)
    pages = [way.total for name, all in ways.items() if name in PAGES.values() for way in all]
    alone = [
        way.total - way.no_core
        for name, all in ways.items()
        if name in PAGES.values()
        for way in all
    ]
    show("page key p50 ms", statistics.median(pages))
    show("page key p95 ms", quantile(pages), KEY_MS)
    show("page key p95 ms, without its wait for a core", quantile(alone))
    show("CPU while a page is opened 5 times a second %", busy / passed * 100)


def show_ways(ways: dict[str, list[Way]]) -> None:
    print(f"{'key to screen, ms':18}{'p50':>7}{'p95':>7}  ", end="")
    print("mean of: " + "".join(f"{name:>10}" for name in (*PARTS, *ASIDE)))
    for name, all in ways.items():
        totals = [way.total for way in all]
        parts = (statistics.mean(getattr(way, part) for way in all) for part in (*PARTS, *ASIDE))
        print(f"  {name:16}{statistics.median(totals):7.1f}{quantile(totals):7.1f}  ", end="")
        print(" " * 9 + "".join(f"{part:10.1f}" for part in parts), flush=True)


def quantile(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def bench_cpu(console: Watched, seconds: float) -> None:
    for key, name in PAGES.items():
        console.press(key)
        console.drain(2.0)
        before, at = console.cpu_s(), time.monotonic()
        console.drain(seconds / len(PAGES))
        cpu = (console.cpu_s() - before) / (time.monotonic() - at) * 100
        show(f"CPU on {name} %", cpu, CPU_PERCENT)


def bench_start(rounds: int) -> None:
    """From the start of the process to a picture with all figures of the overview."""
    times: list[float] = []
    cpu: list[float] = []
    with leading(1.0) as folder:
        for _ in range(rounds):
            began = time.monotonic()
            console = Watched(folder)
            try:
                console.wait_for(*FULL_PICTURE)
                times.append(time.monotonic() - began)
                cpu.append(console.cpu_s())
            finally:
                console.close()
    show("first full picture s, median", statistics.median(times), START_S)
    show("first full picture s, slowest", max(times))
    show("CPU s of the console until then, median", statistics.median(cpu))


def bench_memory(console: Watched, seconds: float, step_s: float, speed: float) -> None:
    """A key a second or more, all pages in turn. In the first sixth of half an hour it fills what
    it remembers: 300 seconds of rates, 500 lines, 30 answers. `speed`: seconds of the cluster in a
    second."""
    began = time.monotonic()
    keys = itertools.cycle(b"1j2jj3\r\x1b4\r\x1b5jj\r\x1b6\r\x1b7\r\x1b8 j9s")
    sizes_mb: list[float] = []
    while time.monotonic() - began < seconds:
        until = time.monotonic() + step_s
        while time.monotonic() < until:
            console.press(bytes([next(keys)]))
            console.drain(min(1.0, step_s / 60))
        sizes_mb.append(console.rss_mb())
        cpu = console.cpu_s()
        show(f"RSS MB after {time.monotonic() - began:7.0f} s, {cpu:6.1f} s CPU", sizes_mb[-1])
    full = len(sizes_mb) // 6
    show("RSS grown MB, first sixth", sizes_mb[full] - sizes_mb[0])
    show("RSS grown MB, the rest", sizes_mb[-1] - sizes_mb[full])
    half = len(sizes_mb) // 2
    minutes = [n * step_s * speed / 60 for n in range(half, len(sizes_mb))]
    slope = statistics.linear_regression(minutes, sizes_mb[half:]).slope
    show("RSS slope, second half, kB a minute of the cluster", slope * 1000, SLOPE_KB)


# ---------------------------------------------------------------- the leader


def big_leader() -> LeaderStory:
    story = LeaderStory().elect()
    story.master.check = lambda now: None  # type: ignore[method-assign]
    for n in range(WORKERS):  # before the hosts: each that joins has every host looked at again
        story.hear(hello(), f"w{n}")
        story.hear(heartbeat(story.now), f"w{n}")
    for n in range(JOBS):
        share = HOSTS // JOBS
        seeds = [f"http://h{n * share + host}.test/" for host in range(share)]
        of = msgspec.to_builtins(spec()) | {"name": f"job{n}", "tags": [f"t{n % 20}"]}
        args = {"spec": of, "mode": "new", "seeds": seeds}
        story.handle(m.ClientAsked(b"c", ClientRequest(f"s{n}", "submit", args)))  # and no planning
    return story


def ask(story: LeaderStory, number: int, op: str, args: dict[str, Any]) -> None:
    event = m.ClientAsked(b"c", ClientRequest(f"b{number}", op, args))
    story.leader.handle(event, story.now)


WANTS: list[tuple[str, dict[str, Any]]] = [
    ("hosts", {"limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("hosts", {"limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("hosts", {"limit": 200, "sort": "host", "offset": 0, "filter": "h77"}),
    ("queues", {"by": "tag", "limit": 200, "sort": "queued", "desc": True, "offset": 0}),
    ("queues", {"by": "host", "limit": 200, "sort": "queued", "desc": True, "offset": 0}),
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
    return msgspec.msgpack.encode(published(story.leader.current_snapshot(story.now)))


async def _publish(story: LeaderStory, mesh: ZmqMasterMesh, seconds: int, asks: bool) -> float:
    """CPU seconds a second, of this whole process, with its sockets' threads."""
    began, at = time.process_time(), time.monotonic()
    number = 0
    for _ in range(seconds):
        story.now += 1.0
        mesh.publish(1, Snapshot(published(story.leader.current_snapshot(story.now))))
        if asks:
            for op, args in WANTS:
                number += 1
                ask(story, number, op, args)
        await asyncio.sleep(1.0)
    return (time.process_time() - began) / (time.monotonic() - at)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--only", choices=("start", "keys", "cpu", "hurry", "memory", "leader"))
    options = parser.parse_args()
    parts = (options.only,) if options.only else ("start", "keys", "cpu", "hurry", "leader")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{WORKERS} workers, {JOBS} jobs, {HOSTS} hosts, 2,000 pages/s simulated", flush=True)
    if "start" in parts:
        bench_start(options.starts)
    if {"keys", "cpu"} & set(parts):
        with watched() as console:
            if "keys" in parts:
                bench_keys(console, options.rounds)
            if "cpu" in parts:
                bench_cpu(console, options.seconds)
    if "hurry" in parts:
        print(f"{HALF_HOUR} snapshots, one every {HURRY_S * 1000:.0f} ms")
        with watched(HURRY_S) as console:
            bench_memory(console, HALF_HOUR * HURRY_S, HALF_HOUR * HURRY_S / 18, 1 / HURRY_S)
    if "memory" in parts:
        with watched() as console:
            bench_memory(console, options.minutes * 60, 60.0, 1.0)
    if "leader" in parts:
        for name, value in asyncio.run(bench_leader(int(options.seconds / 3))).items():
            show(name, value, LEADER_PERCENT if name.startswith("cost") else None)


def show(name: str, value: float, most: float | None = None) -> None:
    """Print a figure, and whether it is within what is wanted of it."""
    verdict = "" if most is None else f"   (at most {most:g}: {'yes' if value <= most else 'NO'})"
    print(f"{name:52} {value:8.2f}{verdict}", flush=True)


if __name__ == "__main__":
    main()
