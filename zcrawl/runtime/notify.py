"""Send the state of a daemon to its service manager (systemd's notify protocol).

Each message is a datagram of `KEY=value` lines to the socket named in NOTIFY_SOCKET; without that
variable nothing is sent. Sending never blocks: if the manager is slow, messages are sent later.
"""

from __future__ import annotations

import collections
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

MOST_WAITING: Final = 20  # the newest count


class Notify:
    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # Linux's abstract names
            self._address = "\0" + self._address[1:]
        self._waiting: collections.deque[str] = collections.deque(maxlen=MOST_WAITING)
        own = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environ.get("WATCHDOG_USEC", "0") if own else "0"
        # Half of the time that is allowed; 0: nobody watches.
        self.watchdog_s = int(watchdog_us) / 2_000_000 if watchdog_us.isdigit() else 0.0

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._tell(f"STATUS={status}")

    def alive(self) -> None:
        """Send the watchdog signal if it is due. Call this twice a second."""
        if self.watchdog_s and not self._waiting:
            self._tell("WATCHDOG=1")
        elif self._waiting:
            self._send()

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if self._address:
            self._waiting.append("\n".join(line.replace("\n", " ") for line in lines))
            self._send()

    def _send(self) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, kind) as line:
            while self._waiting:
                try:
                    line.sendto(self._waiting[0].encode(), self._address)
                except BlockingIOError:
                    return  # its queue is full
                except OSError:
                    self._address = ""  # nobody listens: what is told is for people, not needed
                    self._waiting.clear()
                    return
                self._waiting.popleft()
