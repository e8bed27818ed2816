"""Call a store of bodies with a time limit and a circuit breaker. Used by `roles.blobs`.

A folder on a network disk can hang for ever, and S3 can be unavailable for an hour. Each call runs
in a thread that may be abandoned, and after several failures in a row calls are refused for a
moment (`store.breaker`). The caller gets `blobs_unavailable` with the place and the reason, and
tries again later: a worker as a retry of the page, the output loop with its next attempt. Errors
about one blob (`no_blob`, a damaged one) and a full disk are passed on unchanged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from zcrawl.errors import DiskFull, StoreUnavailable
from zcrawl.model.reasons.storage import BLOBS_UNAVAILABLE
from zcrawl.runtime.threads import LimitedThread
from zcrawl.store.breaker import StoreBreaker

LIMIT_S: Final = 60.0  # of one call; a body has megabytes at most
MOST_STUCK: Final = 8  # threads that may be abandoned
T = TypeVar("T")


class Blobs(Protocol):
    """The interface of `folder` and `s3`. Calls may block."""

    def put(self, data: bytes) -> str: ...

    def get(self, name: str) -> bytes: ...


class GuardedBlobs:
    """A store with a time limit and a circuit breaker. Several threads may use it at once."""

    def __init__(
        self,
        where: str,
        open_place: Callable[[], Blobs],
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_place` runs with the first call, also in a thread, because it may hang too."""
        self._where, self._limit_s, self._clock = where, limit_s, clock
        self._open_place = open_place
        self._place: Blobs | None = None
        self._breaker = StoreBreaker()
        self._lock = threading.Lock()
        self._idle: list[LimitedThread] = []
        self._stuck: list[LimitedThread] = []

    def put(self, data: bytes) -> str:
        return self._call(lambda place: place.put(data))

    def get(self, name: str) -> bytes:
        return self._call(lambda place: place.get(name))

    def _call(self, call: Callable[[Blobs], T]) -> T:
        thread = self._thread()
        future = thread.submit(lambda: call(self._opened()))
        try:
            result = future.result(self._limit_s)
        except TimeoutError:
            if future.done():
                raise  # raised by the call itself
            reason = f"no answer within {self._limit_s:.0f} s"
            with self._lock:
                self._stuck.append(thread)
                self._breaker.failed(reason, self._clock())
            raise StoreUnavailable(f"{self._where}: {reason}", code=BLOBS_UNAVAILABLE) from None
        except DiskFull:
            self._release(thread, None)
            raise
        except StoreUnavailable as error:
            self._release(thread, str(error))
            raise StoreUnavailable(str(error), code=BLOBS_UNAVAILABLE) from error
        except BaseException:
            self._release(thread, None)
            raise
        self._release(thread, "")
        return result

    def _opened(self) -> Blobs:
        place = self._place
        if place is None:
            place = self._place = self._open_place()
        return place

    def _thread(self) -> LimitedThread:
        """Return an idle thread; StoreUnavailable while the breaker is open or too many calls
        hang."""
        with self._lock:
            recovered = [thread for thread in self._stuck if not thread.busy]
            if recovered:
                self._stuck = [thread for thread in self._stuck if thread.busy]
                self._idle += recovered
            wait_s = self._breaker.wait_s(self._clock())
            if wait_s > 0:
                raise StoreUnavailable(
                    f"{self._where}: not tried for another {wait_s:.1f} s, after "
                    f"{self._breaker.failures} failures in a row: {self._breaker.reason}",
                    code=BLOBS_UNAVAILABLE,
                )
            if len(self._stuck) >= MOST_STUCK:
                raise StoreUnavailable(
                    f"{self._where}: {MOST_STUCK} calls hang: {self._breaker.reason}",
                    code=BLOBS_UNAVAILABLE,
                )
            return self._idle.pop() if self._idle else LimitedThread("zcrawl-blobs")

    def _release(self, thread: LimitedThread, failure: str | None) -> None:
        """Return a thread. `failure`: why the store is unavailable; empty: it answered; None:
        unknown."""
        with self._lock:
            self._idle.append(thread)
            if failure:
                self._breaker.failed(failure, self._clock())
            elif failure == "":
                self._breaker.succeeded()
