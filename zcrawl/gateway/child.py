"""A gateway below `zcrawl up` or `zcrawl master`: `python -m zcrawl.gateway.child SPEC`.

It ends with its parent however that dies. SPEC names the files that have the configuration and
none of its values, because everybody can read command lines.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zcrawl.runtime.parent import end_with_parent
from zcrawl.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from zcrawl.mesh.ports import MeshLog

MODULE = "zcrawl.gateway.child"
NAME = "gateway"


class ChildSpec(msgspec.Struct, frozen=True):
    """What the parent tells; the supervisor adds more, which is not read."""

    listener: int  # descriptor of the listening socket
    parent: int
    parent_pipe: int
    config_file: str = ""
    data: str = ""  # the folder of the cluster; empty: the one of the configuration
    log: str = ""  # a file; empty: standard error


def supervise(
    listener: socket.socket,
    *,
    config_file: str | None,
    data: Path | None,
    log: MeshLog,
    log_file: Path | None = None,
    errors: Path | None = None,
) -> Supervisor:
    """Return what starts a gateway on this socket, and starts it again when it dies."""
    spec = {
        "listener": listener.fileno(),
        "config_file": str(Path(config_file).absolute()) if config_file else "",
        "data": str(data) if data is not None else "",
        "log": str(log_file) if log_file is not None else "",
    }
    return Supervisor(MODULE, [NAME], spec, pass_fds=[listener.fileno()], stderr=errors, log=log)


def main(arguments: Sequence[str]) -> None:
    spec = msgspec.json.decode(arguments[0], type=ChildSpec)
    end_with_parent(spec.parent, spec.parent_pipe)
    from zcrawl.gateway.start import run_child
    from zcrawl.runtime.loop import run_async

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
        await run_child(spec.listener, spec.config_file, spec.data, spec.log, stop)

    run_async(run())


if __name__ == "__main__":
    main(sys.argv[1:])
