"""A fingerprint of what a page says: 64 bits that differ little when two texts differ little.

Called by `parse.page` for jobs that look for near duplicates, on a tree that nobody needs any
more. Pure. A simhash (Charikar) over pairs of neighbouring words: each pair votes for or against
each bit with the bits of its hash. Navigation, footers and scripts have no vote: sites repeat
them on every page. A text of few words gets no fingerprint: a single word would turn many bits.

All votes are counted at once in integers as long as the text: word hashes lie side by side in one
number, neighbours are mixed by shifting it, and a bit's votes are a mask and a bit count. 64
counters in a Python loop took 30 times as long.
"""

from __future__ import annotations

import functools
import re
from hashlib import blake2b
from typing import Final

from selectolax.lexbor import LexborHTMLParser

BYTES: Final = 8
LEAST_WORDS: Final = 50
MOST_WORDS: Final = 100_000  # what comes behind does not count
_UNSPOKEN: Final = [
    *("script", "style", "template", "noscript", "svg", "iframe", "nav", "footer", "aside"),
    *("form", "select", "button", "head"),
]
_TOP: Final = "body > header"  # of the page; one within an article holds its title
_WORD: Final = re.compile(r"\w+")
_ROTATION: Final = 23  # of the second word of a pair: "a b" is not "b a"


def fingerprint_of(tree: LexborHTMLParser) -> bytes:
    """Of the visible text; empty if there is too little of it. Takes the tree apart."""
    tree.strip_tags(_UNSPOKEN, recursive=True)
    for header in tree.css(_TOP):
        header.decompose()
    body = tree.body
    return b"" if body is None else fingerprint(body.text(separator=" "))


def fingerprint(text: str) -> bytes:
    words = _WORD.findall(text.lower())[:MOST_WORDS]
    if len(words) < LEAST_WORDS:
        return b""
    return _votes(b"".join(map(_hash, words)), len(words) - 1)


@functools.lru_cache(maxsize=50_000)
def _hash(word: str) -> bytes:
    return blake2b(word.encode("utf-8", "replace"), digest_size=BYTES).digest()


def _votes(hashes: bytes, pairs: int) -> bytes:
    """The majority of each bit over all neighbours."""
    lanes = int.from_bytes(hashes, "little")
    following = lanes >> 64
    low = int.from_bytes(((1 << _ROTATION) - 1).to_bytes(BYTES, "little") * pairs, "little")
    turned = ((following << _ROTATION) & ~low) | ((following >> (64 - _ROTATION)) & low)
    mixed = (lanes ^ turned) & ((1 << (64 * pairs)) - 1)
    ones = int.from_bytes((1).to_bytes(BYTES, "little") * pairs, "little")
    found = 0
    for bit in range(64):
        if 2 * ((mixed >> bit) & ones).bit_count() > pairs:
            found |= 1 << bit
    return found.to_bytes(BYTES, "little")


def distance(one: bytes, other: bytes) -> int:
    """In how many bits two fingerprints differ."""
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).bit_count()
