"""Decide about a page whose text is almost the same as that of an earlier page of its run.

Called by the stores inside the transaction that ends a request, so that neither a failover nor a
repeated result changes the decision: the first committed page is the original. Pure.

A fingerprint has fourteen bands of 18 bits, and only pages that have a band in common are
compared. Two fingerprints that differ in 20 of 256 bits, the most that counts by default, have one
in 97 of 100 cases; in 24, the most that a job may ask for, in 92. Only originals are kept, and at
most 32 of them in a band: a thousand copies of one page, or a million pages that are mostly the
same menu, cost no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from zcrawl.model.reasons.skip import NEAR_DUPLICATE
from zcrawl.model.spec import MARK, SKIP, Duplicates
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Change

FINGERPRINT_BYTES: Final = 32
MOST_IN_BAND: Final = 32
_BANDS: Final = 14
_BAND_BITS: Final = 18  # with fewer bits, unrelated pages of a large run would share bands
_SCALE: Final = 4  # a job gives its distance for 64 bits


class Original(msgspec.Struct, frozen=True):
    fingerprint: bytes
    seq: int
    url: str


def bands(fingerprint: bytes) -> list[int]:
    """Return the bands of a fingerprint, as numbers that are different for each band."""
    bits, mask = int.from_bytes(fingerprint), (1 << _BAND_BITS) - 1
    return [(at << 32) + (bits >> at * _BAND_BITS & mask) for at in range(_BANDS)]


def nearest(
    fingerprint: bytes, originals: Iterable[Original], rules: Duplicates
) -> Original | None:
    """Return the nearest original, if it is near enough; of several, the first."""
    bits, most = int.from_bytes(fingerprint), rules.distance * _SCALE
    candidates = [
        (distance, original.seq, original)
        for original in set(originals)
        if (distance := (bits ^ int.from_bytes(original.fingerprint)).bit_count()) <= most
    ]
    return min(candidates)[2] if candidates else None


def fingerprint_in(change: Change) -> bytes:
    """Return the fingerprint in a change; empty if there is none that can be compared."""
    traits = change.traits
    if traits is None or change.state is not RequestState.DONE:
        return b""
    return traits.fingerprint if len(traits.fingerprint) == FINGERPRINT_BYTES else b""


def judged(change: Change, original: Original | None, rules: Duplicates) -> Change:
    """Return the change as the job's rules want it. Unchanged pages stay as they are."""
    if change.state is not RequestState.DONE or (change.traits and change.traits.unchanged):
        return change
    if original is not None and rules.near == SKIP:
        return skipped(change)
    if rules.near == MARK:
        url = None if original is None else original.url
        items = tuple(_marked(item, url) for item in change.items)
        return msgspec.structs.replace(change, items=items)
    return change


def skipped(change: Change) -> Change:
    """Return the change of a skipped page. Its links are still followed."""
    return msgspec.structs.replace(
        change,
        state=RequestState.SKIPPED,
        reason=NEAR_DUPLICATE,
        page=None,
        items=(),
        others=(),
        tallies=(),
        traits=None,
    )


def _marked(item: bytes, url: str | None) -> bytes:
    """Return the item with the field for duplicates, which all items of such a job have."""
    field = b'"duplicate_of":' + msgspec.json.encode(url) + b"}"
    head = item.rstrip()[:-1].rstrip()
    return head + field if head.endswith(b"{") else head + b"," + field
