"""What an extraction tells becomes rows and tallies, within bounds."""

from __future__ import annotations

from zcrawl.mesh.messages import ExtractionReport
from zcrawl.model.states import Kept
from zcrawl.result.plan import (
    MOST_FIELDS,
    MOST_REASONS,
    MOST_ROWS,
    examples_of,
    others_of,
    tallies_of,
)
from zcrawl.store.rules import MOST_DETAIL


def test_rows_and_tallies_of_an_extraction() -> None:
    """Zeros are not written; a page without extraction has neither."""
    report = ExtractionReport(
        rejected=[b"r"],
        reasons={"required: t": 1},
        problems=[b"p"],
        fields={"t": (3, 0, 0), "n": (0, 1, 2)},
        capture=b"c",
    )
    assert others_of(report) == ((Kept.REJECTED, b"r"), (Kept.PROBLEM, b"p"), (Kept.CAPTURE, b"c"))
    assert tallies_of(report) == (
        ("filled", "t", 3),
        ("empty", "n", 1),
        ("unread", "n", 2),
        ("rejected", "required: t", 1),
    )
    assert others_of(None) == ()
    assert tallies_of(None) == ()


def test_a_worker_that_tells_too_much_is_cut_short() -> None:
    """Names, counts and rows come from a worker; a transaction must stay one."""
    report = ExtractionReport(
        rejected=[b"r"] * 20_000,
        reasons={f"{n}" * 200: 10**12 for n in range(100)},
        fields={f"f{n}": (1, 0, 0) for n in range(2_000)},
    )
    assert len(others_of(report)) == MOST_ROWS
    tallies = tallies_of(report)
    assert sum(kind == "filled" for kind, _, _ in tallies) == MOST_FIELDS
    assert all(len(name) <= 200 and count <= 1_000_000 for _, name, count in tallies)


def test_each_reason_that_is_counted_has_an_example() -> None:
    """Also without words, as of items that a middleware dropped; within bounds."""
    report = ExtractionReport(
        reasons={"schema: n": 2, "dropped": 1}, examples={"schema: n": "n is 3", "other": "x"}
    )
    assert examples_of(report) == (("schema: n", "n is 3"), ("dropped", ""))
    assert examples_of(None) == examples_of(ExtractionReport()) == ()
    many = {str(n) * 100: 1 for n in range(1_000)}
    examples = examples_of(
        ExtractionReport(reasons=many, examples=dict.fromkeys(many, "x" * 5_000))
    )
    assert len(examples) == MOST_REASONS
    assert all(len(name) <= 200 and len(text) == MOST_DETAIL for name, text in examples)
    assert [name for name, _ in examples] == [
        name for _, name, _ in tallies_of(ExtractionReport(reasons=many))
    ]
