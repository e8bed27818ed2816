"""End a worker process together with its supervisor, and define its exit codes.

It ends with its parent in two ways, each enough by itself: the kernel kills it when the parent's
thread dies (PR_SET_PDEATHSIG), and it ends itself when the pipe from its parent closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from pathlib import Path
from typing import Final

DRAINED: Final = 0  # exit code of a worker that was asked to leave: not started again
REFUSED: Final = 3  # exit code of a worker that the masters refuse: a restart would not help
_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int, pipe: int) -> None:
    """End this process when its parent ends. Call this first."""
    die_with_parent(parent)
    _hold_alone()
    threading.Thread(target=_wait_for_eof, args=(pipe,), name="parent", daemon=True).start()


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Needs no thread."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the pipe remains
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _hold_alone() -> None:
    """Keep inherited descriptors from children of this process. Otherwise a process that a spider
    leaves behind would hold the lock of the data folder."""
    for path in list(Path("/dev/fd").iterdir()):
        fd = int(path.name)
        with contextlib.suppress(OSError):  # closed: it was the listing's own
            os.set_inheritable(fd, fd < 3)


def _wait_for_eof(pipe: int) -> None:
    while True:
        try:
            if not os.read(pipe, 1):
                os._exit(1)
        except InterruptedError:
            continue
        except OSError:
            os._exit(1)
