"""What becomes of a page whose text is almost another's: bands, distance, marks."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.contract.store_world import page
from zcrawl.errors import JobError
from zcrawl.mesh.messages import Traits
from zcrawl.model import RequestState
from zcrawl.store.commands import Change
from zcrawl.store.near import Original, bands, fingerprint_in, judged, nearest
from zcrawl.submit.duplicates_spec import Duplicates
from zcrawl.submit.validate import spec_from_dict

A = "https://a.test/a"
FIRST = Original(b"\0" * 8, 1, A)
DONE, SKIPPED = RequestState.DONE, RequestState.SKIPPED


def change(*items: bytes, **traits: object) -> Change:
    told = Traits(**{"fingerprint": b"\0" * 8, **traits})  # type: ignore[arg-type]
    return Change("w", 1, 1, 2, 1, DONE, page=page(A), items=items, traits=told)


def test_fingerprints_within_three_bits_share_a_band() -> None:
    """So looking at bands misses none; and the bands of a fingerprint are different numbers."""
    rng = random.Random(1)
    for _ in range(300):
        one = rng.getrandbits(64)
        other = one
        for bit in rng.sample(range(64), 3):
            other ^= 1 << bit
        first, second = (bands(x.to_bytes(8)) for x in (one, other))
        assert set(first) & set(second)
        assert len(set(first)) == 4
    ranges = [set(range(n << 16, (n + 1) << 16)) for n in range(4)]
    assert all(band in own for band, own in zip(bands(b"\xff" * 8), ranges, strict=True))


def test_the_nearest_original_counts_and_of_equal_ones_the_first() -> None:
    """Whatever the order in which they are looked at."""
    near, nearer, same = (Original(bytes([0] * 7 + [x]), n, A) for x, n in ((7, 2), (1, 4), (2, 3)))
    for order in itertools.permutations((near, nearer, same)):
        assert nearest(b"\0" * 8, order, 3) == same
    assert nearest(b"\0" * 8, [near], 2) is None
    assert nearest(b"\xff" * 8, [FIRST], 3) is None


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
    mark = Duplicates("mark")
    assert judged(change(item, item), FIRST, mark).items == (marked, marked)
    assert judged(change(b'{"n":1}'), None, mark).items == (b'{"n":1,"duplicate_of":null}',)


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
    assert fingerprint_in(change()) == b"\0" * 8


@pytest.mark.parametrize(
    ("duplicates", "complaint"),
    [
        ({"near": "drop"}, "off, mark, skip"),
        ({"distance": 4}, "0 to 3"),
        ({"distance": -1}, "0 to 3"),
        ({"nearr": "mark"}, "did you mean 'duplicates.near'"),
    ],
)
def test_what_makes_no_sense_is_refused(duplicates: dict, complaint: str) -> None:
    """The error names the key and the choices."""
    with pytest.raises(JobError, match=complaint):
        spec_from_dict({"name": "j", "duplicates": duplicates}, "job.toml")
