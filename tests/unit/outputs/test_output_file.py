"""Output files: each committed item once, whatever happened to the leader between two commits."""

from __future__ import annotations

import csv
import errno
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.errors import DiskFull, StoreDataError, StoreError, UsageError
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.outputs.render import csv_columns, read_header, render_csv, render_jsonl


def test_items_are_appended_line_by_line(tmp_path: Path) -> None:
    """The length that is returned is the length of the file."""
    path = tmp_path / "x.jsonl"
    with OutputFile(path, "jsonl", 0) as output:
        assert output.append([b'{"a":1}']) == 8
        assert output.append([]) == 8
        assert output.append([b'{"a":2}', b'{"a":3}']) == 24
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"a":3}\n'


def test_what_was_not_committed_is_cut_off(tmp_path: Path) -> None:
    """A leader that died before its commit leaves a tail, which the next one does not keep."""
    path = tmp_path / "x.jsonl"
    with OutputFile(path, "jsonl", 0) as output:
        committed = output.append([b"{}"])
        output.append([b'{"lost":1}'])
    with OutputFile(path, "jsonl", committed) as output:
        assert output.length == committed
        output.append([b'{"next":1}'])
    assert path.read_bytes() == b'{}\n{"next":1}\n'


def test_a_new_run_replaces_an_old_file(tmp_path: Path) -> None:
    """Length 0 means that nothing of it is ours."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"old")
    with OutputFile(path, "jsonl", 0):
        assert path.read_bytes() == b""


def test_a_file_that_lost_bytes_is_named(tmp_path: Path) -> None:
    """The error names the path and both lengths, and the file is not changed."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(StoreError) as caught:
        OutputFile(path, "jsonl", 10).open()
    assert caught.value.code == "output_damaged"
    for part in (str(path), "3 bytes", "10"):
        assert part in str(caught.value)
    assert path.read_bytes() == b"{}\n"


def test_a_path_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """A folder, a missing folder, an unknown format: exit code 2 before any work."""
    for path, format in (
        (tmp_path, "jsonl"),
        (tmp_path / "no" / "x", "csv"),
        (tmp_path / "x", "y"),
    ):
        with pytest.raises(UsageError):
            OutputFile(path, format, 0).open()


def test_a_full_disk_loses_nothing() -> None:
    """/dev/full answers every write with ENOSPC; the length does not move."""
    output = OutputFile(Path("/dev/full"), "jsonl", 0)
    with Path("/dev/full").open("r+b", buffering=0) as full:
        output._file = _Untruncatable(full)  # type: ignore[assignment]
        with pytest.raises(DiskFull):
            output.append([b"{}"])
    assert output.length == 0


class _Untruncatable:
    """A device that takes everything but truncation."""

    def __init__(self, file: object) -> None:
        self._inner = file

    def truncate(self, size: int) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_an_output_that_is_not_open_is_named(tmp_path: Path) -> None:
    """Appending before open or after close is an error of ours, not a lost item."""
    with pytest.raises(StoreError, match="not open"):
        OutputFile(tmp_path / "x", "jsonl", 0).append([b"{}"])


def test_csv_has_one_header_and_the_same_columns_after_a_resume(tmp_path: Path) -> None:
    """Columns are the keys of the first batch; what later items have besides is in one more."""
    path = tmp_path / "x.csv"
    with OutputFile(path, "csv", 0) as output:
        length = output.append([b'{"url":"u1","price":1.5}', b'{"url":"u2","a\\nb":true}'])
    with OutputFile(path, "csv", length) as output:
        output.append([b'{"late":1,"price":2,"url":"u3"}'])
    rows = list(csv.reader(io.StringIO(path.read_text(), newline="")))
    assert rows == [
        ["url", "price", "a\nb", "_more"],
        ["u1", "1.5", "", ""],
        ["u2", "", "true", ""],
        ["u3", "2", "", '{"late":1}'],
    ]


