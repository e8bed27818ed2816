"""Files and parts that follow the items: each item once, whenever a leader dies."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.output_tools import opened
from zcrawl.errors import StoreDataError, StoreError, StoreUnavailable
from zcrawl.model.capture import Capture
from zcrawl.model.spec import JobSpec, OutputSpec
from zcrawl.outputs.columns import Layout
from zcrawl.outputs.files.parquet import ParquetRows
from zcrawl.outputs.warc import render_warc, warc_head
from zcrawl.store.output_mark import OutputMark
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.submit.read import to_json

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
warcio = pytest.importorskip("warcio.archiveiterator")


TOTAL = 12
DEAD: list[Any] = []


def item(n: int) -> ItemRow:
    url = f"http://h.test/{n}"
    data = {"url": url, "final_url": url, "status": 200, "depth": n, "title": None}
    more = {"content_type": "text/html", "bytes": 5, "fetched_at": "now", "parent": None}
    return ItemRow(n, json.dumps({**data, **more}).encode())


def output(form: str, path: str, mark: OutputMark | None = None, **options: Any) -> OutputRow:
    spec = to_json(JobSpec("x", output=OutputSpec(**options)))
    mark = mark or OutputMark(0, 0, 0, 0.0)
    return OutputRow(
        1,
        path,
        form,
        mark.cursor,
        mark.length,
        10**9,
        mark.part,
        mark.part_at,
        False,
        spec,
        progress=mark.progress,
    )


def depths(folder: Path) -> list[int]:
    numbers: list[int] = []
    for path in sorted(folder.glob("x*")):
        if path.suffix == ".parquet":
            numbers += pq.read_table(path)["depth"].to_pylist()
        else:
            numbers += [json.loads(line)["depth"] for line in path.read_bytes().splitlines()]
    return numbers


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "options", [{}, {"rotate_bytes": 300}, {"rotate_seconds": 3.0}, {"rotate_bytes": 1}]
)
def test_whenever_a_leader_dies_each_item_is_there_once(
    form: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Batches, rotations, and deaths before and after the commit, in any order."""
    for seed in range(15):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _live_and_die(random.Random(seed), folder, form, options)
        assert depths(folder) == list(range(1, TOTAL + 1)), seed
        assert all(path.stat().st_size for path in folder.iterdir()), "no part is empty"
        while DEAD:  # at the end of its life pytest would complain about them
            DEAD.pop().close()


def _live_and_die(chance: random.Random, folder: Path, form: str, options: dict[str, Any]) -> None:
    path, committed, utc = f"x.{form}", OutputMark(0, 0, 0, 0.0), 100.0
    sink = opened(output(form, path, None, **options), folder)
    while committed.cursor < TOTAL:
        utc += chance.choice([0.0, 2.0, 5.0])
        if sink.cursor < TOTAL:
            upto = min(TOTAL, sink.cursor + chance.randint(1, 5))
            mark = sink.take([item(n) for n in range(sink.cursor + 1, upto + 1)], utc)
        else:
            mark = sink.settle(True, utc)
        if chance.random() < 0.25:
            # Dead: the commit is lost, and all the work since the last one. Another goes on.
            # Its file stays open, as a dead process would leave it.
            if len(sink.marks) > 1:  # those before the last one were committed
                committed = sink.marks[-2]
            DEAD.append(sink)
            sink = opened(output(form, path, committed, **options), folder)
        elif mark is not None:
            committed = mark
    sink.close()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_item_that_comes_after_a_parts_time_is_in_the_next_one(
    form: str, tmp_path: Path
) -> None:
    """Also when nobody has looked at the clock in between."""
    sink = opened(output(form, f"x.{form}", None, rotate_seconds=10.0), tmp_path)
    sink.take([item(1)], 100.0)
    sink.take([item(2)], 109.0)
    mark = sink.take([item(3)], 111.0)
    assert mark is not None
    assert mark.part == 1
    sink.settle(True, 112.0)
    sink.close()
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert parts == [f"x-00000.{form}", f"x-00001.{form}"]
    assert depths(tmp_path) == [1, 2, 3]
    (tmp_path / parts[0]).unlink()
    assert depths(tmp_path) == [3]


