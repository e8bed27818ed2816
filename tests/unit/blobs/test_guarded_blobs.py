"""Blob calls have a time limit and a breaker, and named errors that say: try again later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zcrawl.blobs.folder import FileBlobs
from zcrawl.blobs.limited import MOST_STUCK, GuardedBlobs
from zcrawl.errors import DiskFull, StoreError, StoreUnavailable
from zcrawl.model.reasons.storage import BLOBS_UNAVAILABLE
from zcrawl.store.breaker import FREE_ATTEMPTS


class Place:
    """A place of bodies that does what a test wants."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.hangs: threading.Event | None = None

    def put(self, data: bytes) -> str:
        self.calls += 1
        if self.hangs is not None:
            self.hangs.wait(30)
        if self.error is not None:
            raise self.error
        return "name"

    def get(self, name: str) -> bytes:
        self.put(b"")
        return b"body"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def guarded(place: Place, clock: Clock, limit_s: float = 30.0) -> GuardedBlobs:
    return GuardedBlobs("/bodies", lambda: place, limit_s, clock)


def wait_until(what: Callable[[], bool]) -> None:
    """Wait for threads, which have no event for it."""
    deadline = time.monotonic() + 30.0
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        threading.Event().wait(0.002)


def failure(blobs: GuardedBlobs) -> StoreError:
    with pytest.raises(StoreError) as caught:
        blobs.put(b"x")
    return caught.value


def test_a_place_that_works_is_passed_through(tmp_path: Path) -> None:
    """Bodies go in and out of the real folder; a missing one keeps its own name."""
    blobs = GuardedBlobs("here", lambda: FileBlobs(tmp_path / "b"))
    name = blobs.put(b"body")
    assert blobs.get(name) == b"body"
    with pytest.raises(StoreError) as caught:
        blobs.get("0" * 64)
    assert caught.value.code == "no_blob"


def test_a_place_that_is_away_is_not_hammered() -> None:
    """After failures in a row nothing is tried for a moment; then one attempt, and it is closed."""
    place, clock = Place(), Clock()
    blobs = guarded(place, clock)
    place.error = StoreUnavailable("the bucket is away", code="s3_unavailable")
    for _ in range(FREE_ATTEMPTS + 1):
        error = failure(blobs)
        assert isinstance(error, StoreUnavailable)
        assert error.code == BLOBS_UNAVAILABLE
    calls = place.calls
    error = failure(blobs)
    assert error.code == BLOBS_UNAVAILABLE
    assert "not tried" in str(error)
    assert "is away" in str(error)
    assert place.calls == calls, "nothing was tried"
    clock.now += 5.0
    place.error = None
    assert blobs.get("x") == b"body"
    assert blobs.put(b"") == "name"


def test_what_the_place_says_of_one_blob_does_not_open_the_breaker() -> None:
    """A full disk keeps its name, and reading goes on."""
    place, clock = Place(), Clock()
    blobs = guarded(place, clock)
    place.error = DiskFull("full")
    for _ in range(10):
        assert failure(blobs).code == "disk_full"
    place.error = None
    assert blobs.get("x") == b"body"


def test_calls_that_hang_are_left_behind_and_bounded() -> None:
    """The caller gets a named error; at most so many threads wait; they are used again later."""
    place, clock = Place(), Clock()
    place.hangs = threading.Event()
    blobs = guarded(place, clock, limit_s=0.02)
    for _ in range(MOST_STUCK):
        assert "no answer within" in str(failure(blobs))
        clock.now += 5.0
    assert "calls hang" in str(failure(blobs))
    wait_until(lambda: place.calls == MOST_STUCK)
    place.hangs.set()
    wait_until(lambda: not any(thread.busy for thread in blobs._stuck))
    place.hangs = None
    blobs._limit_s = 30.0  # a busy machine may not answer in 0.02 s
    assert blobs.put(b"x") == "name"
    assert place.calls == MOST_STUCK + 1
