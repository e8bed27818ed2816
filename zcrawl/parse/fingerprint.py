"""Compute the fingerprint of a page's text: 256 bits that differ little for similar texts.

Called by `parse.page` for jobs that look for near duplicates, on a tree that is not needed any
more. Pure. It is a simhash (Charikar) over neighbouring words: the hash of each pair votes for or
against each bit. A pair votes once, even if it occurs often: otherwise a few phrases in tables and
indexes would decide alone. Navigation, footers and scripts do not vote, because sites repeat them
on every page. A text of few words gets no fingerprint, because a single word would change many
bits.

64 bits are too few: of 600 pages with 300 words of untagged boilerplate and 30 words of their own,
301 were taken for duplicates, but only few with 256 bits (docs/recrawl.md has figures).

All votes are counted at once. The hashes of all first words form one long number, which is combined
by XOR with those of the second words, shifted by a few bytes. Then every byte column is one long
number, and the votes for a bit are counted with a mask. Loops took 60 times as long.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Final

from selectolax.lexbor import LexborHTMLParser

BYTES: Final = 32
LEAST_WORDS: Final = 50
MOST_WORDS: Final = 100_000  # further words do not count
_WITHOUT_VOTE: Final = [
    *("script", "style", "template", "noscript", "svg", "iframe", "nav", "footer", "aside"),
    *("form", "select", "button", "head"),
]
_TOP: Final = "body > header"  # of the page; the header of an article has its title
_SHIFT: Final = 3  # bytes, so that "a b" differs from "b a", and "a a" does not cancel out
_LONG_WORD: Final = 12  # characters; longer on average: a script without spaces


def fingerprint_of(tree: LexborHTMLParser) -> bytes:
    """Return the fingerprint of the visible text; empty if it is too short. Changes the tree."""
    tree.strip_tags(_WITHOUT_VOTE, recursive=True)
    for header in tree.css(_TOP):
        header.decompose()
    body = tree.body
    return b"" if body is None else fingerprint(body.text(separator=" "))


def fingerprint(text: str) -> bytes:
    words = text.lower().split()
    if not text.isascii() and len(text) > _LONG_WORD * max(LEAST_WORDS, len(words)):
        words = list("".join(words))
    if len(words) < LEAST_WORDS:
        return b""
    firsts, seconds = zip(*dict.fromkeys(pairwise(words[:MOST_WORDS])), strict=True)
    first = b"".join(map(_hashes.__getitem__, firsts))
    second = b"".join(map(_hashes.__getitem__, seconds))
    if len(_hashes) > _Hashes.MOST:
        _hashes.clear()
    return _majority(first, second[_SHIFT:] + second[:_SHIFT], len(firsts))


class _Hashes(dict[str, bytes]):
    """A cache of hashes: pages of a site share most of their words."""

    MOST: Final = 50_000

    def __missing__(self, word: str) -> bytes:
        data = word.encode("utf-8", "replace")
        digest = self[word] = blake2b(data, digest_size=BYTES).digest()
        return digest


_hashes: Final = _Hashes()


def _majority(first: bytes, second: bytes, pairs: int) -> bytes:
    mixed = (int.from_bytes(first) ^ int.from_bytes(second)).to_bytes(BYTES * pairs)
    masks = [int.from_bytes(bytes((1 << bit,)) * pairs) for bit in range(8)]
    majority = bytearray(BYTES)
    for at in range(BYTES):
        column = int.from_bytes(mixed[at::BYTES])
        for bit, mask in enumerate(masks):
            if 2 * (column & mask).bit_count() > pairs:
                majority[at] |= 1 << bit
    return bytes(majority)


def distance(first: bytes, other: bytes) -> int:
    """Return the number of bits in which two fingerprints differ."""
    return (int.from_bytes(first) ^ int.from_bytes(other)).bit_count()
