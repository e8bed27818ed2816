"""Examples of tallies: what happened to the first requests of each reason, on every store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.contract.store_world import DEAD, DONE, QUEUED, SKIPPED, A, B, C, D, World, link, links
from zcrawl.model.states import Disposition, Kept, RunState
from zcrawl.store.commands import CountCrash, CrashCounted
from zcrawl.store.queries import Failures, Items, ReadFailed, ReadItems
from zcrawl.store.rules import MOST_DETAIL, MOST_EXAMPLE_REASONS, MOST_EXAMPLES
from zcrawl.store.sql.store import open_sqlite


def details(world: World, run: int) -> dict[str, str]:
    rows = world.ask(ReadFailed(run, 0, 1000), Failures).rows
    return {row.url: row.detail for row in rows}


def test_each_reason_of_failures_has_its_first_request_and_what_happened(world: World) -> None:
    """Also one without a detail: its URL is worth something by itself."""
    a, b, c, d = world.submit(A, B, C, D).admitted
    world.finish(c, DEAD, reason="spider_error", detail="KeyError: 'x' (sp.py, line 9)")
    world.finish(b, DEAD, reason="spider_error", detail="IndexError: none (sp.py, line 8)")
    world.finish(d, DEAD, reason="http_404")
    assert world.examples(a.run) == {
        ("failed", "spider_error"): (B, "IndexError: none (sp.py, line 8)"),
        ("failed", "http_404"): (D, ""),
    }
    assert details(world, a.run) == {
        B: "IndexError: none (sp.py, line 8)",
        C: "KeyError: 'x' (sp.py, line 9)",
        D: "",
    }


def results(world: World, run: int) -> dict[str, bytes]:
    return {row.url: row.result for row in world.ask(ReadFailed(run, 0, 1000), Failures).rows}


def test_a_task_that_failed_for_good_keeps_its_result(world: World) -> None:
    """Beside its reason, and not as an item: outputs and counters do not have it."""
    a, b, c = world.submit(A, B, C).admitted
    world.finish(b, DEAD, reason="shell_exit", others=((Kept.FAILURE, b'{"exit_code":4}'),))
    world.finish(c, DEAD, reason="shell_exit")
    assert results(world, a.run) == {B: b'{"exit_code":4}', C: b""}
    assert world.ask(ReadItems(a.run, 0, 10), Items).rows == []


def test_a_skip_is_an_example_only_if_there_is_more_to_say(world: World) -> None:
    """Redirects and duplicates are skipped by the thousand, and nothing is wrong with them."""
    a, b, c = world.submit(A, B, C).admitted
    world.finish(a, SKIPPED, reason="redirected")
    world.finish(b, SKIPPED, reason="robots", detail="robots.txt forbids it")
    assert world.examples(c.run) == {("skipped", "robots"): (B, "robots.txt forbids it")}


def test_an_attempt_that_is_tried_again_is_no_example(world: World) -> None:
    """Only what failed for good is."""
    (a, _) = world.submit(A, B).admitted
    world.finish(a, QUEUED, reason="connect", detail="refused")
    assert world.examples(a.run) == {}


def test_items_that_were_set_aside_have_an_example_by_reason(world: World) -> None:
    """Of the page that is done: one that is skipped as a duplicate set nothing aside."""
    a, b, _ = world.submit(A, B, C).admitted
    world.finish(b, DONE, examples=(("schema: price", "price is 'n/a'"), ("dropped", "")))
    world.finish(a, DONE, final=link(B), examples=(("schema: title", "title is 3"),))
    assert world.examples(a.run) == {
        ("rejected", "schema: price"): (B, "price is 'n/a'"),
        ("rejected", "dropped"): (B, ""),
    }


def test_a_result_that_comes_twice_adds_no_example(world: World) -> None:
    """Neither the same message again nor another worker's result for the same request."""
    a, _ = world.submit(A, B).admitted
    change = world.change(a, DEAD, reason="dns", detail="first")
    world.apply(change)
    world.apply(change)
    late = world.change(a, DEAD, worker="w2", reason="connect", detail="second")
    assert world.apply(late).dispositions == [Disposition.DUPLICATE]
    assert world.examples(a.run) == {("failed", "dns"): (A, "first")}


