"""Data about a host in RESULT and GRANT messages (`messages`).

Frozen, arrays on the wire.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=100_000)]
Address: TypeAlias = Annotated[str, Meta(max_length=45)]


class Manner(msgspec.Struct, frozen=True, array_like=True):
    """How a host has answered lately: what its owner keeps between two requests, told with each
    result that changes it, stored with the host and handed to the next owner in its grant."""

    slow_s: Seconds = 0.0  # the interval that its answers require; 0: none
    failures: Number = 0  # in a row, without any answer in between
    opens: Number = 0  # how often its breaker has opened since the last answer; 0: closed


class RobotsFile(msgspec.Struct, frozen=True, array_like=True):
    """A robots.txt as it was answered, for everybody who will need it while it is fresh."""

    status: Annotated[int, Meta(ge=0, le=999)]
    body: Annotated[bytes, Meta(max_length=65_536)]  # compressed with zlib
    lasts_s: Seconds  # from now


class GroupShare(msgspec.Struct, frozen=True, array_like=True):
    """What all hosts of one registered domain, or at one address, are allowed together."""

    key: str
    revision: int
    interval_s: float  # between two starts; 0: unlimited
    concurrency: int  # 0: unlimited
    next_in_s: float  # not before this long from now
