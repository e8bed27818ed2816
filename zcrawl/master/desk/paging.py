"""One page of many rows: filter, sort and cut at the leader, so that a console with ten thousand
rows behind it gets the fifty that it shows.

Called by `views`. A row's key functions are called for every row, its view for those of the
page only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.model.reasons.cluster import BAD_REQUEST

T = TypeVar("T")
MOST_ROWS: Final = 500


class Want(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client asks for. `filter` is a part of the row's text, in any case of letters."""

    filter: Annotated[str, msgspec.Meta(max_length=500)] = ""
    inverse: bool = False
    sort: str = ""
    desc: bool = False
    offset: int = 0
    limit: int = 100


def read_want(args: Mapping[str, Any]) -> Want:
    """The paging arguments of a request; raises RefusedError for what is none."""
    names = Want.__struct_fields__
    try:
        want = msgspec.convert({key: args[key] for key in names if key in args}, Want)
    except msgspec.ValidationError as error:
        raise RefusedError(f"bad paging arguments: {error}", code=BAD_REQUEST) from None
    if not 0 <= want.offset <= 10_000_000 or not 1 <= want.limit <= MOST_ROWS:
        raise RefusedError(f"limit is 1 to {MOST_ROWS}, offset not below 0", code=BAD_REQUEST)
    return want


def page(
    rows: Iterable[T],
    want: Want,
    *,
    text: Callable[[T], str],
    keys: Mapping[str, Callable[[T], Any]],
    view: Callable[[T], dict[str, Any]],
) -> dict[str, Any]:
    """{"rows", "total", "offset"}. The first of `keys` is the order without a wish."""
    if want.sort and want.sort not in keys:
        names = ", ".join(keys)
        raise RefusedError(f"cannot sort by {want.sort!r}; use one of {names}", code=BAD_REQUEST)
    chosen = list(rows)
    if want.filter:
        filter_text = want.filter.casefold()
        chosen = [
            row for row in chosen if (filter_text in text(row).casefold()) is not want.inverse
        ]
    key = keys[want.sort or next(iter(keys))]
    upto = want.offset + want.limit
    if upto < len(chosen) // 4:
        pick = heapq.nlargest if want.desc else heapq.nsmallest
        ordered = pick(upto, chosen, key=key)
    else:
        ordered = sorted(chosen, key=key, reverse=want.desc)
    shown = ordered[want.offset : upto]
    return {
        "rows": [view(row) for row in shown],
        "total": len(chosen),
        "offset": want.offset,
    }