def test_a_parquet_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """Before, there is a hidden file beside it, which a stopped leader takes away."""
    sink = opened(output("parquet", "a/x.parquet"), tmp_path)
    assert sink.take([item(1)], 5.0) is None
    assert sink.settle(False, 6.0) is None
    assert not (tmp_path / "a" / "x.parquet").exists()
    sink.close()
    assert list((tmp_path / "a").iterdir()) == []
    sink = opened(output("parquet", "a/x.parquet"), tmp_path)
    sink.take([item(1), item(2)], 5.0)
    mark = sink.settle(True, 6.0)
    assert mark is not None
    assert (mark.cursor, mark.part, mark.part_at) == (2, 1, 0.0)
    (place,) = mark.progress.places
    assert place.file == str(tmp_path / "a" / "x.parquet")
    table = pq.read_table(tmp_path / "a" / "x.parquet")
    assert table.num_rows == 2
    assert table.schema.field("status").type == pa.int64()
    assert sink.settle(True, 7.0) is None, "nothing more came"


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "warc"])
def test_a_run_that_ends_without_items_leaves_an_empty_file(form: str, tmp_path: Path) -> None:
    """With columns, header or head; not before the end, written once, and written again by who
    takes over before the commit."""
    path = f"x.{form}"
    committed: OutputMark | None = None
    for _ in range(2):  # the first one dies before its last commit
        sink = opened(output(form, path, committed), tmp_path)
        assert sink.settle(False, 6.0) is None
        mark = sink.settle(True, 7.0)
        assert mark is not None
        assert (mark.cursor, mark.part_at) == (0, 7.0)
        committed = sink.marks[-2] if len(sink.marks) > 1 else None
        assert sink.settle(True, 8.0) is None, "it is there"
        sink.close()
    assert [file.name for file in tmp_path.iterdir()] == [path]
    data = (tmp_path / path).read_bytes()
    match form:
        case "parquet":
            table = pq.read_table(tmp_path / path)
            assert table.num_rows == 0
            assert table.schema.field("status").type == pa.int64()
        case "csv":
            assert data.startswith(b"url,final_url,status,")
            assert data.count(b"\r\n") == 1
        case "warc":
            (info,) = warcio.ArchiveIterator(io.BytesIO(data), check_digests="raise")
            assert info.rec_type == "warcinfo"
        case _:
            assert data == b""
    if form == "warc":
        return
    # Reopened by `zcrawl retry`, hours later: what comes is added to it, or to a further part.
    reopened = output(form, path, mark, rotate_seconds=1.0 if form == "jsonl" else 0.0)
    sink = opened(reopened, tmp_path)
    sink.take([item(1)], 9_000.0)
    sink.settle(True, 9_000.5)
    sink.close()
    if form == "csv":
        head, line = (tmp_path / path).read_text().splitlines()
        assert head.startswith("url,")
        assert line.startswith("http://h.test/1,")
    else:
        assert depths(tmp_path) == [1]
    late = tmp_path / "x-00001.jsonl"
    assert not late.exists(), "the time of a part begins with its first item"


def test_a_csv_whose_columns_nobody_knows_stays_empty_without_items(tmp_path: Path) -> None:
    """A spider's items may have any keys; where the job has a schema they are known."""
    for number, schema in enumerate(({}, {"properties": {"a": {"type": "integer"}}})):
        spec = to_json(JobSpec("x", spider="package:Spider", schema=schema))
        row = OutputRow(1, f"{number}.csv", "csv", 0, 0, 0, ended=True, spec=spec)
        sink = opened(row, tmp_path)
        sink.settle(True, 1.0)
        sink.close()
    assert (tmp_path / "0.csv").read_bytes() == b""
    assert (tmp_path / "1.csv").read_bytes() == b"a,_more\r\n"


def test_a_paused_leader_does_not_publish_over_the_part_of_the_next(tmp_path: Path) -> None:
    """Both write part 0, and the one that was paused has fewer items."""
    row = output("parquet", "x.parquet")
    stale = opened(row, tmp_path)
    stale.take([item(1), item(2)], 1.0)
    leader = opened(row, tmp_path)
    leader.take([item(1), item(2), item(3)], 2.0)
    with pytest.raises((OSError, StoreUnavailable)):
        stale.settle(True, 3.0)
    stale.close()
    leader.settle(True, 4.0)
    assert depths(tmp_path) == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_values_fit_their_columns_or_are_told(tmp_path: Path) -> None:
    """JSON columns take anything; a text column takes numbers as text; a number no text."""
    path = tmp_path / "x.parquet"
    rows = ParquetRows(path, Layout({"s": "string", "j": "json", "n": "int"}))
    rows.add([b'{"s": 5, "j": {"a": [1]}, "n": 1}', b'{"s": "x", "j": "y"}'])
    rows.close()
    assert pq.read_table(path).to_pylist() == [
        {"s": "5", "j": '{"a":[1]}', "n": 1},
        {"s": "x", "j": '"y"', "n": None},
    ]
    rows = ParquetRows(path, Layout({"n": "int"}))
    rows.add([b'{"n": "many"}'])
    with pytest.raises(StoreDataError, match="does not fit"):
        rows.close()


