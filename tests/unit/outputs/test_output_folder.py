"""Folders that outputs are opened in: no name and no link leads out of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.unit.output_tools import ALONE, Driven, no_rows
from zcrawl.errors import RefusedError, UsageError
from zcrawl.model.spec import JobSpec
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.files.parts import SinkTools
from zcrawl.outputs.files.sinks import open_sink
from zcrawl.store.output_pieces import Writer
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.read import to_json

PRECIOUS = b"do not overwrite me\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that nothing may be written in, with a file that must stay as it is."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "x.jsonl").write_bytes(PRECIOUS)
    (folder / "x.parquet").write_bytes(PRECIOUS)
    return folder


def places(tmp_path: Path, *allow: str) -> OutputPlaces:
    return OutputPlaces(tmp_path, tmp_path / "outputs", OutputRights(allow))


def row(path: str) -> OutputRow:
    form, spec = path.rpartition(".")[2], to_json(JobSpec("x"))
    return OutputRow(1, path, form, 0, 0, 9, 0, 0.0, False, spec, began=time.time() + 5)


def opened(path: str, where: OutputPlaces, writer: Writer = ALONE) -> Driven:
    sink = open_sink(row(path), SinkTools(where, lambda name: b"", writer))
    return Driven(sink, no_rows)


def write(where: OutputPlaces, path: str, writer: Writer = ALONE) -> None:
    """One item, to the end of the output."""
    sink = opened(path, where, writer)
    try:
        sink.take([ItemRow(1, b'{"n":1}')], 1.0)
        sink.settle(True, 2.0)
    finally:
        sink.close()


def untouched(outside: Path) -> bool:
    files = {path.name: path.read_bytes() for path in outside.iterdir()}
    return files == {"x.jsonl": PRECIOUS, "x.parquet": PRECIOUS}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_link_on_the_way_or_at_its_end_is_refused(
    form: str, tmp_path: Path, outside: Path
) -> None:
    """A folder, a folder in a folder, and the file itself; also one that leads to nothing yet."""
    outputs = tmp_path / "outputs"
    (outputs / "deep").mkdir(parents=True)
    (outputs / "way").symlink_to(outside)
    (outputs / "deep" / "way").symlink_to("../../outside")
    for path in (f"way/x.{form}", f"deep/way/x.{form}", f"way/new/x.{form}"):
        with pytest.raises(RefusedError, match="symbolic link") as caught:
            write(places(tmp_path), path)
        assert caught.value.code == "path_not_allowed"
    (outputs / f"x.{form}").symlink_to(outside / f"x.{form}")
    (outputs / f"y.{form}").symlink_to(outside / f"y.{form}")
    for name in ("x", "y"):
        if form == "parquet":  # complete files replace what has their name, links too
            write(places(tmp_path), f"{name}.{form}")
            assert not (outputs / f"{name}.{form}").is_symlink()
        else:
            for writer in (ALONE, Writer("m1", 1)):
                with pytest.raises(RefusedError, match="symbolic link"):
                    write(places(tmp_path), f"{name}.{form}", writer)
    assert untouched(outside)


def test_a_stored_path_is_judged_again_by_whoever_writes(tmp_path: Path, outside: Path) -> None:
    """It may have been submitted to a master with other rights."""
    for path in (str(outside / "x.jsonl"), "../outside/x.jsonl", "s3://bucket/x.jsonl"):
        with pytest.raises(RefusedError) as caught:
            opened(path, places(tmp_path))
        assert caught.value.code == "path_not_allowed"
    assert untouched(outside)
    assert not (tmp_path / "outgoing").exists()


def test_a_folder_that_becomes_a_link_meanwhile_changes_nothing(
    tmp_path: Path, outside: Path
) -> None:
    """A part is published in the folder that was opened, whatever has its name by then."""
    inside = tmp_path / "outputs" / "a"
    sink = opened("a/x.parquet", places(tmp_path))
    sink.take([ItemRow(1, b'{"n":1}')], 1.0)
    inside.rename(tmp_path / "outputs" / "moved")
    inside.symlink_to(outside)
    sink.settle(True, 2.0)
    sink.close()
    assert (tmp_path / "outputs" / "moved" / "x.parquet").exists()
    assert untouched(outside)


def test_prefixes_and_the_outputs_folder_may_be_links_themselves(tmp_path: Path) -> None:
    """They are the operator's; below them links are refused all the same."""
    disk = tmp_path / "disk"
    (disk / "sub").mkdir(parents=True)
    (tmp_path / "outputs").symlink_to(disk)
    (tmp_path / "shared").symlink_to(disk)
    (disk / "out").symlink_to(tmp_path)
    where = places(tmp_path, f"{tmp_path}/shared/")
    write(where, "sub/x.jsonl")
    write(where, f"{tmp_path}/shared/sub/y.jsonl")
    assert {path.name for path in (disk / "sub").iterdir()} == {"x.jsonl", "y.jsonl"}
    with pytest.raises(RefusedError):
        write(where, f"{tmp_path}/shared/out/x.jsonl")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A folder and a pipe are refused; the pipe does not block."""
    outputs = tmp_path / "outputs"
    (outputs / "x.jsonl").mkdir(parents=True)
    os.mkfifo(outputs / "y.jsonl")
    for name in ("x.jsonl", "y.jsonl"):
        for writer in (ALONE, Writer("m1", 1)):
            with pytest.raises(UsageError) as caught:
                write(places(tmp_path), name, writer)
            assert caught.value.code == "output_unwritable"


def test_the_machines_own_user_writes_through_links(tmp_path: Path, outside: Path) -> None:
    """They are their own."""
    (tmp_path / "way").symlink_to(outside)
    (tmp_path / "z.jsonl").symlink_to(outside / "z.jsonl")
    where = OutputPlaces(tmp_path, tmp_path, OutputRights(owner=True))
    write(where, "way/x.jsonl")
    write(where, str(tmp_path / "z.jsonl"))
    assert (outside / "x.jsonl").read_bytes() == b'{"n":1}\n' == (outside / "z.jsonl").read_bytes()
