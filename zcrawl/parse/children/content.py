"""Read the main content of a page in a child process, so that the worker's loop stays free.

Called by the pipeline for jobs with a field `main = true`. Finding the content takes tens of
milliseconds, and on a hostile page it may never end: the child has a time limit, and is replaced
after it. It ends with its parent, because then its input pipe is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from typing import Any, Final

import msgpack

from zcrawl.runtime.child_environment import child_environment

CHILD: Final = "zcrawl.parse.children.content_child"
TIMEOUT_S: Final = 20.0
START_S: Final = 60.0  # its library is large, and the machine may be busy
LENGTH: Final = struct.Struct("!I")


class ContentReader:
    """Reads one page at a time in one child, because more would take CPU cores from the crawl."""

    def __init__(self, timeout_s: float = TIMEOUT_S, module: str = CHILD) -> None:
        self._timeout_s = timeout_s
        self._module = module
        self._lock = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None

    async def read(self, body: bytes, content_type: str, url: str) -> dict[str, Any]:
        """Return {"text", "markdown"}, or {"error"} if the content cannot be read."""
        async with self._lock:
            try:
                child = await self._ready()
                async with asyncio.timeout(self._timeout_s):
                    return await _request(child, [body, content_type, url])
            except TimeoutError:
                await self._end()
                return {"error": f"main content not found within {self._timeout_s} s"}
            except (OSError, EOFError, ValueError) as error:
                await self._end()
                return {"error": f"the reader of main content ended: {error}"}
            except asyncio.CancelledError:
                await self._end()  # the rest of the answer would be mistaken for the next one
                raise

    async def close(self) -> None:
        await self._end()

    async def _ready(self) -> asyncio.subprocess.Process:
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                env=child_environment(os.environ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=2**20,
            )
            async with asyncio.timeout(START_S):
                await _request(self._child, None)  # it answers when its library is loaded
        return self._child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                child.kill()
            await child.wait()


async def _request(child: asyncio.subprocess.Process, request: Any) -> dict[str, Any]:
    assert child.stdin is not None and child.stdout is not None
    data = msgpack.packb(request)
    child.stdin.write(LENGTH.pack(len(data)) + data)
    await child.stdin.drain()
    (length,) = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
    answer: dict[str, Any] = msgpack.unpackb(await child.stdout.readexactly(length))
    return answer
