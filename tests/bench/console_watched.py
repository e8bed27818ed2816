"""A console in a pseudo-terminal, seen from outside: keys, what they show, CPU, memory.

Used by `bench_console`. A key's way to the screen is cut by the marks that the console tells:

    byte written ─input─▶ key in the app ─drawing─▶ picture ─frame─▶ handed over ─terminal─▶ seen

and beside that the time in which the console wanted to run and had no core (the kernel's count).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

from console.main import TEXTUAL
from tests.bench.console_load import MARK

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 10.0


class Way(NamedTuple):
    """One key's way to the screen, in milliseconds."""

    total: float
    input: float
    drawing: float
    frame: float
    terminal: float
    no_core: float  # of all that: it waited for a core
    snapshot: float  # of all that: a snapshot was taken in
    collector: float  # of all that: garbage was collected


class Watched:
    def __init__(self, folder: str) -> None:
        self._marks, writing = os.pipe()
        os.set_blocking(self._marks, False)
        os.set_inheritable(writing, True)
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # Before Textual is imported, as `zcrawl console` does it.
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", **TEXTUAL)
            module = [sys.executable, "-m", "tests.bench.console_load", folder, str(writing)]
            os.execv(sys.executable, module)
        os.close(writing)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))

    # ------------------------------------------------------------ keys

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._fd], [], [], seconds)
        return os.read(self._fd, 1 << 16) if ready else b""

    def drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)
        self.marks()

    def shows(self, key: bytes, words: str) -> Way:
        """From the write of the key to the arrival of the words."""
        expected, seen = words.encode(), b""
        self.marks()
        waited = self._no_core_ms()
        began = time.perf_counter()
        self.press(key)
        while expected not in seen:
            seen += self.read(PATIENCE_S)
            if time.perf_counter() - began > PATIENCE_S:
                raise RuntimeError(f"{key!r} never showed {words!r}")
        return self._way(began, time.perf_counter(), self._no_core_ms() - waited)

    def wait_for(self, *words: str) -> None:
        """Read until all of these were on the screen."""
        seen, until = b"", time.monotonic() + PATIENCE_S
        while not all(word.encode() in seen for word in words):
            seen += self.read(PATIENCE_S)
            if time.monotonic() > until:
                missing = [word for word in words if word.encode() not in seen]
                raise RuntimeError(f"never shown: {missing}")

    def _way(self, began: float, ended: float, no_core: float) -> Way:
        marks = self.marks()
        key_at = min((since for what, since, _ in marks if what == b"k"), default=began)
        drawn_at = min(
            (until for what, since, until in marks if what == b"d" and since >= key_at),
            default=key_at,
        )
        handed = [until for what, _, until in marks if what == b"p" and drawn_at <= until <= ended]
        handed_at = max(handed, default=drawn_at)

        def sum_of(kind: bytes) -> float:
            return sum(
                max(0.0, min(until, ended) - max(since, began))
                for what, since, until in marks
                if what == kind
            )

        return Way(
            total=(ended - began) * 1000,
            input=(key_at - began) * 1000,
            drawing=(drawn_at - key_at) * 1000,
            frame=(handed_at - drawn_at) * 1000,
            terminal=(ended - handed_at) * 1000,
            no_core=no_core,
            snapshot=sum_of(b"s") * 1000,
            collector=sum_of(b"g") * 1000,
        )

    def marks(self) -> list[tuple[bytes, float, float]]:
        data = b""
        with contextlib.suppress(BlockingIOError):  # there are no more
            while more := os.read(self._marks, MARK.size * 1000):
                data += more
        return list(MARK.iter_unpack(data))

    # ------------------------------------------------------------ the kernel's count

    def _no_core_ms(self) -> float:
        """Ready to run, and not running: of Python's threads, which take turns."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            if not (task / "comm").read_text().startswith("ZMQ"):
                total += int((task / "schedstat").read_text().split()[1])
        return total / 1e6

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(entry for entry in status.splitlines() if entry.startswith("VmRSS"))
        return int(line.split()[1]) / 1000

    def close(self) -> None:
        self.press(b"q")
        until = time.monotonic() + PATIENCE_S
        while (gone := os.waitpid(self.pid, os.WNOHANG)[0]) == 0 and time.monotonic() < until:
            with contextlib.suppress(OSError):  # the other end is closed: it has ended
                self.read(0.1)
        if gone == 0:
            print(f"the console did not end within {PATIENCE_S:.0f} s of its q: killed", flush=True)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)
        os.close(self._marks)
