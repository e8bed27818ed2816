"""Hosts for tests: network namespaces on a bridge, whose links can be cut one by one.

`cut(a, b)` lets nothing through between two hosts, `cut_one_way(a, b)` nothing from a to b; nobody
is told, as when a cable is pulled. Needs root and the kernel's namespaces: `available()` says so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator

_serial = itertools.count(1)


def available() -> bool:
    """Whether this machine lets us make a namespace and a bridge."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"zct{os.getpid()}"
    made = try_ip("netns", "add", name) and try_ip("link", "add", name, "type", "bridge")
    try_ip("link", "del", name)
    try_ip("netns", "del", name)
    return made


class Hosts:
    def __init__(self, names: list[str]) -> None:
        # Names of interfaces have 15 letters at most; several tests run at once.
        self._mark = f"{os.getpid() % 100_000}{next(_serial) % 10}"
        self._net = f"10.{os.getpid() % 200 + 20}.{next(_serial) % 250}"
        self.bridge = f"zcb{self._mark}"
        self.outside = f"{self._net}.1"  # the machine itself
        self.addresses = {name: f"{self._net}.{n}" for n, name in enumerate(names, 10)}

    def open(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.outside}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for number, (name, address) in enumerate(self.addresses.items()):
            space, outer, inner = self.space(name), f"zo{self._mark}{number}", f"zi{self._mark}"
            ip("netns", "add", space)
            ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
            ip("link", "set", outer, "master", self.bridge, "up")
            for command in (
                ("addr", "add", f"{address}/24", "dev", inner),
                ("link", "set", inner, "up"),
                ("link", "set", "lo", "up"),
            ):
                ip("-n", space, *command)

    def close(self) -> None:
        for name in self.addresses:
            try_ip("netns", "del", self.space(name))
        try_ip("link", "del", self.bridge)

    def space(self, name: str) -> str:
        return f"zc{self._mark}-{name}"

    def inside(self, name: str) -> list[str]:
        """What a command begins with that shall run on this host."""
        return ["ip", "netns", "exec", self.space(name)]

    def cut_one_way(self, source: str, target: str) -> None:
        ip("-n", self.space(source), "route", "add", "blackhole", self._address(target))

    def cut(self, host: str, other: str) -> None:
        self.cut_one_way(host, other)
        if other != "outside":
            self.cut_one_way(other, host)

    def mend(self) -> None:
        for name in self.addresses:
            ip("-n", self.space(name), "route", "flush", "type", "blackhole")

    def _address(self, name: str) -> str:
        return self.outside if name == "outside" else self.addresses[name]


@contextlib.contextmanager
def hosts(*names: str) -> Iterator[Hosts]:
    made = Hosts(list(names))
    try:
        made.open()
        yield made
    finally:
        made.close()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def try_ip(*arguments: str) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0
