"""The bodies of items, failed requests and added seeds, for OpenAPI and `zcrawl.client`. Pure."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class ItemRecord(msgspec.Struct, frozen=True):
    """An item of a run. `id` is what `after` takes."""

    id: Annotated[int, Meta(examples=[17])]
    run: Annotated[int, Meta(examples=[1])]
    data: Any  # as the job's extraction made it


class ItemPage(msgspec.Struct, frozen=True):
    items: list[ItemRecord]
    after: Annotated[int | None, Meta(description="for the next page; null: there is none now")]


class FailedRequest(msgspec.Struct, frozen=True):
    """A request that failed for good or was skipped. `seq` is what `after` takes."""

    seq: int
    url: Annotated[str, Meta(examples=["https://example.org/missing"])]
    state: Annotated[str, Meta(examples=["dead"])]
    reason: str
    status: int
    attempts: int
    depth: int
    parent: str | None = None
    detail: str = ""
    result: Any = None  # of a task that failed
    result_left_out: bool = False  # it did not fit: `zcrawl export` has it


class FailedPage(msgspec.Struct, frozen=True):
    failed: list[FailedRequest]
    after: Annotated[int | None, Meta(description="for the next page; null: there is none now")]


class SeedsAdded(msgspec.Struct, frozen=True):
    """What became of a body of seeds."""

    job: int
    run: int
    lines: int  # of the body
    seeds: int
    admitted: Annotated[int, Meta(description="seeds that the run did not have")]
    last: bool  # no more seeds follow