def test_items_made_by_code_lose_nothing_in_parquet(tmp_path: Path) -> None:
    """Columns are those of the first row group; later keys, and values of another type than their
    column, are in one more column."""
    path = tmp_path / "x.parquet"
    rows = ParquetRows(path, Layout(None, "_more"), group=2)
    rows.add([b'{"a": 1, "l": ["x"]}', b'{"a": 2.5, "o": {"p": 1}}'])
    rows.add([b'{"a": "much", "late": true, "l": [3]}', b'{"_more": 1}'])
    rows.close()
    assert pq.read_table(path).to_pylist() == [
        {"a": 1.0, "l": ["x"], "o": None, "_more": None},
        {"a": 2.5, "l": None, "o": '{"p":1}', "_more": None},
        {"a": None, "l": ["3"], "o": None, "_more": '{"late":true,"a":"much"}'},
        {"a": None, "l": None, "o": None, "_more": '{"_more":1}'},
    ]
    rows = ParquetRows(path, Layout(None, "_more"))
    rows.close()
    assert pq.read_table(path).num_rows == 0, "an empty run has a file too"


HEADERS = [("Content-Type", "text/html"), ("Content-Encoding", "gzip"), ("X-Bad", "a\r\nSet: b")]
CAPTURE = Capture(
    "http://h.test/a?b", "http://h.test/c?d", 200, HEADERS, [("User-Agent", "z")], 1e9, "0" * 64,
    12.0, 2, "http://h.test/",
)  # fmt: skip


def test_a_page_is_three_records_each_a_gzip_member() -> None:
    """Request, response and metadata; read back, and judged by warcio's own checker."""
    import msgspec

    body = b"<h1>x</h1>"
    data = warc_head("x.warc.gz") + render_warc([msgspec.json.encode(CAPTURE)], lambda name: body)
    records = {}
    for record in warcio.ArchiveIterator(io.BytesIO(data), check_digests="raise"):
        records[record.rec_type] = (record, record.content_stream().read())
    assert set(records) == {"warcinfo", "response", "request", "metadata"}
    response, content = records["response"]
    assert content == body
    assert response.rec_headers["WARC-Target-URI"] == "http://h.test/c?d"
    head = dict(response.http_headers.headers)
    assert head["Content-Length"] == "10"
    assert head["X-Crawler-Content-Encoding"] == "gzip"
    assert "Set" not in head
    assert "Content-Encoding" not in head
    request, _ = records["request"]
    assert request.http_headers.protocol == "GET"
    assert ("Host", "h.test") in request.http_headers.headers
    assert b"requestedUrl: http://h.test/a?b" in records["metadata"][1]
    again = render_warc([msgspec.json.encode(CAPTURE)], lambda name: body)
    ids = [
        [r.rec_headers["WARC-Record-ID"] for r in warcio.ArchiveIterator(io.BytesIO(archive))]
        for archive in (data, again)
    ]
    assert ids[0][1:] == ids[1], "the same page has the same ids"
    assert data.count(b"\x1f\x8b\x08") >= 4
    assert gzip.decompress(data)


def story(folder: Path, form: str = "jsonl") -> tuple[Path, OutputMark]:
    """Three items are committed."""
    sink = opened(output(form, f"x.{form}"), folder)
    mark = sink.take([item(1), item(2), item(3)], 5.0)
    sink.close()
    assert mark is not None
    return folder / f"x.{form}", mark


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_growing_file_that_somebody_changed_is_left_alone(form: str, tmp_path: Path) -> None:
    """Also if it has the same length; the change undone, it goes on."""
    path, mark = story(tmp_path, form)
    before = path.read_bytes()
    path.write_bytes(before.replace(b"h.test/2", b"h.evil/2"))
    changed = path.read_bytes()
    with pytest.raises(StoreError, match="was changed") as caught:
        opened(output(form, f"x.{form}", mark), tmp_path)
    assert caught.value.code == "output_changed"
    assert path.read_bytes() == changed
    path.write_bytes(before)
    sink = opened(output(form, f"x.{form}", mark), tmp_path)
    sink.take([item(4)], 6.0)
    sink.close()
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"h.test/4") == 2


def test_lines_that_somebody_added_to_a_growing_file_are_kept(tmp_path: Path) -> None:
    """Foreign bytes are saved in a second file when writing continues; bytes of a dead process are
    not."""
    path, mark = story(tmp_path)
    before = path.read_bytes()
    torn = item(4).data + b"\n" + item(5).data[:9]
    path.write_bytes(before + torn)
    sink = opened(output("jsonl", path.name, mark), tmp_path)
    sink.take([item(4)], 6.0)
    later = sink.take([item(5), item(6)], 6.0)
    sink.close()
    assert depths(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert later is not None
    mark = later
    with path.open("ab") as file:
        file.write(b"my own line\n")
    sink = opened(output("jsonl", path.name, mark), tmp_path)
    sink.settle(False, 7.0)
    assert path.read_bytes().endswith(b"my own line\n"), "nothing is written, nothing is moved"
    sink.take([item(7)], 7.0)
    sink.close()
    assert [json.loads(line)["depth"] for line in path.read_bytes().splitlines()] == [*range(1, 8)]
    (beside,) = tmp_path.glob("*.behind-*")
    assert beside.read_bytes() == b"my own line\n"
