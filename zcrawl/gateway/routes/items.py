"""What a run has produced: `GET /v1/runs/{n}/items` and `GET /v1/runs/{n}/failed`.

Both give a page of JSON, or with `?format=jsonl` (or `Accept: application/x-ndjson`) all rows as
JSON lines. A stream holds one page of MOST_ROWS in memory. Each line has the number that
`?after=` takes, so a broken stream goes on where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import Parameter, QueryParameter
from litestar.response import Stream

from zcrawl.gateway.principals import Principal
from zcrawl.gateway.services import Services
from zcrawl.gateway.stream_types import FailedPage, FailedRequest, ItemPage, ItemRecord
from zcrawl.master.desk.reads import MOST_ROWS
from zcrawl.model.formats import JSONL

JSON_LINES: Final = "application/x-ndjson"
Run = Annotated[int, Parameter(ge=1, le=2**63 - 1, description="number of a run")]
After = Annotated[int, Parameter(ge=0, le=2**63 - 1, description="the last one that you have")]
Limit = Annotated[int, Parameter(ge=1, le=MOST_ROWS, description="rows of a page")]


@get(
    "/runs/{run:int}/items",
    summary="Items of a run",
    description="A page, or all of them as JSON lines (`format=jsonl`), oldest first.",
    tags=["runs"],
)
async def read_items(
    request: Request[Any, Any, State],
    services: Services,
    principal: Principal,
    run: Run,
    after: After = 0,
    limit: Limit = 100,
    form: Annotated[str, QueryParameter(name="format", pattern="^(json|jsonl)?$")] = "",
) -> Response[ItemPage] | Stream:
    """Return a page of items, or the stream of all of them."""
    await services.ask(principal, "run", {"run": run})  # no such run: 404
    if _wants_lines(request, form):
        return Stream(_item_lines(services, principal, run, after), media_type=JSON_LINES)
    answer = await services.ask(principal, "items", {"run": run, "after": after, "limit": limit})
    items = [_item(row) for row in answer["rows"]]
    return Response(ItemPage(items, answer["last"] if answer["more"] else None))


@get(
    "/runs/{run:int}/failed",
    summary="Failed requests of a run",
    description="A page, or all of them as JSON lines (`format=jsonl`), by number.",
    tags=["runs"],
)
async def read_failed(
    request: Request[Any, Any, State],
    services: Services,
    principal: Principal,
    run: Run,
    after: After = 0,
    limit: Limit = 100,
    reason: Annotated[str, Parameter(max_length=100, description="only this reason")] = "",
    form: Annotated[str, QueryParameter(name="format", pattern="^(json|jsonl)?$")] = "",
) -> Response[FailedPage] | Stream:
    """Return a page of failed requests, or the stream of all of them."""
    await services.ask(principal, "run", {"run": run})
    if _wants_lines(request, form):
        lines = _failed_lines(services, principal, run, after, reason)
        return Stream(lines, media_type=JSON_LINES)
    rows = await _failed(services, principal, run, after, limit, reason)
    return Response(FailedPage(rows, rows[-1].seq if len(rows) == limit else None))


def _wants_lines(request: Request[Any, Any, State], form: str) -> bool:
    return form == JSONL or (not form and JSON_LINES in request.headers.get("accept", ""))


async def _item_lines(
    services: Services, principal: Principal, run: int, after: int
) -> AsyncIterator[bytes]:
    more = True
    while more:
        args = {"run": run, "after": after, "limit": MOST_ROWS}
        answer = await services.ask(principal, "items", args)
        if answer["rows"]:
            yield msgspec.json.Encoder().encode_lines([_item(row) for row in answer["rows"]])
        after, more = answer["last"], answer["more"]


async def _failed_lines(
    services: Services, principal: Principal, run: int, after: int, reason: str
) -> AsyncIterator[bytes]:
    while True:
        rows = await _failed(services, principal, run, after, MOST_ROWS, reason)
        if rows:
            after = rows[-1].seq
            yield msgspec.json.Encoder().encode_lines(rows)
        if len(rows) < MOST_ROWS:
            return


async def _failed(
    services: Services, principal: Principal, run: int, after: int, limit: int, reason: str
) -> list[FailedRequest]:
    args = {"run": run, "after": after, "limit": limit, "reason": reason}
    answer = await services.ask(principal, "failed", args)
    return msgspec.convert([_with_result(row) for row in answer["rows"]], list[FailedRequest])


def _with_result(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"result": msgspec.json.decode(row["result"]) if row["result"] else None}


def _item(row: dict[str, Any]) -> ItemRecord:
    """An item with its data as they were stored: they are JSON, and are not encoded again."""
    return ItemRecord(row["id"], row["run"], msgspec.Raw(row["data"].encode()))


ROUTES: Final = (read_items, read_failed)
