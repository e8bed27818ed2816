"""The contract of a store: what a run keeps: items, output files, texts of any kind, cookies."""

from __future__ import annotations

import msgspec

from tests.contract.store_world import DEAD, DONE, A, B, C, D, World, link
from zcrawl.model.states import Kept
from zcrawl.store.commands import AdvanceOutput, Done, NoteOutput
from zcrawl.store.output_pieces import Piece, Progress, Stamp, published
from zcrawl.store.ports import Store
from zcrawl.store.queries import (
    FindItems,
    FoundItems,
    Items,
    OutputRow,
    Outputs,
    ReadItems,
    ReadOutputs,
    Tallies,
    TallyRows,
)
from zcrawl.store.rules import merge_cookies


def test_the_newest_items_can_be_searched(world: World) -> None:
    """Newest first, by pages, of one run or of all, whatever the case of the letters. What was
    rejected or recorded is no item."""
    rows = world.submit(A, B, C).admitted
    for n, row in enumerate(rows):
        world.finish(row, DONE, items=(b'{"title":"Page %d"}' % n, b'{"other":1}'))
    other = world.submit(D).admitted[0]
    others = ((Kept.REJECTED, b'{"title":"page"}'), (Kept.CAPTURE, b"page"))
    world.finish(other, DONE, items=(b'{"title":"page of another"}',), others=others)
    newest = world.ask(FindItems(None, 1 << 60, 2), FoundItems)
    assert [(item.run, item.id) for item in newest.rows] == [(other.run, 7), (rows[0].run, 6)]
    assert (newest.last, newest.more) == (6, True)
    matches = world.ask(FindItems(rows[0].run, 6, 9, "PAGE"), FoundItems)
    assert [item.id for item in matches.rows] == [5, 3, 1]
    assert not matches.more
    assert matches.last == 1


def test_the_cursor_of_an_output_file_is_stored_with_its_length(world: World) -> None:
    """A file is listed until its run has ended and it holds every item."""
    job = world.submit(A, B, output=("/out/x.jsonl", "jsonl"))
    world.submit(C)
    expected = OutputRow(job.run, "/out/x.jsonl", "jsonl", 0, 0, 0, began=100.0)
    assert world.ask(ReadOutputs(), Outputs).rows == [expected]
    for row in job.admitted:
        world.finish(row, DONE)
    items = world.ask(ReadItems(job.run, 0, 10), Items).rows
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", items[0].id, 8), Done)
    world.do(AdvanceOutput(1, job.run, "/out/unknown", 9, 9), Done)
    expected = OutputRow(
        job.run, "/out/x.jsonl", "jsonl", items[0].id, 8, items[1].id, ended=True, began=100.0
    )
    assert world.ask(ReadOutputs(), Outputs).rows == [expected]
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", items[1].id, 16), Done)
    assert world.ask(ReadOutputs(), Outputs).rows == []
    assert [row.length for row in world.ask(ReadOutputs(job.run), Outputs).rows] == [16]


def test_an_output_of_a_run_without_items_is_listed_until_that_is_written_down(
    world: World,
) -> None:
    """By the moment of its part: neither cursor nor length tells it from one that nobody saw."""
    job = world.submit(A, output=("/out/x.jsonl", "jsonl"))
    world.finish(job.admitted[0], DEAD)
    expected = OutputRow(job.run, "/out/x.jsonl", "jsonl", 0, 0, 0, ended=True, began=100.0)
    assert world.ask(ReadOutputs(), Outputs).rows == [expected]
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", 0, 0, 0, 5.0), Done)
    assert world.ask(ReadOutputs(), Outputs).rows == []
    assert [row.part_at for row in world.ask(ReadOutputs(job.run), Outputs).rows] == [5.0]


