"""Decide what a job remembers of a page, when it is due again, and what its request carries.

Called by the stores (inside the transaction that ends a request, and when a URL is admitted) and by
the worker (`decode`). Pure. See docs/recrawl.md.

A page is fetched again when `interval_s` has passed since the last fetch. The interval is halved
when the page had changed, and grows by half when it had not.
"""

from __future__ import annotations

import functools
from hashlib import blake2b
from typing import Any, Final

import msgspec

from zcrawl.mesh.messages import Traits
from zcrawl.model.reasons.skip import NOT_DUE, STAY_DUE, is_owned_by_another
from zcrawl.model.spec import Recrawl
from zcrawl.model.states import RequestState

_GONE: Final = frozenset({404, 410})
# Settings that decide how a page is read. If one changes, the page is read again despite a 304.
_READ_BY: Final = (
    *("extract", "schema", "spider", "spider_args", "code"),
    *("middlewares", "parsers", "plugins"),
)
_READ_BY_PARTS: Final = {
    "scope": None,  # all of it: links that were outside may be inside now
    "traps": None,
    "browser": None,
    "output": ("keep_html", "capture"),
    "fetch": ("engine",),
    "duplicates": ("near",),
    "politeness": ("robots", "nofollow", "noindex"),
}
_LIMITS: Final = (
    "max_pages",
    "max_pages_per_host",
)  # parts of a scope that do not change how a page is read


class KnownPage(msgspec.Struct, frozen=True):
    """What a job remembers of one page across its runs."""

    content: bytes = b""  # hash of its body; empty: the body was not kept
    etag: str = ""
    last_modified: str = ""
    reading: bytes = b""  # see `reading_of`
    checked_at: float = 0.0  # UTC; 0: never
    changed_at: float = 0.0
    interval_s: float = 0.0
    checks: int = 0
    changes: int = 0
    gone: bool = False  # 404 or 410: no run starts from it
    fingerprint: bytes = b""  # of its text


def is_due(page: KnownPage, reading: bytes, now: float) -> bool:
    if page.reading != reading and not page.gone:
        return True
    # A check in the future also counts: another run was faster, or a clock was set back.
    return abs(now - page.checked_at) >= page.interval_s


def validators(page: KnownPage, reading: bytes) -> bytes:
    """Return what the next request carries; empty if the page must be read again anyway."""
    if not page.content or page.reading != reading:
        return b""
    return _encode(
        Traits(page.etag, page.last_modified, page.content, fingerprint=page.fingerprint)
    )


def on_admission(page: KnownPage, spec: bytes, rules: Recrawl, now: float) -> tuple[str, bytes]:
    """Return (reason to skip the page now, what its request carries) for this spec and rules.

    The rules may differ from those under which the interval was computed; the new ones count.
    """
    reading = reading_of(spec)
    page = msgspec.structs.replace(page, interval_s=_within(page.interval_s, rules))
    if not is_due(page, reading, now):
        return NOT_DUE, b""
    return "", validators(page, reading)


def decode(data: bytes) -> Traits | None:
    """Return the page's traits from an assignment; None if they cannot be read."""
    try:
        return _decode(data) if data else None
    except (msgspec.MsgspecError, ValueError):
        return None  # then it is fetched like any other


def updated_page(
    page: KnownPage | None,
    state: RequestState,
    status: int,
    reason: str,
    traits: Traits | None,
    rules: Recrawl,
    reading: bytes,
    now: float,
) -> KnownPage:
    """Return what the job remembers of a page after its request ended."""
    gone = state is RequestState.DEAD and status in _GONE
    was_checked = (
        state is not RequestState.DEAD
        and reason not in STAY_DUE
        and not is_owned_by_another(reason)
    )
    if not was_checked and not gone:
        # Its content now is unknown: it stays due, and its validators stay valid.
        return page or KnownPage(interval_s=rules.interval)
    new_traits = traits if traits is not None and state is RequestState.DONE else Traits()
    before = page if page is not None and page.checks else None
    changed = before is not None and (before.content, before.gone) != (new_traits.content, gone)
    return KnownPage(
        content=new_traits.content,
        etag=new_traits.etag,
        last_modified=new_traits.last_modified,
        reading=reading,
        checked_at=now,
        changed_at=now if before is None or changed else before.changed_at,
        interval_s=_interval(before, changed and not gone, rules),
        checks=1 if before is None else before.checks + 1,
        changes=0 if before is None else before.changes + changed,
        gone=gone,
        fingerprint=new_traits.fingerprint,
    )


def _interval(before: KnownPage | None, changed: bool, rules: Recrawl) -> float:
    if before is None:
        return rules.interval
    return _within(before.interval_s * (0.5 if changed else 1.5), rules)


def _within(interval_s: float, rules: Recrawl) -> float:
    return min(max(interval_s, rules.min_interval), rules.max_interval)


@functools.lru_cache(maxsize=64)
def reading_of(spec: bytes) -> bytes:
    """Return a hash of the settings by which a run with this spec reads pages."""
    plain: dict[str, Any] = msgspec.json.decode(spec)
    used = {key: plain.get(key) for key in _READ_BY}
    for key, parts in _READ_BY_PARTS.items():
        section = dict(plain.get(key) or {})
        names = [name for name in section if name not in _LIMITS] if parts is None else parts
        used[key] = {name: section.get(name) for name in names}
    return blake2b(msgspec.json.encode(used, order="sorted"), digest_size=8).digest()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Traits).decode
