"""Run the commands of shell jobs, each under a process that watches it.

Made by `extensions` when a run of such a job is adopted; for all other runs this module is not even
loaded. `shell_child` is the watching process: it limits the command, reads its output, and ends it
with all that it started, whatever becomes of this worker. Here is decided whether the command may
run at all, which secrets it gets, and what becomes of its output (`results.shell_output`).

A command is ended when its request is cancelled, when its time is over, when the worker has died,
and 10 s after the worker began to leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl.errors import FetchError, PluginError, RetryClass
from zcrawl.frontier.extra import is_start
from zcrawl.mesh.messages import PageRecord
from zcrawl.model.reasons.failure import SHELL_DIED, SHELL_NOT_ALLOWED
from zcrawl.model.reasons.reason import with_detail
from zcrawl.runtime import cgroups
from zcrawl.runtime.cgroups import CgroupPlace
from zcrawl.runtime.child_environment import child_environment
from zcrawl.runtime.loop import Tell, supervised
from zcrawl.submit.tasks import with_seed
from zcrawl.worker.command_life import GRACE_S
from zcrawl.worker.pipeline.calls import kept_blob
from zcrawl.worker.pipeline.fetching import BlobWriter
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.shell_output import (
    CommandOutput,
    cleaned,
    failure_of,
    item_of,
)
from zcrawl.worker.shell_protocol import (
    BROKEN,
    CANCEL,
    LENGTH,
    MOST_FRAME_BYTES,
    ShellAnswer,
    ShellOrder,
    StreamSizes,
    frame,
)

CHILD: Final = "zcrawl.worker.extensions.shell_child"
JSON: Final = "application/json"
START_S: Final = 60.0  # an interpreter, on a busy machine
END_S: Final = 10.0  # to kill all that a command started, and to bring the output
LEAVE_S: Final = 10.0  # a command may still end by itself when its worker leaves
READ_LIMIT: Final = 2**20
DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_LANG: Final = "C.UTF-8"

Process = asyncio.subprocess.Process


@functools.cache
def command_cgroups() -> CgroupPlace:
    """Return where commands of this process get a cgroup each, or why they get none."""
    return cgroups.cgroup_place()


class ShellTasks:
    """The commands of one run. PluginError: this worker does not allow them."""

    def __init__(
        self, context: RunContext, blobs: BlobWriter | None, closed: Sequence[str], tell: Tell
    ) -> None:
        """`closed` are files of the worker that no command may read."""
        self._task = task = context.spec.shell
        self._timeout_s = context.spec.attempt_s
        self._secrets, self._rights = context.secrets, context.shell_rights
        self._blobs, self._closed, self._tell = blobs, list(closed), tell
        self._redactor = self._secrets.redactor(task.env.values())
        self._running: set[Process] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._leaving: asyncio.TimerHandle | None = None
        self._cgroups = command_cgroups().folder
        why = self._rights.refusal(task)
        if why:  # another worker may allow it
            raise PluginError(f"permission for {task.command[:200]}", code=PluginError.MISSING)

    async def do(self, attempt: Attempt, timeout_s: float, utc: Callable[[], float]) -> Attempt:
        """Run the command; return the attempt with its end. FetchError: it failed. The time limit
        is the job's, and the watching process keeps it."""
        assignment, task = attempt.assignment, self._task
        seed = None if is_start(assignment.url) else assignment.url
        args = with_seed(task.args, seed)
        why = self._rights.refusal(task, args)
        if why:
            raise FetchError(
                why, code=with_detail(SHELL_NOT_ALLOWED, task.command), retry=RetryClass.PERMANENT
            )
        began = utc()
        answer, output = await self._run(self._order(args))
        if answer.cgroup:
            self._tell(
                "shell_limits", f"no cgroup for a command, so it was counted: {answer.cgroup}"
            )
        out_size, err_size = answer.stdout, answer.stderr
        out, err = _cut(output, (out_size.kept, out_size.tail, err_size.kept, err_size.tail))
        stderr = cleaned(err_size, *err, self._redactor)
        failure = failure_of(answer, stderr, self._timeout_s)
        has_run = answer.cause not in ("", BROKEN)
        if failure is not None and not has_run:
            raise failure
        stdout = cleaned(out_size, *out, self._redactor)
        stdout = await self._with_blob(stdout, out_size, out[0])
        stderr = await self._with_blob(stderr, err_size, err[0])
        command = [self._redactor.text(word) for word in (task.command, *args)]
        item = item_of(command, seed, assignment.attempt, answer, stdout, stderr)
        if failure is not None:
            failure.result = item
            raise failure
        page = PageRecord(
            final_url=assignment.url,
            title=None,
            content_type=JSON,
            size=out_size.total,
            fetched_at=began,
            elapsed_ms=answer.elapsed_ms,
            body=stdout.blob or None,
        )
        return attempt.done(page, 0, [item])

    def leave(self) -> None:
        """End what still runs in a while, because this worker leaves."""
        if self._leaving is None:
            loop = asyncio.get_running_loop()
            self._leaving = loop.call_later(LEAVE_S, self._cancel_all)

    async def close(self) -> None:
        """End everything, and wait for it."""
        if self._leaving is not None:
            self._leaving.cancel()
        self._cancel_all()
        for child in [*self._running]:
            self._end_later(child)
        await asyncio.gather(*self._endings, return_exceptions=True)  # each task logs its own error

    # ------------------------------------------------------------ what is run

    def _order(self, args: Sequence[str]) -> ShellOrder:
        task = self._task
        argv = [task.command, *args]
        folder = str(Path(tempfile.gettempdir()).resolve() / f"zcrawl-task-{secrets.token_hex(8)}")
        env = {name: self._secrets.for_command(text, argv) for name, text in task.env.items()}
        cores = os.cpu_count() or 1
        return ShellOrder(
            argv=argv,
            env={**_own_environment(os.environ, folder), **env},
            cwd=task.cwd,
            folder=folder,
            timeout_s=self._timeout_s,
            cpu_s=math.ceil(task.cpu_time or self._timeout_s * cores),
            memory=task.memory,
            max_output=task.max_output,
            closed=[str(Path(name).absolute()) for name in self._closed],
            max_processes=task.max_processes or self._rights.processes,
            cgroup=cgroups.new_folder(self._cgroups) if self._cgroups else "",
        )

    async def _run(self, order: ShellOrder) -> tuple[ShellAnswer, bytes]:
        """Return how the command ended, and its output. FetchError: the watching process died."""
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # do not import modules from the current folder
                "-m",
                CHILD,
                env=child_environment(os.environ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # a signal to the worker's group does not end it
                limit=READ_LIMIT,
            )
        except OSError as error:  # no memory, no process: it is tried again
            raise _died(f"it could not be started: {error.strerror}") from None
        self._running.add(child)
        try:
            async with asyncio.timeout(order.timeout_s + START_S + GRACE_S + END_S):
                exchanged = await _exchange(child, order)
            if child.stdin is not None:
                child.stdin.close()  # the command is over
            return exchanged
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()  # the watcher sees that, and ends the command
            raise _died("it did not answer in time") from None
        except (OSError, EOFError, msgspec.MsgspecError, ValueError) as error:
            raise _died(f"{type(error).__name__}: {error}") from None
        finally:
            self._running.discard(child)
            self._end_later(child)

    # ------------------------------------------------------------ how it is ended

    def _cancel_all(self) -> None:
        for child in self._running:
            _cancel(child)

    def _end_later(self, child: Process) -> None:
        """End what is left of a command, and wait for its watching process, beside everything
        else: who cancels a request does not wait for it."""
        if child.returncode is not None:
            return
        _cancel(child)
        ending = supervised(_gone(child), f"end of command {child.pid}", self._tell)
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _with_blob(
        self, shown: CommandOutput, sizes: StreamSizes, kept: bytes
    ) -> CommandOutput:
        """Store an output that is too long for an item."""
        if not shown.is_long or len(kept) <= len(shown.kept):
            return shown
        is_cut = sizes.total > len(kept)
        blob, error = await kept_blob(self._blobs, kept, self._redactor, is_cut=is_cut)
        return msgspec.structs.replace(shown, blob=blob, blob_error=error)


