"""Archives of pages whose body is lost: written without it, told and counted."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator

from zcrawl.blobs.folder import FileBlobs
from zcrawl.errors import StoreUnavailable
from zcrawl.model.capture import Capture
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.outputs.records import GetBody
from zcrawl.roles.blobs import body_getter, in_loop

HEADERS = [("Content-Type", "text/html"), ("Content-Length", "4")]


def capture(body: str, sent: str = "") -> bytes:
    made = Capture(
        *("http://h.test/", "http://h.test/", 200, HEADERS, [("Accept", "*/*")], 1e9, body, 1.0, 0),
        None,
    )
    return msgspec.json.encode(msgspec.structs.replace(made, sent=sent))


def records(path: Path, items: list[bytes], body_of: GetBody) -> list[tuple[str, str, bytes]]:
    """(type, WARC-Truncated, payload) of each record that an output file gets for the items."""
    with OutputFile(path, "warc", 0, body_of=body_of) as file:
        file.append(items)
    return [
        (
            record.rec_type,
            record.rec_headers.get_header("WARC-Truncated") or "",
            record.content_stream().read(),
        )
        for record in ArchiveIterator(io.BytesIO(path.read_bytes()), check_digests="raise")
    ]


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_body_costs_its_payload_and_nothing_else(tmp_path: Path, how: str) -> None:
    """The record has its headers, says that it is truncated, and why; the next page is whole."""
    blobs = FileBlobs(tmp_path / "blobs")
    lost, whole = blobs.put(b"gone"), blobs.put(b"here")
    if how == "missing":
        blobs.path(lost).unlink()
    else:
        blobs.path(lost).write_bytes(b"")
    notes: list[tuple[str, str]] = []
    get = body_getter(str(tmp_path / "blobs"), lambda name, detail: notes.append((name, detail)))
    entries = records(tmp_path / "x.warc.gz", [capture(lost, sent=lost), capture(whole)], get)
    responses = [record for record in entries if record[0] == "response"]
    assert responses == [("response", "unspecified", b""), ("response", "", b"here")]
    requests = [record[1] for record in entries if record[0] == "request"]
    assert requests == ["unspecified", ""]
    metadata = [payload for kind, _, payload in entries if kind == "metadata"]
    assert b"body: lost: " in metadata[0]
    assert lost.encode() in metadata[0]
    assert b"requestBody: lost: " in metadata[0]
    assert b"lost" not in metadata[1]
    assert [name for name, _ in notes] == ["output_body_lost"] * 2
    assert lost in notes[0][1]


def test_a_place_that_is_away_is_tried_again(tmp_path: Path) -> None:
    """Nothing is written without its body because a disk was not mounted for a moment."""
    blobs = FileBlobs(tmp_path / "blobs")
    name = blobs.put(b"body")
    (tmp_path / "blobs").rename(tmp_path / "away")
    notes: list[str] = []
    get = body_getter(str(tmp_path / "blobs"), lambda name, detail: notes.append(name))
    with pytest.raises(StoreUnavailable):
        records(tmp_path / "x.warc.gz", [capture(name)], get)
    (tmp_path / "away").rename(tmp_path / "blobs")
    entries = records(tmp_path / "x.warc.gz", [capture(name)], get)
    assert ("response", "", b"body") in entries
    assert notes == []


async def test_what_a_thread_notes_reaches_the_loop() -> None:
    """Counters of a master belong to its loop; outputs are written by a thread."""
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    note = in_loop(lambda name, detail: heard.put_nowait((name, detail)))
    await asyncio.to_thread(note, "output_body_lost", "x")
    assert await heard.get() == ("output_body_lost", "x")