def test_a_csv_that_an_earlier_version_began_keeps_its_columns(tmp_path: Path) -> None:
    """Its header has no column for other keys, so no row has one."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\r\n1,2\r\n")
    with OutputFile(path, "csv", 10) as output:
        output.append([b'{"a":3,"c":4}'])
    assert path.read_bytes() == b"a,b\r\n1,2\r\n3,\r\n"


def test_csv_quotes_as_the_rfc_says_and_alters_nothing() -> None:
    """Quotes, commas, line breaks, formulas and nested values survive."""
    item = json.dumps({"a": 'x"y', "b": "1,2", "c": "l1\r\nl2", "d": "=1+1", "e": [1, {"f": None}]})
    data = render_csv([item.encode()], ["a", "b", "c", "d", "e"], header=False)
    assert data == b'"x""y","1,2","l1\r\nl2",=1+1,"[1,{""f"":null}]"\r\n'


def test_an_item_that_is_no_object_is_a_data_error() -> None:
    """Spiders may send anything; the error has a name."""
    for item in (b"[1]", b"{", b""):
        with pytest.raises(StoreDataError):
            csv_columns([item])


def test_an_item_with_line_breaks_stays_one_line() -> None:
    """Layout within an item must not break the lines of the file."""
    assert render_jsonl([b'{\n "a": 1\r\n}', b'{"b":2}']) == b'{"a":1}\n{"b":2}\n'


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=4))
def test_any_text_survives_csv(values: list[str]) -> None:
    """What a reader reads is what the item said."""
    columns = [f"c{i}" for i in range(len(values))]
    item = json.dumps(dict(zip(columns, values, strict=True))).encode()
    text = render_csv([item], columns, header=True).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [columns, values]
    assert list(read_header(text.encode())) == columns


def test_a_stale_leader_that_wakes_up_writes_what_is_there_already(tmp_path: Path) -> None:
    """It was paused after it had read some items. The next leader has written these and more;
    nothing of that is cut off, because both write the same bytes to the same place."""
    path, items = tmp_path / "x.jsonl", [b'{"n":%d}' % n for n in range(9)]
    with OutputFile(path, "jsonl", 0) as stale:
        committed = stale.append(items[:3])
        with OutputFile(path, "jsonl", committed) as leader:
            leader.append(items[3:7])
            stale.append(items[3:5])
            leader.append(items[7:])
    assert path.read_bytes() == render_jsonl(items)


def test_a_file_that_shrank_while_it_was_written_is_named(tmp_path: Path) -> None:
    """A hole of zeros would be a file that looks whole."""
    path = tmp_path / "x.jsonl"
    with OutputFile(path, "jsonl", 0) as output:
        output.append([b"{}", b"{}"])
        path.write_bytes(b"{}\n")
        with pytest.raises(StoreError) as caught:
            output.append([b"{}"])
    assert caught.value.code == "output_damaged"
    assert path.read_bytes() == b"{}\n"


def test_a_piece_that_a_failed_write_left_is_cut_off(tmp_path: Path) -> None:
    """The next attempt may be shorter than the one that failed."""
    path = tmp_path / "x.jsonl"
    with OutputFile(path, "jsonl", 0) as output:
        assert output._file is not None
        real, output._file = output._file, _Short(output._file)  # type: ignore[assignment]
        with pytest.raises(DiskFull):
            output.append([b'{"a":"long"}'])
        output._file = real
        output.append([b"{}"])
    assert path.read_bytes() == b"{}\n"


class _Short:
    """Takes some bytes, then the disk is full."""

    def __init__(self, file: object) -> None:
        self._inner = file

    def write(self, data: memoryview) -> int:
        if len(data) < 8:
            raise OSError(errno.ENOSPC, "full")
        self._inner.write(data[:6])  # type: ignore[attr-defined]
        return 6

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\udcff\0"])
def test_a_name_that_the_system_refuses_is_a_usage_error(tmp_path: Path, name: str) -> None:
    """Whatever it raises: one bad name must not end the writing of all other outputs."""
    with pytest.raises(UsageError) as caught:
        OutputFile(tmp_path / name, "jsonl", 0).open()
    assert caught.value.code == "output_unwritable"


def test_a_folder_that_may_not_be_looked_into_is_a_usage_error(tmp_path: Path) -> None:
    """Also one that raises already when it is asked for its name."""

    class Hidden(type(tmp_path)):  # type: ignore[misc]
        def absolute(self) -> Hidden:
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(UsageError) as caught:
        OutputFile(Hidden(tmp_path / "x"), "jsonl", 0).open()
    assert caught.value.code == "output_unwritable"
