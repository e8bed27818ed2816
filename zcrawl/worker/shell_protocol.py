"""What a worker and the process that watches a command say to each other.

The worker writes one frame with a `ShellOrder`, then at most the byte CANCEL. The end of that pipe
means that the worker is gone. The other side answers with one frame, a `ShellAnswer`, and the kept
output behind it. The order has secrets, so it goes through a pipe: command lines and environments
can be seen by others. Pure.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

LENGTH: Final = struct.Struct("!I")
CANCEL: Final = b"c"
BROKEN: Final = "broken"  # the cause if the watching process has a bug
MOST_FRAME_BYTES: Final = 1_000_000
TAIL_BYTES: Final = 32_768  # the end of an output that its item shows
RING_BYTES: Final = TAIL_BYTES + 8_192  # with room for a secret that begins before it


class ShellOrder(msgspec.Struct, frozen=True):
    argv: list[str]
    env: dict[str, str]
    cwd: str  # empty: `folder`
    folder: str  # made for the command, and removed afterwards
    timeout_s: float
    cpu_s: int
    memory: int  # bytes: of all processes together, and address space of each
    max_output: int  # bytes of each stream that are kept from its beginning
    closed: list[str]  # files that the command must not read
    max_processes: int  # processes and threads at the same time
    cgroup: str = ""  # the folder of the command's cgroup; empty: the watcher counts


class StreamSizes(msgspec.Struct, frozen=True):
    """The output of one stream: all bytes, and how many of them follow the answer."""

    total: int = 0
    kept: int = 0  # from its beginning
    tail: int = 0  # of its end, if it has more than is kept


class ShellAnswer(msgspec.Struct, frozen=True):
    cause: str = ""  # of `CommandLife`, or broken; empty: not started
    exit_code: int = 0  # negative: the number of the signal
    signal: str = ""  # its name
    error: str = ""  # why it was not started, or how the watching process broke
    elapsed_ms: float = 0.0
    cpu_s: float = 0.0
    max_rss: int = 0  # bytes, of the largest process
    stdout: StreamSizes = StreamSizes()
    stderr: StreamSizes = StreamSizes()
    cgroup: str = ""  # why it had no cgroup although one was ordered


def frame(message: ShellOrder | ShellAnswer) -> bytes:
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data
