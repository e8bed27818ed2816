"""Choose the proxy of a request, and decide when a failed proxy is used again.

One `ProxyPool` per run and worker; called by `worker.pipeline.session` around each request. Pure:
the time comes in. A proxy is

    up        requests go through it, at most `most_each` at a time (0: no limit)
    cooling   it failed: nothing goes through it for 5 s, twice as long after each further failure
    on trial  the pause is over: one request at a time until one succeeds

Rotations
    round_robin      one after the other
    sticky           a host keeps its proxy while the proxy is up; the next one follows from a hash
                         of host and proxy, so all workers choose the same
    least_failures   the one with the fewest failures lately, then the one with the fewest requests
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

ROTATIONS: Final = ("round_robin", "sticky", "least_failures")
COOL_DOWN_S: Final = 5.0
MOST_COOL_DOWN_S: Final = 300.0
STRIKES: Final = 3
_FORGET: Final = 0.9  # of the score, with each success
_MAX_DOUBLINGS: Final = 10


class Take(msgspec.Struct, frozen=True):
    """Use this proxy, and call `settle` afterwards."""

    proxy: str


class Busy(msgspec.Struct, frozen=True):
    """All usable proxies are at their limit: wait until a request is settled."""


class Down(msgspec.Struct, frozen=True):
    """All proxies are cooling or on trial; none can be used before `until`."""

    until: float


class _Proxy(msgspec.Struct):
    url: str
    running: int = 0
    failures: int = 0  # in a row
    strikes: int = 0  # requests in a row that succeeded only through another proxy
    score: float = 0.0  # failures, of which each success takes a tenth away
    cool_until: float = 0.0
    served: int = 0


class ProxyStatistics(msgspec.Struct, frozen=True):
    running: int
    served: int
    failures: int  # in a row
    cool_until: float


class ProxyPool:
    def __init__(self, proxies: Sequence[str], rotation: str = "sticky", most_each: int = 0):
        if not proxies or rotation not in ROTATIONS:
            raise ValueError(f"{len(proxies)} proxies, rotation {rotation!r}")
        self._proxies = [_Proxy(url) for url in dict.fromkeys(proxies)]
        self._rotation = rotation
        self._most_each = most_each
        self._next = 0  # of round_robin

    def take(
        self, host: str, now: float, tried: frozenset[str] = frozenset()
    ) -> Take | Busy | Down:
        """Choose a proxy for one request to `host`; `tried` already failed for this request."""
        ready = [p for p in self._proxies if p.cool_until <= now and p.url not in tried]
        usable = [p for p in ready if not (p.failures and p.running)]
        if not usable:
            if any(p.running for p in ready):
                return Busy()  # a proxy is on trial, and its request ends soon
            return Down(min(max(p.cool_until, now) for p in self._proxies))
        if self._rotation == "sticky":
            usable = [max(usable, key=lambda p: _affinity(host, p.url))]
        free = [p for p in usable if not self._most_each or p.running < self._most_each]
        if not free:
            return Busy()
        if self._rotation == "round_robin":
            order = {id(p): n for n, p in enumerate(self._proxies)}
            count = len(self._proxies)
            chosen = min(free, key=lambda p: (order[id(p)] - self._next) % count)
            self._next = (order[id(chosen)] + 1) % count
        else:
            chosen = min(free, key=lambda p: (p.score, p.running))
        chosen.running += 1
        return Take(chosen.url)

    def settle(self, proxy: str, good: bool | None, now: float) -> None:
        """Record the end of a request. `good`: whether the proxy worked; None if unknown, for
        example because the request was cancelled."""
        entry = next(p for p in self._proxies if p.url == proxy)
        entry.running -= 1
        if good is None:
            return
        if good:
            entry.failures = entry.strikes = 0
            entry.score *= _FORGET
            entry.served += 1
            return
        self._start_cool_down(entry, now)

    def blame(self, proxy: str, now: float) -> None:
        """Record that a request failed through `proxy` and succeeded through another one. Only
        several of these in a row count as a failure of the proxy, because servers fail too."""
        entry = next(p for p in self._proxies if p.url == proxy)
        entry.strikes += 1
        if entry.strikes >= STRIKES and entry.cool_until <= now:
            entry.strikes = 0
            self._start_cool_down(entry, now)

    def _start_cool_down(self, entry: _Proxy, now: float) -> None:
        entry.failures += 1
        entry.score += 1
        pause_s = COOL_DOWN_S * 2.0 ** min(entry.failures - 1, _MAX_DOUBLINGS)
        entry.cool_until = now + min(MOST_COOL_DOWN_S, pause_s)

    @property
    def count(self) -> int:
        return len(self._proxies)

    def statistics(self) -> dict[str, ProxyStatistics]:
        return {
            p.url: ProxyStatistics(p.running, p.served, p.failures, p.cool_until)
            for p in self._proxies
        }

    def check(self) -> None:
        """Assert the invariants: running requests are never negative, and limits hold."""
        for p in self._proxies:
            assert p.running >= 0, p
            assert not self._most_each or p.running <= self._most_each, p


def _affinity(host: str, proxy: str) -> bytes:
    return blake2b(f"{host}\0{proxy}".encode(), digest_size=8).digest()