def test_what_hinders_an_output_is_kept_until_it_is_written(world: World) -> None:
    """For `job`; a very long reason is cut, and progress takes it away."""
    job = world.submit(A, output=("/out/x.jsonl", "jsonl"))
    (fact,) = world.ask(Tallies(job.run), TallyRows).outputs
    assert (fact.path, fact.format, fact.problem) == ("/out/x.jsonl", "jsonl", "")
    world.do(NoteOutput(1, job.run, "/out/x.jsonl", "[disk_full] größer " + "x" * 5_000), Done)
    world.do(NoteOutput(1, job.run, "/out/unknown", "nothing"), Done)
    (fact,) = world.ask(Tallies(job.run), TallyRows).outputs
    assert fact.problem.startswith("[disk_full] größer x")
    (row,) = world.ask(ReadOutputs(), Outputs).rows
    assert row.problem == fact.problem
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", 0, 0), Done)
    (fact,) = world.ask(Tallies(job.run), TallyRows).outputs
    assert fact.problem == ""


def test_pieces_and_places_of_an_output_come_back_as_they_were(world: World) -> None:
    """A run that has ended is listed as long as pieces wait to be joined; `job` gets the places."""
    job = world.submit(A, output=("/out/x.jsonl", "jsonl"))
    world.finish(job.admitted[0], DONE)
    (item,) = world.ask(ReadItems(job.run, 0, 10), Items).rows
    piece = Piece(1, "m1", ".x.jsonl.1.1-ab.piece", 0, item.id, 8, 1 << 31)
    stored = Progress((piece,), ("ö", "b"), (Stamp(8, 1 << 62),), marker="0f")
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", item.id, 0, 0, 5.0, stored), Done)
    (row,) = world.ask(ReadOutputs(), Outputs).rows
    assert row.progress == stored
    assert row.ended
    assert row.cursor == row.last_item
    whole = published(stored, 0, "m1", "/out/\udcff.jsonl")
    changed = "[output_changed] beside"
    world.do(AdvanceOutput(1, job.run, "/out/x.jsonl", item.id, 0, 1, 0.0, whole, changed), Done)
    assert world.ask(ReadOutputs(), Outputs).rows == []
    (fact,) = world.ask(Tallies(job.run), TallyRows).outputs
    assert fact.places == whole.places
    assert (fact.part, fact.problem) == (1, changed)


def test_text_of_any_language_comes_back_as_it_was(world: World, store: Store) -> None:
    """URLs, reasons, names and paths are not changed by the store."""
    path = "/tmp/\udcff-ö.jsonl"  # a file name that is no UTF-8
    job = world.submit("https://a.test/ö?q=日本", name="Größe 🕷", output=(path, "jsonl"))
    row = job.admitted[0]
    world.finish(row, DEAD, reason="naïve 🕷")
    assert world.failures(row.run) == [("https://a.test/ö?q=日本", DEAD, "naïve 🕷")]
    assert world.run_row(row.run).name == "Größe 🕷"
    assert [out.path for out in world.ask(ReadOutputs(job.run), Outputs).rows] == [path]
    assert link("https://a.test/ö").origin == "https://a.test"


def test_a_runs_cookies_are_kept_by_host(world: World) -> None:
    """The newest of each host, in the same transaction as the page, and found by the next leader;
    another run has none of them."""
    done = world.submit(A, B, C)
    other = world.submit(A, name="other")
    a, b, c = done.admitted
    world.finish(a, DONE, cookies=("a.test", b'[["sid","1"]]'))
    world.finish(b, DONE, cookies=("b.test", b"[]"))
    world.finish(c, DONE, cookies=("a.test", b'[["sid","2"]]'))
    kept = world.run_row(done.run).cookies
    assert msgspec.json.decode(kept) == {"b.test": "[]", "a.test": '[["sid","2"]]'}
    assert world.run_row(other.run).cookies == b""


def test_cookies_have_a_bound() -> None:
    """A run on very many hosts forgets the jars that changed longest ago."""
    jar = b""
    for number in range(50):
        jar = merge_cookies(jar, f"h{number}.test", b"x" * 5_000)
    assert len(jar) <= 60_000
    assert list(msgspec.json.decode(jar)) == [f"h{n}.test" for n in range(39, 50)]
