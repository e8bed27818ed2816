"""The results of failed tasks in one answer to a client."""

from __future__ import annotations

from zcrawl.master.desk import reads
from zcrawl.model.states import RequestState
from zcrawl.store.queries import FailedRow


def failed(seq: int, result: bytes) -> FailedRow:
    return FailedRow(seq, "https://x/", RequestState.DEAD, "shell_exit", 0, 1, 0, None, "", result)


def test_results_are_left_out_of_an_answer_that_would_be_too_long() -> None:
    """All rows are there; those without their result say so. The export has all of them."""
    half = b'"' + b"a" * (reads.MOST_RESULT_BYTES // 2 - 2) + b'"'
    views = reads._failed([failed(1, half), failed(2, half), failed(3, b"{}"), failed(4, b"")])
    assert [len(view["result"]) for view in views] == [len(half), len(half), 0, 0]
    assert [view["result_left_out"] for view in views] == [False, False, True, False]
