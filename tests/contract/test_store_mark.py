"""A database that lost commits is recognised by the mark next to it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.store_world import DONE, A, B, World, links
from tests.integration.crawling import command
from zcrawl.cli.commands.doctor import check_database
from zcrawl.errors import StoreCorrupt, ZcrawlError
from zcrawl.roles import offline
from zcrawl.store.sql.dialects.sqlite_files import mark_path
from zcrawl.store.sql.store import open_sqlite

DATABASE = "zcrawl.db"


def crashed(tmp_path: Path) -> Path:
    """A data folder as a killed leader leaves it: the newest commits are in the -wal file only."""
    live = tmp_path / "live"
    store = open_sqlite(live / DATABASE)
    world = World(store)
    job = world.submit(A)
    folder = tmp_path / "crashed"
    world.finish(job.admitted[0], DONE, links=links(B))
    shutil.copytree(live, folder)
    store.close()
    assert (folder / f"{DATABASE}-wal").stat().st_size > 0
    return folder


def wal(folder: Path) -> Path:
    return folder / f"{DATABASE}-wal"


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def checkpoint(folder: Path) -> None:
    """Merge the -wal file, as any tool does that opens the database and closes it."""
    sqlite3.connect(folder / DATABASE).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()


def lose_database(folder: Path) -> None:
    checkpoint(folder)
    (folder / DATABASE).unlink()


def empty_database(folder: Path) -> None:
    checkpoint(folder)
    (folder / DATABASE).write_bytes(b"")


def restore_older(folder: Path) -> None:
    """A backup of the moment before the last commit."""
    checkpoint(folder)
    connection = sqlite3.connect(folder / DATABASE)
    with connection:
        connection.execute("UPDATE leaders SET commits = commits - 1")
    connection.close()


def lose_wal_and_shm(folder: Path) -> None:
    for end in ("-wal", "-shm"):
        (folder / f"{DATABASE}{end}").unlink()


LOSSES: dict[str, Callable[[Path], object]] = {
    "wal zeroed": lambda folder: zero(wal(folder)),
    "wal missing": lambda folder: wal(folder).unlink(),
    "wal emptied": lambda folder: wal(folder).write_bytes(b""),
    "wal cut": lambda folder: cut(wal(folder)),
    "wal and shm missing": lose_wal_and_shm,
    "database missing": lose_database,
    "database emptied": empty_database,
    "older backup": restore_older,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_database_that_lost_commits_is_a_named_error(tmp_path: Path, loss: str) -> None:
    """For whoever leads, reads or changes it offline, and in `doctor`; with what to do. It stays
    as it is: a second look says the same."""
    folder = crashed(tmp_path)
    LOSSES[loss](folder)
    ways: list[Callable[[], object]] = [
        lambda: open_sqlite(folder / DATABASE),
        lambda: open_sqlite(folder / DATABASE, readonly=True),
        lambda: offline.open_readonly(folder),
        lambda: offline.open_writable(folder),
    ]
    for open_store in ways:
        with pytest.raises(StoreCorrupt) as caught:
            open_store()
        assert caught.value.code == "store_lost"
        assert str(mark_path(folder / DATABASE)) in str(caught.value)
    check = check_database(folder)
    assert (check.status, "zcrawl.db" in check.detail) == ("fail", True)


def test_no_command_takes_a_lost_database_for_an_empty_folder(tmp_path: Path) -> None:
    """`--resume` said that there was nothing to resume, with exit 0."""
    folder = crashed(tmp_path)
    zero(wal(folder))
    for args in (
        ("crawl", "--resume"),
        ("crawl", "http://127.0.0.1:9/"),
        ("jobs",),
        ("job", "1"),
        ("export", "1", "--out", "x.jsonl"),
        ("cancel", "1", "--offline"),
        ("retry", "1"),
    ):
        done = command(*args, "--data", folder, cwd=tmp_path)
        assert done.returncode != 0, args
        assert "store_lost" in done.stderr, (args, done.stderr)


def test_removing_the_mark_goes_on_with_what_is_there(tmp_path: Path) -> None:
    """As the message says."""
    folder = crashed(tmp_path)
    restore_older(folder)
    mark_path(folder / DATABASE).unlink()
    store = open_sqlite(folder / DATABASE)
    World(store)
    store.close()
    open_sqlite(folder / DATABASE).close()


def test_a_whole_database_opens_whoever_merged_its_log(tmp_path: Path) -> None:
    """After a kill; after another tool has merged and removed the -wal file; with a -shm file
    left over; with a mark that is damaged."""
    folder = crashed(tmp_path)
    open_sqlite(folder / DATABASE, readonly=True).close()
    checkpoint(folder)
    wal(folder).unlink(missing_ok=True)
    (folder / f"{DATABASE}-shm").write_bytes(bytes(32768))
    open_sqlite(folder / DATABASE).close()
    mark_path(folder / DATABASE).write_bytes(b"zcrawl mark 1 \xff")
    open_sqlite(folder / DATABASE).close()


def test_a_damaged_mark_still_says_that_there_were_crawls(tmp_path: Path) -> None:
    """A folder without its database is not taken for a new one."""
    folder = crashed(tmp_path)
    mark_path(folder / DATABASE).write_bytes(b"")
    lose_database(folder)
    with pytest.raises(ZcrawlError, match="is missing"):
        open_sqlite(folder / DATABASE)


def test_a_folder_that_is_read_only_is_read(tmp_path: Path) -> None:
    """The comparison writes nothing."""
    folder = crashed(tmp_path)
    checkpoint(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    try:
        open_sqlite(folder / DATABASE, readonly=True).close()
        kept = {name: (folder / name).read_bytes() for name in (DATABASE, f"{DATABASE}-mark")}
    finally:
        folder.chmod(0o700)
    assert kept == {name: before[name] for name in kept}
