"""A small internet of its own for one test: public addresses, ports 80 and 443, and its own DNS.

A network namespace whose loopback has the addresses; servers of the test go in with their thread
(`WebThread(web, net.enter)`), the crawler as a command (`net.run`). Its resolver is the system's,
pointed by resolv.conf to a DNS server that answers what the test wants, each time anew: what a
crawler meets outside, and nothing of the product knows. Needs root: `namespaces.available()`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.servers.namespaces import ip, try_ip

_serial = itertools.count(1)
_CLONE_NEWNET = 0x40000000
_INTO = 'mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'
_TYPE_A = 1

# From a name, and how often it was asked for before, to its IPv4 addresses; none: no such name.
Zone = Callable[[str, int], list[str]]


class Internet:
    def __init__(self, folder: Path, zone: Zone, *addresses: str) -> None:
        self.lookups: Counter[str] = Counter()  # look-ups of each name
        self.space = f"zci{os.getpid()}-{next(_serial)}"
        self._files = (folder / "resolv.conf", folder / "hosts")
        self._zone = zone
        self._addresses = addresses
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="dns", daemon=True)
        self._ready = threading.Event()

    def open(self) -> None:
        self._files[0].write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:3\n")
        self._files[1].write_text("127.0.0.1 localhost\n")
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "set", "lo", "up")
        for address in self._addresses:
            ip("-n", self.space, "addr", "add", f"{address}/32", "dev", "lo")
        self._thread.start()
        assert self._ready.wait(10), "the DNS server did not come up"

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        try_ip("netns", "del", self.space)

    def enter(self) -> None:
        """Take the calling thread in: the sockets that it makes from now on are of this net."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{self.space}").open() as net:
            if libc.setns(net.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def run(self, *command: str, cwd: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
        inside = ["ip", "netns", "exec", self.space, "sh", "-c", _INTO, "sh"]
        return subprocess.run(
            [*inside, *map(str, self._files), *command],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def _serve(self) -> None:
        self.enter()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.1", 53))
            server.settimeout(0.2)  # closing does not wake a thread that receives
            self._socket = server
            self._ready.set()
            while server.fileno() != -1:
                with contextlib.suppress(TimeoutError, OSError):
                    question, sender = server.recvfrom(512)
                    server.sendto(self._answer(question), sender)

    def _answer(self, question: bytes) -> bytes:
        """RFC 1035: the header, the question as it came, the addresses, which nobody may keep."""
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode("ascii"))
            at += 1 + length
        name = ".".join(labels).lower()
        (kind,) = struct.unpack_from("!H", question, at + 1)
        addresses: list[str] = []
        if kind == _TYPE_A:  # of AAAA there are none
            addresses = self._zone(name, self.lookups[name])
            self.lookups[name] += 1
        no_such_name = kind == _TYPE_A and not addresses
        flags = 0x8180 | (3 if no_such_name else 0)
        records = b"".join(
            struct.pack("!HHHIH4s", 0xC00C, _TYPE_A, 1, 0, 4, socket.inet_aton(address))
            for address in addresses
        )
        head = question[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0)
        return head + question[12 : at + 5] + records


@contextlib.contextmanager
def internet(folder: Path, zone: Zone, *addresses: str) -> Iterator[Internet]:
    made = Internet(folder, zone, *addresses)
    try:
        made.open()
        yield made
    finally:
        made.close()
