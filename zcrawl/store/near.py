"""Decides what becomes of a page whose text is almost that of an earlier page of its run.

Called by the stores inside the transaction that ends a request, so that neither a failover nor a
result that comes twice changes a verdict: the first page that was committed is the original. Pure.

A fingerprint has four bands of 16 bits. Two that differ in three bits at most have one in common,
so only pages that share a band are compared. Only originals are kept: a thousand copies of one
page cost one row in each band.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from zcrawl.model import RequestState
from zcrawl.store.commands import Change
from zcrawl.submit.duplicates_spec import MARK, SKIP, Duplicates

NEAR_DUPLICATE: Final = "near_duplicate"  # reason of a page that is not kept
BAND_BYTES: Final = 2
FINGERPRINT_BYTES: Final = 8


class Original(NamedTuple):
    fingerprint: bytes
    seq: int
    url: str


def bands(fingerprint: bytes) -> list[int]:
    """Its four bands, as numbers that no other band can have."""
    return [
        (at << 15) + int.from_bytes(fingerprint[at : at + BAND_BYTES], "big")
        for at in range(0, FINGERPRINT_BYTES, BAND_BYTES)
    ]


def nearest(fingerprint: bytes, originals: Iterable[Original], most: int) -> Original | None:
    """The original that is nearest, if near enough; of equally near ones the first."""
    bits = int.from_bytes(fingerprint)
    found = [
        (distance, one.seq, one)
        for one in set(originals)
        if (distance := (bits ^ int.from_bytes(one.fingerprint)).bit_count()) <= most
    ]
    return min(found)[2] if found else None


def fingerprint_in(change: Change) -> bytes:
    """The fingerprint that a change brings; empty: none that can be compared."""
    traits = change.traits
    if traits is None or change.state is not RequestState.DONE:
        return b""
    return traits.fingerprint if len(traits.fingerprint) == FINGERPRINT_BYTES else b""


def judged(change: Change, original: Original | None, rules: Duplicates) -> Change:
    """What the job wants to become of it. An unchanged page has nothing to skip or to mark."""
    if change.state is not RequestState.DONE or (change.traits and change.traits.unchanged):
        return change
    if original is not None and rules.near == SKIP:
        return skipped(change)
    if rules.near == MARK:
        url = None if original is None else original.url
        return msgspec.structs.replace(
            change, items=tuple(_marked(one, url) for one in change.items)
        )
    return change


def skipped(change: Change) -> Change:
    """Its links are followed all the same."""
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
    """Every item of such a job has the field, so that every file has the column."""
    field = b'"duplicate_of":' + msgspec.json.encode(url) + b"}"
    head = item.rstrip()[:-1].rstrip()
    return head + field if head.endswith(b"{") else head + b"," + field
