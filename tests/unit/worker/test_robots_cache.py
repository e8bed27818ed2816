"""The robots.txt files in a worker's memory: they are read without holding its event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib

import pytest

from zcrawl.fetch.robots import MAX_ROBOTS_BYTES, RobotsRules
from zcrawl.model.host import RobotsFile
from zcrawl.worker.pipeline.robots import PARSED_IN_LOOP, RobotsCache

ORIGIN = "http://a.test"
AGENT = "zcrawl/0.1"


def slow_file(size: int) -> bytes:
    """Return a file that takes more than 1 us for each byte: every rule has wildcards."""
    lines = ["User-agent: *"]
    length = 0
    for number in range(100_000):
        line = f"Disallow:/*a*{'a*' * (number % 7)}{number:x}$"
        length += len(line) + 1
        if length > size - 20:
            break
        lines.append(line)
    return "\n".join(lines).encode()


def cache_with(body: bytes) -> RobotsCache:
    """Return a cache that was told the file with a host's grant. Must run in a loop."""
    cache = RobotsCache(lambda: 0.0)
    cache.learn(ORIGIN, RobotsFile(200, zlib.compress(body), 60.0))
    return cache


async def longest_pause_s(body: bytes) -> float:
    """Read the file while another task wants the loop all the time; return
    the most CPU time between two of its turns."""
    cache = cache_with(body)
    loop = asyncio.get_running_loop()
    reading = asyncio.ensure_future(cache.cached_rules(ORIGIN, AGENT))
    turns = [time.process_time()]

    def turn() -> None:
        turns.append(time.process_time())
        if not reading.done():
            loop.call_soon(turn)

    loop.call_soon(turn)
    rules = await reading
    assert rules is not None
    assert not rules.allows(f"{ORIGIN}/xa0")
    assert rules.allows(f"{ORIGIN}/b")
    return max(later - earlier for earlier, later in itertools.pairwise(turns))


def test_a_file_that_is_written_to_be_slow_does_not_hold_the_loop() -> None:
    """500 KB took half a second, in which no heartbeat was sent and no page was read."""
    body = slow_file(MAX_ROBOTS_BYTES)
    assert len(body) > MAX_ROBOTS_BYTES * 0.9
    assert asyncio.run(longest_pause_s(body)) < 0.1


def test_a_file_that_is_read_in_the_loop_is_read_in_a_moment() -> None:
    """The longest one that is not given to a thread."""
    body = slow_file(PARSED_IN_LOOP)

    def step_s() -> float:
        began = time.process_time()
        RobotsRules.parse(200, body, AGENT)
        return time.process_time() - began

    assert min(step_s() for _ in range(3)) < 0.1


@pytest.mark.parametrize("size", [PARSED_IN_LOOP, MAX_ROBOTS_BYTES], ids=["short", "long"])
def test_pages_that_want_the_rules_at_once_share_one_reading(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a hundred pages of a host would read the file a hundred times."""
    readings = 0
    parse = RobotsRules.parse

    def counted(status: int, body: bytes, agent: str) -> RobotsRules:
        nonlocal readings
        readings += 1
        return parse(status, body, agent)

    async def ask_twenty_times() -> None:
        cache = cache_with(slow_file(size))
        first, *others = await asyncio.gather(
            *(cache.cached_rules(ORIGIN, AGENT) for _ in range(20))
        )
        assert first is not None
        assert all(rules is first for rules in others)

    monkeypatch.setattr(RobotsRules, "parse", counted)
    asyncio.run(ask_twenty_times())
    assert readings == 1


def test_a_page_that_is_cancelled_does_not_take_the_rules_from_others() -> None:
    """They go on waiting for the same reading."""

    async def cancel_one() -> None:
        cache = cache_with(slow_file(MAX_ROBOTS_BYTES))
        first = asyncio.ensure_future(cache.cached_rules(ORIGIN, AGENT))
        second = asyncio.ensure_future(cache.cached_rules(ORIGIN, AGENT))
        asyncio.get_running_loop().call_soon(first.cancel)
        rules = await second
        assert first.cancelled()
        assert rules is not None
        assert not rules.allows(f"{ORIGIN}/xa0")

    asyncio.run(cancel_one())
