"""What becomes of a page whose text is almost another's: bands, distance, marks."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tests.contract.store_world import page
from zcrawl.errors import JobError
from zcrawl.mesh.messages import Traits
from zcrawl.model.spec import Duplicates
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Change
from zcrawl.store.near import Original, bands, fingerprint_in, judged, nearest
from zcrawl.submit.validate import spec_from_dict

A = "https://a.test/a"
NONE = b"\0" * 32
FIRST = Original(NONE, 1, A)
RULES = Duplicates("mark")
DONE, SKIPPED = RequestState.DONE, RequestState.SKIPPED


def change(*items: bytes, **traits: object) -> Change:
    page_traits = Traits(**{"fingerprint": NONE, **traits})  # type: ignore[arg-type]
    return Change("w", 1, 1, 2, 1, DONE, page=page(A), items=items, traits=page_traits)


@pytest.mark.parametrize(
    ("bits", "share"), [(2, 1.0), (8, 1.0), (12, 0.99), (16, 0.97), (20, 0.95), (24, 0.88)]
)
def test_near_fingerprints_share_a_band(bits: int, share: float) -> None:
    """So looking at bands misses few, even of those that are just near enough."""
    rng = random.Random(1)
    met = 0
    for _ in range(1_000):
        fingerprint = rng.getrandbits(256)
        other = fingerprint
        for bit in rng.sample(range(256), bits):
            other ^= 1 << bit
        first, second = (bands(x.to_bytes(32)) for x in (fingerprint, other))
        met += bool(set(first) & set(second))
    assert met >= share * 1_000


def test_a_band_is_no_other_band() -> None:
    """Equal bits at another place do not count."""
    assert len(set(bands(b"\xff" * 32))) == len(set(bands(NONE))) == 14


def test_the_nearest_original_counts_and_of_equal_ones_the_first() -> None:
    """Whatever the order in which they are looked at."""
    far, late, early = (
        Original(bits.to_bytes(32), seq, A) for bits, seq in ((0xFFF, 2), (1, 4), (2, 3))
    )
    for order in itertools.permutations((far, late, early)):
        assert nearest(NONE, order, RULES) == early
    assert nearest(NONE, [far], RULES) == far
    assert nearest(NONE, [far], Duplicates("mark", 2)) is None
    assert nearest(b"\xff" * 32, [FIRST], RULES) is None


@pytest.mark.parametrize(
    ("item", "marked"),
    [
        (b'{"n":1}', b'{"n":1,"duplicate_of":"https://a.test/a"}'),
        (b"{}", b'{"duplicate_of":"https://a.test/a"}'),
        (b'{"n": 1 }\n', b'{"n": 1,"duplicate_of":"https://a.test/a"}'),
    ],
)
def test_a_mark_names_the_first_page(item: bytes, marked: bytes) -> None:
    """In every item of the page; an original has the field too, empty."""
    assert judged(change(item, item), FIRST, RULES).items == (marked, marked)
    assert judged(change(b'{"n":1}'), None, RULES).items == (b'{"n":1,"duplicate_of":null}',)


def test_a_skip_leaves_nothing_but_the_links() -> None:
    """An original is as it was; so is what did not change."""
    skip = Duplicates("skip")
    gone = judged(change(b"{}"), FIRST, skip)
    assert (gone.state, gone.reason, gone.items, gone.page) == (SKIPPED, "near_duplicate", (), None)
    assert judged(change(b"{}"), None, skip) == change(b"{}")
    assert judged(change(unchanged=True), FIRST, skip) == change(unchanged=True)


def test_what_is_no_fingerprint_is_not_compared() -> None:
    """A worker may send anything."""
    assert fingerprint_in(change(fingerprint=b"short")) == b""
    assert fingerprint_in(Change("w", 1, 1, 2, 1, DONE, page=page(A))) == b""
    assert fingerprint_in(change()) == NONE


@pytest.mark.parametrize(
    ("duplicates", "complaint"),
    [
        ({"near": "drop"}, "off, mark, skip"),
        ({"distance": 7}, "0 to 6"),
        ({"distance": -1}, "0 to 6"),
        ({"nearr": "mark"}, "did you mean 'duplicates.near'"),
    ],
)
def test_what_makes_no_sense_is_refused(duplicates: dict[str, Any], complaint: str) -> None:
    """The error names the key and the choices."""
    with pytest.raises(JobError, match=complaint):
        spec_from_dict({"name": "j", "duplicates": duplicates}, "job.toml")
