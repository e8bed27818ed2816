"""Shared tools of the tests of engines: a header, limits, and a check of failures."""

from __future__ import annotations

import pytest

from zcrawl.errors import BlockedAddress, FetchError
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.policy import RETRY_CLASS_OF
from zcrawl.fetch.ports import Engine, HopLimits

HEADERS = {"User-Agent": "zcrawl-test/1"}
OPEN = Guard(allow_private=True)  # the web of these tests is on loopback
PATIENT = HopLimits(max_bytes=500_000, guard=OPEN)  # for what must not end by a timeout


async def failure(engine: Engine, url: str, limits: HopLimits = PATIENT) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await engine.get(url, HEADERS, limits)
    assert type(caught.value) in (FetchError, BlockedAddress)
    assert caught.value.retry is RETRY_CLASS_OF[caught.value.code]
    assert len(str(caught.value)) < 2_000
    return caught.value
