"""What a command's end means for its task: done with an item, or failed, and why.

Called by `extensions.shell`. Pure. Exit code 0 is done, everything else has failed:

| end                                        | reason          | tried again |
|--------------------------------------------|-----------------|-------------|
| exit code 0                                | –               | –           |
| another exit code, a signal                | `shell_exit`    | yes         |
| `shell.timeout` is over                    | `shell_timeout` | yes         |
| more processes than `shell.max_processes`  | `shell_too_many_processes` | yes |
| more memory than `shell.memory`            | `shell_memory`  | yes         |
| it could not be started                    | `shell_start`   | yes: other workers may have it |
| a watching process was killed              | `shell_died`    | yes         |
| the worker leaves                          | `shell_left`    | yes, without counting the attempt |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from zcrawl.errors import FetchError, RetryClass
from zcrawl.model.reasons.failure import (
    SHELL_DIED,
    SHELL_EXIT,
    SHELL_LEFT,
    SHELL_MEMORY,
    SHELL_START,
    SHELL_TIMEOUT,
    SHELL_TOO_MANY_PROCESSES,
)
from zcrawl.text.redact import Redactor
from zcrawl.worker import shell_protocol
from zcrawl.worker.shell_protocol import RING_BYTES, TAIL_BYTES, ShellAnswer, StreamSizes

HEAD_BYTES: Final = 32_768  # of a stream that is too long for an item
MOST_SHORT: Final = HEAD_BYTES + TAIL_BYTES  # a shorter output is in the item as a whole
LAST_LINES: Final = 5  # of stderr, in the message of a failure
LAST_CHARACTERS: Final = 350


class CommandOutput(msgspec.Struct, frozen=True):
    """The output of one stream, without secrets: its beginning, its end, and its size."""

    sizes: StreamSizes
    kept: bytes = b""
    tail: bytes = b""
    blob: str = ""
    blob_error: str = ""

    @property
    def is_long(self) -> bool:
        return self.sizes.total > min(MOST_SHORT, self.sizes.kept)

    @property
    def end(self) -> bytes:
        return self.tail if self.is_long else self.kept


class ShellItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a command: an item if it was done, else the result of a failed task."""

    command: list[str]
    exit_code: int
    elapsed_ms: float
    cpu_s: float
    max_rss: int
    attempt: int
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    seed: str | None = None
    stdout_tail: str | None = None  # the end of a long output; `stdout` is its beginning
    stderr_tail: str | None = None
    stdout_blob: str | None = None  # all of a long output, as far as shell.max_output keeps it
    stderr_blob: str | None = None
    stdout_error: str | None = None  # why there is no blob
    stderr_error: str | None = None
    signal: str | None = None  # that ended the command; `exit_code` is its negative number
    stdout_replaced: bool = False  # it has bytes that are not UTF-8, shown as U+FFFD
    stderr_replaced: bool = False


def failure_of(answer: ShellAnswer, stderr: CommandOutput, timeout_s: float) -> FetchError | None:
    """Return the failure of a command; None if it was done."""
    said = _last_lines(stderr)
    transient = RetryClass.TRANSIENT
    match answer.cause:
        case "":
            return FetchError(f"not started: {answer.error}", code=SHELL_START, retry=transient)
        case shell_protocol.BROKEN:
            text = f"the process that watches the command broke: {answer.error}"
            return FetchError(text, code=SHELL_DIED, retry=transient)
        case "timeout":
            text = f"not done in {timeout_s:g} s{said}"
            return FetchError(text, code=SHELL_TIMEOUT, retry=transient)
        case "too_many_processes":
            text = f"more processes and threads than shell.max_processes{said}"
            return FetchError(text, code=SHELL_TOO_MANY_PROCESSES, retry=transient)
        case "memory":
            text = f"more memory than shell.memory, of all processes together{said}"
            return FetchError(text, code=SHELL_MEMORY, retry=transient)
        case "exited" if answer.exit_code == 0:
            return None
        case "exited":
            text = f"{_how(answer)}{said}"
            return FetchError(text, code=SHELL_EXIT, retry=transient)
        case "cancelled":
            text = "the worker leaves, and ended the command"
            return FetchError(text, code=SHELL_LEFT, retry=RetryClass.POSTPONED)
        case _:  # it believes that this worker is gone
            text = "the process that watches the command lost its guard"
            return FetchError(text, code=SHELL_DIED, retry=transient)


