"""How much memory seeds need while they are submitted: they stream, so it should be none.

    python -m tests.bench.bench_seeds [--seeds 5000000]

Seeds of 1,000 hosts go through the standard input of `zcrawl submit --seeds -` into a real master,
whose one worker has next to nothing to do. Prints the resident memory of client and master after
each tenth, and how fast seeds were taken. The database grows on disk, in a temporary folder.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.bench import say

ZCRAWL = [sys.executable, "-m", "zcrawl"]
HOSTS = 1_000
START_TIMEOUT_S = 30.0


def resident_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


def measure(seeds: int, data: Path) -> None:
    master = subprocess.Popen(
        [*ZCRAWL, "up", "--workers", "1", "--data", data], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while subprocess.run([*ZCRAWL, "nodes", "--data", data], capture_output=True).returncode:
            assert time.monotonic() < deadline, "the master does not answer"
        submit(seeds, data, master.pid)
    finally:
        master.send_signal(signal.SIGTERM)
        master.wait()


def submit(seeds: int, data: Path, master: int) -> None:
    command = [*ZCRAWL, "submit", "--seeds", "-", "--name", "many", "--rate", "0.001"]
    client = subprocess.Popen(
        [*command, "--json", "--data", data],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert client.stdin is not None
    say(f"before: master {resident_mb(master):.0f} MB")
    began = time.monotonic()
    for n in range(seeds):
        client.stdin.write(f"http://h{n % HOSTS}.invalid/a/page/of/usual/length-{n}.html\n")
        if (n + 1) % (seeds // 10) == 0:
            seconds = time.monotonic() - began
            say(
                f"{n + 1:>9,} seeds: client {resident_mb(client.pid):.0f} MB, "
                f"master {resident_mb(master):.0f} MB, {(n + 1) / seconds:,.0f} a second"
            )
    client.stdin.close()
    assert client.wait() == 0, "submit failed"
    say(f"all taken after {time.monotonic() - began:.0f} s; master {resident_mb(master):.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5_000_000)
    with tempfile.TemporaryDirectory(prefix="zcrawl-seeds-") as folder:
        measure(parser.parse_args().seeds, Path(folder))


if __name__ == "__main__":
    main()
