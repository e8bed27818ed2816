"""Holds items that spiders, parsers and executors made to the schema that their job states.

Called by `extensions.extensions`. Pure. Items by rules are checked where they are extracted, in
`parse.extract.plan`. One that breaks the schema is set aside with the reason, never lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.mesh.messages import Extracted, Result
from zcrawl.model.reasons.skip import schema_broken
from zcrawl.parse.extract.item_schema import MOST_EXAMPLES, Check, describe

_encode = msgspec.json.Encoder().encode


def held_to(check: Check | None, result: Result, url: str, maker: str) -> Result:
    """The result with the items that are right; `maker` is who yielded them."""
    if check is None or not result.items:
        return result
    right: list[bytes] = []
    aside: list[bytes] = []
    reasons: dict[str, int] = {}
    examples: dict[str, str] = {}
    for data in result.items:
        item = msgspec.json.decode(data)
        broken = check(item)
        if broken is None:
            right.append(data)
            continue
        where, what = broken
        reason = schema_broken(where)
        reasons[reason] = reasons.get(reason, 0) + 1
        if reason not in examples and len(examples) < MOST_EXAMPLES:
            examples[reason] = describe(item, where, what)
        report: dict[str, Any] = {
            "url": url,
            "block": maker,
            "reason": reason,
            "errors": {where: what},
            "item": msgspec.Raw(data),
        }
        aside.append(_encode(report))
    if not aside:
        return result
    told = result.extracted or Extracted()
    told = msgspec.structs.replace(
        told, rejected=[*told.rejected, *aside], reasons=reasons, examples=examples
    )
    return msgspec.structs.replace(result, items=right, extracted=told)