def _how(answer: ShellAnswer) -> str:
    if not answer.signal:
        return f"exit code {answer.exit_code}"
    hint = " (shell.cpu_time)" if answer.signal == "SIGXCPU" else ""
    return f"ended by {answer.signal}{hint}"


def _last_lines(stderr: CommandOutput) -> str:
    lines = [line.strip() for line in stderr.end.decode("utf-8", "replace").splitlines()]
    last = " | ".join([line for line in lines if line][-LAST_LINES:])
    return f"; stderr: {last[-LAST_CHARACTERS:]}" if last else ""


def item_of(
    command: Sequence[str],
    seed: str | None,
    attempt: int,
    answer: ShellAnswer,
    stdout: CommandOutput,
    stderr: CommandOutput,
) -> bytes:
    """Return the item of a command, as JSON."""
    out, out_tail, out_replaced = _shown(stdout)
    err, err_tail, err_replaced = _shown(stderr)
    item = ShellItem(
        command=list(command),
        exit_code=answer.exit_code,
        elapsed_ms=round(answer.elapsed_ms, 1),
        cpu_s=round(answer.cpu_s, 3),
        max_rss=answer.max_rss,
        attempt=attempt,
        stdout=out,
        stderr=err,
        stdout_bytes=stdout.sizes.total,
        stderr_bytes=stderr.sizes.total,
        seed=seed,
        signal=answer.signal or None,
        stdout_tail=out_tail,
        stderr_tail=err_tail,
        stdout_blob=stdout.blob or None,
        stderr_blob=stderr.blob or None,
        stdout_error=stdout.blob_error or None,
        stderr_error=stderr.blob_error or None,
        stdout_replaced=out_replaced,
        stderr_replaced=err_replaced,
    )
    return msgspec.json.encode(item)


def _shown(output: CommandOutput) -> tuple[str, str | None, bool]:
    """Return beginning, end (None if the beginning is all) and whether bytes were replaced."""
    if not output.is_long:
        text, replaced = _decoded(output.kept)
        return text, None, replaced
    head, head_replaced = _decoded(output.kept[:HEAD_BYTES], cut_after=True)
    tail, tail_replaced = _decoded(output.end, cut_before=True)
    return head, tail, head_replaced or tail_replaced


def _decoded(data: bytes, *, cut_before: bool = False, cut_after: bool = False) -> tuple[str, bool]:
    """Return the text, and whether bytes were replaced. A character that was cut in two at an edge
    is left out."""
    start, end = 0, len(data)
    if cut_before:  # bytes that continue a character
        while start < min(3, end) and data[start] & 0xC0 == 0x80:
            start += 1
    if cut_after:
        for back in range(1, min(4, end) + 1):
            first = data[end - back]
            if first & 0xC0 == 0xC0:  # begins a character of 2 to 4 bytes
                needed = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
                end -= back if needed > back else 0
                break
            if first < 0x80:
                break
    data = data[start:end]
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True


def cleaned(sizes: StreamSizes, kept: bytes, tail: bytes, redactor: Redactor) -> CommandOutput:
    """Return what the item shows of an output, without secrets; also none that an edge cuts."""
    if sizes.total <= min(MOST_SHORT, sizes.kept):
        return CommandOutput(sizes, redactor.data(kept))
    head = redactor.piece(kept[: MOST_SHORT + redactor.longest], cut_after=True)
    end = redactor.piece(tail if sizes.tail else kept[-RING_BYTES:], cut_before=True)
    return CommandOutput(sizes, head[:HEAD_BYTES], end[-TAIL_BYTES:])
