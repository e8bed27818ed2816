"""What a daemon tells the service manager that started it (systemd's notify protocol).

A datagram of `KEY=value` lines to the socket named in NOTIFY_SOCKET; without one, nothing is told.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notify:
    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        own = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environ.get("WATCHDOG_USEC", "0") if own else "0"
        # Half of the time that is allowed; 0: nobody watches.
        self.watchdog_s = int(watchdog_us) / 2_000_000 if watchdog_us.isdigit() else 0.0

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._tell(f"STATUS={status}")

    def alive(self) -> None:
        if self.watchdog_s:
            self._tell("WATCHDOG=1")

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):  # Linux's abstract names
            address = "\0" + address[1:]
        text = "\n".join(line.replace("\n", " ") for line in lines)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            try:
                line.sendto(text.encode(), address)
            except OSError:
                self._address = ""  # nobody listens there: what is told is for people, not needed
