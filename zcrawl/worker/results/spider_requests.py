"""Check the requests that a spider yields: canonical URL, scope, size, key.

Called by `extensions.extensions`. Pure. The spider's process is not trusted: a bad
request is counted by its reason and reported with the page, and the other requests go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from zcrawl.errors import BadUrl
from zcrawl.frontier.extra import (
    MOST_EXTRA_BYTES,
    MOST_PRIORITY,
    Extra,
    encode,
    request_key,
)
from zcrawl.frontier.scope import has_binary_extension
from zcrawl.frontier.url import canonicalize, join
from zcrawl.model.reasons.skip import BAD_HEADER, BAD_METHOD, BINARY_EXTENSION, REQUEST_TOO_LARGE
from zcrawl.model.spec import FORBIDDEN_HEADERS
from zcrawl.text.patterns import lazy_pattern
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.spider_protocol import Wanted

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TOKEN = lazy_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = lazy_pattern(r"[\x00-\x08\x0a-\x1f\x7f]")

Asked = tuple[str, bytes, int, bytes]


class Refused(msgspec.Struct, frozen=True):
    """Reason → count of dropped requests; each URL once for each reason of the scope."""

    rejected: dict[str, int]  # they cannot be
    dropped: dict[str, int]  # they do not belong to the crawl


def asked_of(
    requests: Iterable[Wanted], base: str | None, context: RunContext, depth: int
) -> tuple[list[Asked], Refused]:
    """The requests, and why others are not made. `base`: the page that yielded them; None for
    what `start` yields, which is taken as seeds are: wherever it leads."""
    by_key: dict[bytes, Asked] = {}
    rejected: Counter[str] = Counter()
    outside: dict[str, str] = {}  # URL → reason
    for request in requests:
        try:
            url = (
                canonicalize(request.url, context.rules)
                if base is None
                else join(base, request.url, context.rules)
            )
        except BadUrl as error:
            rejected[error.code] += 1
            continue
        refusal = _refusal(request)
        verdict = _outside(context, url, depth) if refusal is None and base is not None else None
        if verdict is not None:
            outside[url] = verdict
            continue
        extra = Extra(request.method, request.body, request.headers, request.handler, request.meta)
        data = encode(extra)
        if refusal is None and len(data) > MOST_EXTRA_BYTES:
            refusal = REQUEST_TOO_LARGE
        if refusal is not None:
            rejected[refusal] += 1
            continue
        key = request_key(url, extra, context.rules)
        priority = max(-MOST_PRIORITY, min(MOST_PRIORITY, request.priority))
        by_key.setdefault(key, (url, key, -priority, data))
    return list(by_key.values()), Refused(dict(rejected), dict(Counter(outside.values())))


def _outside(context: RunContext, url: str, depth: int) -> str | None:
    """Return why a request is out of scope; its extension does not matter, because a spider named
    it."""
    verdict = context.scope.verdict(url, depth)
    if verdict == BINARY_EXTENSION and has_binary_extension(url):
        return None
    return verdict


def _refusal(request: Wanted) -> str | None:
    if request.method not in METHODS:
        return BAD_METHOD
    for name, value in request.headers.items():
        if (
            not _TOKEN.fullmatch(name)
            or _CONTROL.search(value)
            or name.lower() in FORBIDDEN_HEADERS
        ):
            return BAD_HEADER
    return None