def _own_environment(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the variables that every command has."""
    return {
        "PATH": environ.get("PATH") or DEFAULT_PATH,
        "HOME": folder,
        "LANG": environ.get("LANG") or DEFAULT_LANG,
    }


async def _exchange(child: Process, order: ShellOrder) -> tuple[ShellAnswer, bytes]:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(frame(order))
    await child.stdin.drain()
    (length,) = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
    if length > MOST_FRAME_BYTES:
        raise ValueError(f"an answer of {length} bytes")
    answer = msgspec.msgpack.decode(await child.stdout.readexactly(length), type=ShellAnswer)
    sizes = (answer.stdout, answer.stderr)
    output = await child.stdout.readexactly(sum(size.kept + size.tail for size in sizes))
    return answer, output


def _cut(output: bytes, lengths: Sequence[int]) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """Return beginning and end of stdout, and of stderr."""
    pieces, start = [], 0
    for length in lengths:
        pieces.append(output[start : start + length])
        start += length
    return (pieces[0], pieces[1]), (pieces[2], pieces[3])


def _cancel(child: Process) -> None:
    if child.stdin is not None and not child.stdin.is_closing():
        child.stdin.write(CANCEL)


async def _gone(child: Process) -> None:
    """Wait until the watching process has ended, which it does after the command."""
    reading: Coroutine[Any, Any, bytes] | None = None
    if child.stdout is not None:
        reading = child.stdout.read()  # it may still write an answer that nobody needs
    try:
        async with asyncio.timeout(GRACE_S + END_S):
            if reading is not None:
                await reading
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def _died(how: str) -> FetchError:
    text = f"the process that watches the command ended: {how}"
    return FetchError(text, code=SHELL_DIED, retry=RetryClass.TRANSIENT)