def test_examples_are_bounded_by_reason_and_by_run(world: World) -> None:
    """A run with a million failures keeps as many as one with a few thousand."""
    urls = [f"https://a.test/{n}" for n in range(MOST_EXAMPLES + MOST_EXAMPLE_REASONS + 5)]
    rows = world.submit(*urls, A).admitted
    same, other = rows[: MOST_EXAMPLES + 3], rows[MOST_EXAMPLES + 3 : -1]
    world.apply(*(world.change(row, DEAD, reason="dns", detail="x") for row in same[:4]))
    world.apply(*(world.change(row, DEAD, reason="dns", detail="x") for row in same[4:]))
    for row in other:
        world.finish(row, DEAD, reason=f"r{row.seq}", detail="é" * MOST_DETAIL)
    run = rows[0].run
    examples = world.examples(run)
    assert len(examples) == MOST_EXAMPLE_REASONS
    assert list(details(world, run).values()).count("x") == MOST_EXAMPLES
    assert ("failed", f"r{other[-1].seq}") not in examples
    assert len(world.tallies(run).failed) == MOST_EXAMPLE_REASONS + 3, "all are counted"


def test_a_request_that_is_tried_again_is_no_example_any_more(world: World) -> None:
    """It may succeed now. What fails next is the example then."""
    a, b = world.submit(A, B).admitted
    world.finish(a, DEAD, reason="dns", detail="first")
    world.finish(b, DEAD, reason="connect", detail="refused")
    world.retry(a.run, reason="dns")
    assert world.examples(a.run) == {("failed", "connect"): (B, "refused")}
    world.finish(a, DEAD, reason="dns", detail="second")
    assert world.examples(a.run)[("failed", "dns")] == (A, "second")


@pytest.mark.parametrize("together", [True, False])
def test_a_page_that_a_redirect_brings_is_no_example_of_its_failure(
    world: World, together: bool
) -> None:
    """Its row becomes `redirect_target`, in the same batch or in a later one."""
    a, b, _ = world.submit(A, B, C).admitted
    changes = [
        world.change(b, DEAD, reason="dns", detail="no such name"),
        world.change(a, DONE, final=link(B)),
    ]
    if together:
        world.apply(*changes)
    else:
        for change in changes:
            world.apply(change)
    assert world.examples(a.run) == {}
    assert details(world, a.run) == {B: ""}


def test_a_quarantined_request_tells_what_it_did(world: World) -> None:
    """No result tells of it: the leader counted its crashes."""
    a, _ = world.submit(A, B).admitted
    world.do(CountCrash(world.epoch, a.seq, 3, True, world.now), CrashCounted)
    url, detail = world.examples(a.run)[("failed", "quarantined")]
    assert url == A
    assert detail.startswith("3 worker processes ended")


def test_a_deleted_run_takes_its_examples_along(world: World) -> None:
    """And no others."""
    a = world.submit(A, B).admitted[0]
    b = world.submit(A, B).admitted[0]
    for row in (a, b):
        world.finish(row, DEAD, reason="dns", detail="x", links=links(C))
    world.change_run(a.run, RunState.DELETED)
    while world.sweep(a.run, 1).more:
        assert world.examples(a.run) == {}
    assert world.examples(a.run) == {}
    assert world.examples(b.run)


def test_a_database_without_the_table_gets_it(tmp_path: Path) -> None:
    """One of schema version 14: its failures stay, without examples, and new ones have some."""
    store = open_sqlite(tmp_path / "z.db")
    world = World(store)
    a, b, _ = world.submit(A, B, C).admitted
    world.finish(a, DEAD, reason="dns", detail="lost")
    store.close()
    database = sqlite3.connect(tmp_path / "z.db")
    database.executescript("DROP TABLE examples; UPDATE schema_version SET version = 14")
    database.close()
    store = open_sqlite(tmp_path / "z.db")
    world.store = store
    assert world.examples(a.run) == {}
    assert details(world, a.run) == {A: ""}
    world.finish(b, DEAD, reason="dns", detail="kept")
    assert world.examples(a.run) == {("failed", "dns"): (B, "kept")}
    store.close()
