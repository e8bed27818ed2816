"""A command's end and output: done or failed, head and tail, bytes that are not text, secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zcrawl.errors import RetryClass
from zcrawl.text.redact import Redactor
from zcrawl.worker.results.shell_output import (
    HEAD_BYTES,
    MOST_SHORT,
    CommandOutput,
    cleaned,
    failure_of,
    item_of,
)
from zcrawl.worker.shell_protocol import RING_BYTES, TAIL_BYTES, ShellAnswer, StreamSizes

PLAIN = Redactor({})


def captured(data: bytes, most: int = 10**7, redactor: Redactor = PLAIN) -> CommandOutput:
    """What the watching process sends of an output, and what is shown of it."""
    kept = data[:most]
    tail = data[-RING_BYTES:] if len(data) > len(kept) else b""
    return cleaned(StreamSizes(len(data), len(kept), len(tail)), kept, tail, redactor)


def item(out: CommandOutput, err: CommandOutput | None = None) -> dict[str, Any]:
    answer = ShellAnswer(cause="exited")
    data = item_of(["/bin/x"], None, 1, answer, out, err or captured(b""))
    read: dict[str, Any] = json.loads(data)
    return read


@pytest.mark.parametrize(
    ("answer", "code", "retry", "words"),
    [
        (
            ShellAnswer("exited", 3),
            "shell_exit",
            RetryClass.TRANSIENT,
            "exit code 3; stderr: a | b",
        ),
        (ShellAnswer("exited", -9, "SIGKILL"), "shell_exit", RetryClass.TRANSIENT, "by SIGKILL"),
        (ShellAnswer("exited", -24, "SIGXCPU"), "shell_exit", RetryClass.TRANSIENT, "cpu_time"),
        (ShellAnswer("timeout", -15, "SIGTERM"), "shell_timeout", RetryClass.TRANSIENT, "in 5 s"),
        (
            ShellAnswer("too_many_processes", -9, "SIGKILL"),
            "shell_too_many_processes",
            RetryClass.TRANSIENT,
            "shell.max_processes; stderr: a | b",
        ),
        (ShellAnswer("memory", -9, "SIGKILL"), "shell_memory", RetryClass.TRANSIENT, "together"),
        (ShellAnswer("timeout", 0), "shell_timeout", RetryClass.TRANSIENT, "not done"),
        (ShellAnswer(error="/x: No such"), "shell_start", RetryClass.TRANSIENT, "/x: No such"),
        (ShellAnswer("cancelled", -15), "shell_left", RetryClass.POSTPONED, "worker leaves"),
        (ShellAnswer("broken", error="KeyError"), "shell_died", RetryClass.TRANSIENT, "KeyError"),
    ],
)
def test_every_end_but_exit_code_0_has_a_name(
    answer: ShellAnswer, code: str, retry: RetryClass, words: str
) -> None:
    """With the last lines of stderr, and whether it is tried again."""
    failure = failure_of(answer, captured(b"\na\n\n  b  \n"), 5.0)
    assert failure is not None
    assert (failure.code, failure.retry) == (code, retry)
    assert words in str(failure)


def test_exit_code_0_is_done() -> None:
    """Also with words on stderr."""
    assert failure_of(ShellAnswer("exited", 0), captured(b"warning"), 5.0) is None


def test_a_short_output_is_in_the_item_as_a_whole() -> None:
    """Without further keys."""
    shown = item(captured(b"hi\n"), captured(b"x" * MOST_SHORT))
    assert (shown["stdout"], shown["stdout_bytes"]) == ("hi\n", 3)
    assert shown["stderr"] == "x" * MOST_SHORT
    assert not {"stdout_tail", "stdout_blob", "stdout_replaced", "stderr_tail"} & shown.keys()


@pytest.mark.parametrize("most", [0, 100, HEAD_BYTES, MOST_SHORT, 90_000, 10**7])
def test_of_a_long_output_beginning_and_end_are_shown(most: int) -> None:
    """However much of it is kept."""
    data = b"".join(b"%07d\n" % n for n in range(20_000))
    shown = item(captured(data, most))
    assert shown["stdout"].encode() == data[: min(most, HEAD_BYTES)]
    assert shown["stdout_tail"].encode() == data[-TAIL_BYTES:]
    assert shown["stdout_bytes"] == len(data)


def test_bytes_that_are_not_text_are_replaced_and_marked() -> None:
    """A character that the edge of head or tail cuts in two is not such a byte."""
    assert item(captured(b"a\xffb")) | {"stdout": "a\ufffdb", "stdout_replaced": True} == item(
        captured(b"a\xffb")
    )
    for character in ("é", "€", "😀"):
        for shift in range(4):
            shown = item(captured(b"x" * shift + character.encode() * 40_000))
            assert "stdout_replaced" not in shown, (character, shift)
            assert "\ufffd" not in shown["stdout"] + shown["stdout_tail"]


@pytest.mark.parametrize("most", [0, 1_000, HEAD_BYTES, HEAD_BYTES + 3, MOST_SHORT, 10**7])
def test_a_secret_is_removed_wherever_an_edge_is(most: int) -> None:
    """Not even a part of it is shown where head or tail are cut."""
    secret = "s3cr3t-value"
    redactor = Redactor({"PW": secret})
    for shift in range(len(secret) + 1):
        data = b"." * shift + (secret + "/").encode() * 20_000
        shown = item(captured(data, most, redactor))
        text = shown["stdout"] + shown["stdout_tail"]
        assert "cr3t" not in text.replace("${PW}", "")
        assert "-value" not in text.replace("${PW}", "")
