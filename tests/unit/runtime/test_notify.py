"""What a daemon tells its service manager, and that it never waits for it."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator

import pytest

from zcrawl.runtime.notify import Notify


@pytest.fixture
def ear() -> Iterator[tuple[socket.socket, str]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ear,
    ):
        ear.bind(f"{folder}/n")
        yield ear, f"{folder}/n"


def heard(ear: socket.socket) -> list[str]:
    messages = []
    with contextlib.suppress(BlockingIOError):
        while True:
            messages.append(ear.recv(4096).decode())
    return messages


def test_it_tells_in_order_and_one_line_is_one_line(ear: tuple[socket.socket, str]) -> None:
    """A status that has a line break cannot smuggle in another key."""
    listener, address = ear
    notify = Notify({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000"})
    notify.ready("m1\nSTOPPING=1")
    notify.alive()
    notify.stopping()
    assert heard(listener) == ["READY=1\nSTATUS=m1 STOPPING=1", "WATCHDOG=1", "STOPPING=1"]


def test_a_manager_that_does_not_read_holds_nobody_up(ear: tuple[socket.socket, str]) -> None:
    """Messages that do not fit are sent later; watchdog signals do not accumulate."""
    listener, address = ear
    notify = Notify({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000"})
    for n in range(5_000):  # more than any system's queue
        notify.alive()
        if n == 4_000:
            notify.ready("now")
    assert all(text == "WATCHDOG=1" for text in heard(listener))
    notify.alive()
    assert heard(listener)[-1] == "READY=1\nSTATUS=now"


def test_without_a_manager_nothing_is_told(ear: tuple[socket.socket, str]) -> None:
    """No socket, or one where nobody listens; a watchdog that is meant for another process."""
    listener, address = ear
    Notify({}).ready("x")
    Notify({"NOTIFY_SOCKET": address + "x"}).ready("x")
    other = Notify({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"})
    other.alive()
    assert heard(listener) == []
