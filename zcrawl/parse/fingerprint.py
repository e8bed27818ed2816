"""A fingerprint of what a page says: 256 bits that differ little when two texts differ little.

Called by `parse.page` for jobs that look for near duplicates, on a tree that nobody needs any
more. Pure. A simhash (Charikar) over neighbouring words: each pair votes for or against each bit
with the bits of its hash, once, however often it is there: by their frequency, a few phrases of
tables and indexes outvoted all the rest. Navigation, footers and scripts have no vote: sites repeat
them on every page. A text of few words gets no fingerprint: a single word would turn many bits.

64 bits are too few: of 600 pages with 300 words of untagged boilerplate and 30 words of their own
301 came out as duplicates, with 256 bits few (docs/recrawl.md has figures).

All votes are counted at once. The hashes of all first words lie side by side; those of the second
ones, shifted a little, are laid over them; then every byte column is one long number, and the
votes for a bit are a mask and a bit count. By loops it took 60 times as long.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Final

from selectolax.lexbor import LexborHTMLParser

BYTES: Final = 32
LEAST_WORDS: Final = 50
MOST_WORDS: Final = 100_000  # what comes behind does not count
_UNSPOKEN: Final = [
    *("script", "style", "template", "noscript", "svg", "iframe", "nav", "footer", "aside"),
    *("form", "select", "button", "head"),
]
_TOP: Final = "body > header"  # of the page; one within an article holds its title
_SHIFT: Final = 3  # bytes: "a b" is not "b a", nor is "a a" nothing
_LONG_WORD: Final = 12  # characters; longer on average: a script without spaces


def fingerprint_of(tree: LexborHTMLParser) -> bytes:
    """Of the visible text; empty if there is too little of it. Takes the tree apart."""
    tree.strip_tags(_UNSPOKEN, recursive=True)
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
    """Pages of a site share their words: most of them are hashed once."""

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
    """In how many bits two fingerprints differ."""
    return (int.from_bytes(first) ^ int.from_bytes(other)).bit_count()
