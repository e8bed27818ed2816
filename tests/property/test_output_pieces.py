"""Pieces of an output, in any order of leaders, deaths and disks: all rows, none twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.store import output_pieces as pieces
from zcrawl.store.output_pieces import Copy, JoinStep, Piece, Progress, Rebuild, Stamp, Writer


def rows_of(step: JoinStep) -> list[int]:
    match step:
        case Copy(piece):
            return list(range(piece.after + 1, piece.upto + 1))
        case Rebuild(after, upto):
            return list(range(after + 1, upto + 1))


def written(lengths: list[list[int]]) -> Progress:
    """Each leader takes so many rows, batch by batch."""
    progress, cursor = Progress(), 0
    for epoch, batches in enumerate(lengths, 1):
        writer = Writer(f"m{epoch}", epoch)
        piece = pieces.begun(progress, writer, f"piece{epoch}", cursor)
        for count in batches:
            cursor += count
            length = piece.length + count
            piece = Piece(epoch, writer.master, piece.name, piece.after, cursor, length, 0)
            progress = pieces.grown(progress, piece)
            pieces.check(progress, cursor)
    return progress


@pytest.mark.parametrize("leaders", range(4))
def test_every_set_of_missing_pieces_gives_every_row_once(leaders: int) -> None:
    """All sets of up to three leaders with up to two batches, and all sets of pieces that this disk
    has: what is copied and what is rebuilt are all rows, in order, each once."""
    for counts in itertools.product([[], [1], [2, 1]], repeat=leaders):
        progress = written([list(batches) for batches in counts])
        names = [piece.name for piece in progress.pieces]
        total = sum(map(sum, counts))
        assert pieces.part_bytes(progress) == total
        for here in itertools.product([False, True], repeat=len(names)):
            whole = dict(zip(names, here, strict=True))
            plan = pieces.join_plan(progress, whole)
            assert [row for step in plan for row in rows_of(step)] == list(range(1, total + 1))
            copied = [step.piece.name for step in plan if isinstance(step, Copy)]
            assert copied == [name for name in names if whole[name]], (
                "what is here is not made anew"
            )
            kinds = [type(step) for step in plan]
            assert (Rebuild, Rebuild) not in itertools.pairwise(kinds), "one read instead of two"


@given(st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=90, max_size=250))
def test_leaders_that_change_for_ever_do_not_let_the_row_grow(lengths: list[list[int]]) -> None:
    """Beyond a hundred pieces the oldest are rebuilt from the rows."""
    progress = written(lengths)
    total = sum(map(sum, lengths))
    assert len(progress.pieces) <= pieces.MOST_PIECES
    whole = dict.fromkeys((piece.name for piece in progress.pieces), True)
    plan = pieces.join_plan(progress, whole)
    assert [row for step in plan for row in rows_of(step)] == list(range(1, total + 1))
    assert pieces.decode(pieces.encode(progress)) == progress


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["m1", "m2"])), max_size=300))
def test_the_places_of_all_parts_are_told_in_a_short_row(story: list[tuple[bool, str]]) -> None:
    """Each part has one place, the newest word counts, and parts in a row on one disk are one
    entry. A part is published again after a death before the commit."""
    progress, part, latest = Progress(), 0, {}
    for again, master in story:
        part = max(0, part - 1) if again else part
        progress = pieces.published(progress, part, master, f"/{master}/x-{part:05}.jsonl")
        latest[part] = master
        part += 1
        pieces.check(progress, 0)
    masters: dict[int, str] = {}
    for place in progress.places:
        for number in range(place.first, place.last + 1):
            masters[number] = place.master
    if len(progress.places) < pieces.MOST_PLACES:
        assert masters == latest
    assert len(pieces.encode(progress)) < 60_000


def test_only_files_of_the_run_or_from_before_it_are_replaced() -> None:
    """A file that is younger than the run and unknown is a user's."""
    ours, older, users = Stamp(5, 2_000), Stamp(9, 900), Stamp(5, 2_001)
    progress = pieces.announced(Progress(), ours)
    assert pieces.may_replace(None, progress, 1_000)
    assert pieces.may_replace(ours, progress, 1_000)
    assert pieces.may_replace(older, progress, 1_000)
    assert not pieces.may_replace(users, progress, 1_000)
    for number in range(50):
        progress = pieces.announced(progress, Stamp(number, 3_000))
    assert len(progress.stamps) == pieces.MOST_STAMPS
