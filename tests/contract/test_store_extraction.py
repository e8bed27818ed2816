"""What an extraction leaves in a store: blocks of links, rows besides items, tallies."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from tests.contract.store_world import DONE, A, B, C, World, link
from zcrawl.model.rows import LaneWant, Refilled
from zcrawl.model.states import Kept, RequestState
from zcrawl.store.queries import Items, ReadItems, Refill
from zcrawl.store.sql.store import open_sqlite


def test_a_link_keeps_its_label_until_it_is_fetched(world: World) -> None:
    """Through the admission, a refill and a reload; the first finder decides."""
    (seed,) = world.submit(A).admitted
    named = msgspec.structs.replace(link(B), block="book")
    applied = world.finish(seed, DONE, links=(named, link(C)))
    assert [row.block for row in applied.admitted] == ["book", ""]
    again = msgspec.structs.replace(link(B), block="other")
    world.finish(applied.admitted[1], DONE, links=(again,))
    lane = LaneWant(seed.run, seed.host, None, 10)
    ((_, rows, _),) = world.ask(Refill((lane,)), Refilled).lanes
    assert [(row.url, row.block) for row in rows] == [(B, "book")]


def test_what_is_set_aside_is_kept_and_is_no_item(world: World) -> None:
    """Each kind is read by itself, in commit order; only items count as such."""
    a, b = world.submit(A, B).admitted
    others = ((Kept.REJECTED, b"r1"), (Kept.PROBLEM, b"p"), (Kept.REJECTED, b"r2"))
    world.finish(a, DONE, items=(b"{}",), others=others)
    world.finish(b, DONE, items=(b"{}", b"{}"), others=((Kept.REJECTED, b"r3"),))

    def kept(kind: Kept, after: int = 0, limit: int = 10) -> list[bytes]:
        return [row.data for row in world.ask(ReadItems(a.run, after, limit, kind), Items).rows]

    assert kept(Kept.REJECTED) == [b"r1", b"r2", b"r3"]
    assert kept(Kept.REJECTED, limit=2) == [b"r1", b"r2"]
    assert kept(Kept.PROBLEM) == [b"p"]
    assert kept(Kept.CAPTURE) == []
    assert len(kept(Kept.ITEM)) == 3
    assert world.run_row(a.run).counters.items == 3


def test_a_redirect_that_is_handed_over_leaves_its_exchange(world: World) -> None:
    """It ends skipped, without a page, and an archive still wants it."""
    (a,) = world.submit(A).admitted
    captures = ((Kept.CAPTURE, b"moved"),)
    world.finish(a, RequestState.SKIPPED, reason="redirected", others=captures)
    rows = world.ask(ReadItems(a.run, 0, 10, Kept.CAPTURE), Items).rows
    assert [row.data for row in rows] == [b"moved"]
    assert world.run_row(a.run).counters.items == 0


def test_fields_and_rejections_are_tallied_with_the_result(world: World) -> None:
    """They add up over results, and a duplicate adds nothing."""
    a, b = world.submit(A, B).admitted
    tallies = (("filled", "t", 2), ("empty", "t", 1), ("unread", "p", 1), ("rejected", "why", 3))
    world.finish(a, DONE, tallies=tallies)
    change = world.change(b, DONE, tallies=tallies)
    world.apply(change)
    world.apply(change)
    rows = world.tallies(a.run)
    assert (rows.filled, rows.empty, rows.unread) == ({"t": 4}, {"t": 2}, {"p": 2})
    assert rows.rejected == {"why": 6}


def test_an_older_database_is_led_to_the_same_schema_as_a_new_one(tmp_path: Path) -> None:
    """Its rows stay, and get the defaults."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    open_sqlite(new).close()
    store = open_sqlite(old)
    (row,) = World(store).submit(A).admitted
    store.close()
    database = sqlite3.connect(old)
    database.executescript(
        "DROP INDEX item_run_kind; CREATE INDEX item_run ON items (run);"
        "ALTER TABLE items DROP COLUMN kind; ALTER TABLE requests DROP COLUMN label;"
        "ALTER TABLE outputs DROP COLUMN part; ALTER TABLE outputs DROP COLUMN part_at;"
        "UPDATE schema_version SET version = 1"
    )
    database.close()
    store = open_sqlite(old)
    lane = LaneWant(row.run, row.host, None, 10)
    ((_, rows, _),) = World(store).ask(Refill((lane,)), Refilled).lanes
    assert rows == [row]
    store.close()
    assert _schema(old) == _schema(new)


def _schema(path: Path) -> dict[str, list[str]]:
    """Columns of tables and of indexes, by name: those that were added later stand at the end."""
    database = sqlite3.connect(path)
    schema: dict[str, list[str]] = {}
    for name, kind in database.execute("SELECT name, type FROM sqlite_master").fetchall():
        pragma, column = ("table_info", 1) if kind == "table" else ("index_info", 2)
        rows = database.execute(f"PRAGMA {pragma}({name})").fetchall()
        schema[name] = sorted(str(row[column]) for row in rows)
    database.close()
    return schema
