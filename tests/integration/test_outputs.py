"""Outputs end to end: Parquet, WARC, S3, rotation, exports, and kill -9 in the middle."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command, items, start, wait_until
from tests.servers.s3 import BUCKET, objects, s3_server
from tests.unit.extraction import items as extracted
from tests.web.server import WebThread
from tests.web.static_site import static_site
from zcrawl.demo.catalogue import DemoCatalogue
from zcrawl.demo.server import DemoServer, demo_site

pq = pytest.importorskip("pyarrow.parquet")
warcio = pytest.importorskip("warcio.archiveiterator")
pytest.importorskip("obstore")
pytest.importorskip("moto")

BOOKS = DemoCatalogue(books=100, tags=4)
JOB = (Path(__file__).parents[2] / "configs" / "jobs" / "books.toml").read_text()
N = 100  # items: one for each book


@pytest.fixture(scope="module")
def shop() -> Iterator[DemoServer]:
    with demo_site(BOOKS) as server:
        yield server


def arguments(shop: DemoServer, folder: Path, output: str, *more: object) -> tuple[object, ...]:
    (folder / "job.toml").write_text(f"{JOB}\n[output]\n{output}\n")
    data = ("--data", folder / "d", "--workers", 1)
    return ("crawl", shop.url, "--job", "job.toml", *data, *more)


def crawl(shop: DemoServer, folder: Path, output: str, *more: object) -> dict[str, Any]:
    done = command(*arguments(shop, folder, output, "--rate", 0, "--json", *more), cwd=folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def kill_and_resume(shop: DemoServer, folder: Path, output: str, db_items: int = 15) -> None:
    """kill -9 twice while items come in, then to the end."""
    args = arguments(shop, folder, output, "--rate", 70)
    for again in (False, True):
        crawl = start(*(("crawl", "--resume", *args[4:8]) if again else args), cwd=folder)
        expected = db_items * (2 if again else 1)
        wait_until(lambda expected=expected: _stored(folder) >= expected)
        crawl.send_signal(signal.SIGKILL)
        crawl.communicate()
    done = command("crawl", "--resume", "--data", folder / "d", "--workers", 1, cwd=folder)
    assert done.returncode == 0, done.stderr


def _stored(folder: Path) -> int:
    import sqlite3

    try:
        with sqlite3.connect(f"file:{folder}/d/zcrawl.db?mode=ro", uri=True) as database:
            return int(database.execute("SELECT COUNT(*) FROM items WHERE kind = 0").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def records(data: bytes) -> list[tuple[str, str, bytes]]:
    return [
        (record.rec_type, record.rec_headers["WARC-Target-URI"], record.content_stream().read())
        for record in warcio.ArchiveIterator(io.BytesIO(data), check_digests="raise")
    ]


def once(urls: list[str]) -> bool:
    return len(urls) == len(set(urls)) == N


def test_parquet_csv_and_jsonl_hold_the_same_items(shop: DemoServer, tmp_path: Path) -> None:
    """Typed and nested in Parquet; exports of the same run are the same again."""
    crawl(shop, tmp_path, 'to = ["sql", "a.parquet", "b-{run}.csv", "jsonl"]')
    table = pq.read_table(tmp_path / "d" / "a.parquet").to_pylist()
    lines = items(tmp_path / "d" / "books-1.jsonl")
    assert once([row["url"] for row in table])
    assert sorted(table, key=str) == sorted(lines, key=str)
    head, *rows = (tmp_path / "d" / "b-1.csv").read_text().splitlines()
    assert len(rows) == N
    assert head.startswith("url,title,author,price,currency")
    for name in ("e.parquet", "e.jsonl", "e.csv"):
        done = command("export", "books", "--data", "d", "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "e.parquet").to_pylist() == table
    assert items(tmp_path / "e.jsonl") == lines
    assert (tmp_path / "e.csv").read_bytes() == (tmp_path / "d" / "b-1.csv").read_bytes()
    refused = command("export", "books", "--data", "d", "--out", "e.warc.gz", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no captured pages" in refused.stderr


def test_an_archive_holds_each_page_and_gives_the_same_items_again(
    shop: DemoServer, tmp_path: Path
) -> None:
    """warcio's checker finds nothing; its responses, extracted again, are the crawl's items."""
    summary = crawl(shop, tmp_path, 'to = ["jsonl", "pages.warc.gz"]')
    data = (tmp_path / "d" / "pages.warc.gz").read_bytes()
    warc_records = records(data)
    pages = [(url, body) for kind, url, body in warc_records if kind == "response"]
    assert len(pages) == len({url for url, _ in pages}) == summary["pages"]
    assert [kind for kind, _, _ in warc_records].count("request") == summary["pages"]
    assert [kind for kind, _, _ in warc_records].count("metadata") == summary["pages"]
    checked = _check(tmp_path / "d" / "pages.warc.gz")
    assert checked == 0
    block = JOB[JOB.index('[[extract]]\nname = "book"') :]
    again = [
        item
        for url, body in pages
        if "/books/" in url
        for item in extracted(block, body, url=url, block="book")
    ]
    kept = items(tmp_path / "d" / "books-1.jsonl")
    assert sorted(again, key=str) == sorted(kept, key=str)
    done = command("export", "books", "--data", "d", "--out", "e.warc.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    exported = records((tmp_path / "e.warc.gz").read_bytes())
    assert sorted(exported[1:]) == sorted(warc_records[1:])


def _check(path: Path) -> int:
    import argparse

    from warcio.checker import Checker

    options = argparse.Namespace(inputs=[str(path)], verbose=False)
    checker = Checker(options)
    checker.process_all()
    return int(checker.exit_value)


def test_out_by_its_name_is_an_archive(shop: DemoServer, tmp_path: Path) -> None:
    """`--out x.warc.gz` makes the workers keep what an archive needs; without any extraction."""
    args = ("crawl", shop.url, "--rate", 0, "--workers", 1, "--max-pages", 5, "--data", "d")
    done = command(*args, "--out", "x.warc.gz", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pages = [
        url for kind, url, _ in records((tmp_path / "x.warc.gz").read_bytes()) if kind == "response"
    ]
    assert len(set(pages)) == len(pages) == 5


@pytest.mark.parametrize("rotate", ["", "rotate_bytes = 6000"])
def test_after_kill_9_local_files_hold_each_item_once(
    shop: DemoServer, tmp_path: Path, rotate: str
) -> None:
    """JSON lines, Parquet and WARC, whole or in parts."""
    kill_and_resume(shop, tmp_path, f'to = ["jsonl", "x.parquet", "p.warc.gz"]\n{rotate}')
    folder = tmp_path / "d"
    lines = [item["url"] for path in folder.glob("books-1*.jsonl") for item in items(path)]
    assert once(lines)
    parts = sorted(folder.glob("x*.parquet"))
    assert once([url for path in parts for url in pq.read_table(path)["url"].to_pylist()])
    pages = [
        url
        for path in folder.glob("p*.warc.gz")
        for kind, url, _ in records(path.read_bytes())
        if kind == "response" and "/books/" in url
    ]
    assert once(pages)
    assert (len(parts) > 1) == bool(rotate)
    if rotate:
        sizes = [path.stat().st_size for path in sorted(folder.glob("books-1*.jsonl"))[:-1]]
        assert len(sizes) > 1
        assert all(size >= 6000 for size in sizes)


def test_after_kill_9_s3_holds_each_item_and_each_body_once(
    shop: DemoServer, tmp_path: Path, s3: None
) -> None:
    """Parts of JSON lines, one Parquet, an archive, and the blobs its bodies lie in."""
    (tmp_path / "zcrawl.toml").write_text(f'[bodies]\nurl = "s3://{BUCKET}/bodies"\n')
    to = [
        f"s3://{BUCKET}/o/i-{{run}}.jsonl",
        f"s3://{BUCKET}/o/x.parquet",
        f"s3://{BUCKET}/p.warc.gz",
    ]
    kill_and_resume(shop, tmp_path, f"to = {json.dumps(to)}\nrotate_bytes = 8000")
    stored_objects = objects()
    lines = [
        json.loads(line)["url"]
        for name, data in stored_objects.items()
        if name.startswith("o/i-1")
        for line in data.splitlines()
    ]
    assert once(lines)
    tables = [data for name, data in stored_objects.items() if name.startswith("o/x")]
    assert once([u for data in tables for u in pq.read_table(io.BytesIO(data))["url"].to_pylist()])
    archives = [data for name, data in stored_objects.items() if name.startswith("p-")]
    pages = {
        url: body for data in archives for kind, url, body in records(data) if kind == "response"
    }
    assert once([url for url in pages if "/books/" in url])
    bodies = {data for name, data in stored_objects.items() if name.startswith("bodies/")}
    assert set(pages.values()) <= bodies
    assert not list((tmp_path / "d").glob("outgoing/*")), "nothing is left behind"
    done = command("export", "books", "--data", "d", "--out", f"s3://{BUCKET}/e.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert objects()["e.csv"].count(b"\r\n") == N + 1


def test_s3_that_is_away_is_told_and_gets_its_items_when_it_is_back(
    shop: DemoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crawl itself completes; the next leader publishes the part, once."""
    with s3_server() as environment:
        pass  # it has been there, and is not any more
    output = f'to = ["s3://{BUCKET}/x.jsonl"]'
    args = arguments(shop, tmp_path, output, "--rate", 0)
    done = command(*args, cwd=tmp_path, env={**os.environ, **environment})
    assert done.returncode == 1
    assert "s3_unavailable" in done.stderr
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        more = ("crawl", "--resume", "--data", "d", "--workers", 1)
        assert command(*more, cwd=tmp_path).returncode == 0
        lines = objects()["x.jsonl"].splitlines()
    assert once([json.loads(line)["url"] for line in lines])


def test_a_crawl_of_one_compressed_page_is_archived_as_it_came(tmp_path: Path) -> None:
    """Readers of archives decode it by its header."""
    with WebThread() as web:
        url = web.url("/compressed/gzip")
        args = ("crawl", url, "--rate", 0, "--workers", 1, "--depth", 0, "--data", "d")
        done = command(*args, "--no-robots", "--out", "x.warc.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "x.warc.gz").read_bytes()
    (body,) = [body for kind, _, body in records(data) if kind == "response"]
    assert b"<" in body
    assert not body.startswith(b"\x1f\x8b")
    assert b"\nContent-Encoding: gzip" in gzip.decompress(data)


def test_an_output_that_failed_at_the_end_is_completed_by_resume(
    shop: DemoServer, tmp_path: Path
) -> None:
    """The run has ended and its items are in the database; only the file could not be written."""
    blocking = tmp_path / "d" / "out"
    blocking.parent.mkdir()
    blocking.write_text("a file where a folder should be")
    args = arguments(shop, tmp_path, 'to = ["out/x.jsonl", "out/x.parquet"]', "--rate", 0)
    failed = command(*args, cwd=tmp_path)
    assert failed.returncode == 2
    assert "output_unwritable" in failed.stderr
    blocking.unlink()
    done = command("crawl", "--resume", "--data", tmp_path / "d", cwd=tmp_path)
    assert done.returncode == 0
    assert "nothing to resume" in done.stderr
    assert once([item["url"] for item in items(blocking / "x.jsonl")])
    assert pq.read_table(blocking / "x.parquet").num_rows == N


@pytest.mark.parametrize("cut", ["", "rotate_bytes = 100\n"])
def test_a_crawl_without_items_leaves_an_empty_file_of_every_format(
    tmp_path: Path, s3: None, cut: str
) -> None:
    """Locally and in S3, with the columns that the job tells; once, also when it is resumed."""
    names = ["x.jsonl", "x.csv", "x.parquet", "x.warc.gz"]
    to = [*names, *(f"s3://{BUCKET}/{name}" for name in names)]
    fields = '[extract.fields]\ntitle = "h1"\nprice = { css = ".price", type = "float" }\n'
    with static_site({"/other": ("text/html", b"")}) as site:
        (tmp_path / "job.toml").write_text(
            f'name = "none"\nseeds = ["{site}/gone"]\n[output]\nto = {json.dumps(to)}\n{cut}'
            f"[politeness]\nrobots = false\n{fields}"
        )
        args = ("--data", "d", "--workers", 1)
        crawled = command("crawl", "--job", "job.toml", "--allow-private", *args, cwd=tmp_path)
        assert crawled.returncode == 1, "no page could be had"
        again = command("crawl", "--resume", *args, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
    stored_objects = objects()
    local = {path.name: path.read_bytes() for path in (tmp_path / "d").glob("x*")}
    number = "-00000" if cut else ""
    expected = {name.replace("x", f"x{number}", 1) for name in names}
    assert set(local) == expected
    assert expected <= set(stored_objects)
    for files in (local, stored_objects):
        assert files[f"x{number}.jsonl"] == b""
        assert files[f"x{number}.csv"] == b"url,title,price\r\n"
        table = pq.read_table(io.BytesIO(files[f"x{number}.parquet"]))
        assert table.num_rows == 0
        assert table.column_names == ["url", "title", "price"]
        kinds = [kind for kind, *_ in records(files[f"x{number}.warc.gz"])]
        assert kinds == ["warcinfo", "response", "request", "metadata"], "the 404 was an answer"


def test_an_old_output_that_cannot_be_written_fails_no_later_crawl(
    shop: DemoServer, tmp_path: Path
) -> None:
    """The crawl of that run fails and names it; the next one ends well and says what is open;
    when the way is free, `--resume` writes it."""
    (tmp_path / "d" / "old.jsonl").mkdir(parents=True)
    options = ("--rate", 0, "--max-pages", 10)
    failed = command(*arguments(shop, tmp_path, 'to = ["old.jsonl"]', *options), cwd=tmp_path)
    assert failed.returncode != 0, failed.stderr
    assert "old.jsonl is not a regular file" in failed.stderr, failed.stderr
    job = json.loads(command("job", "books", "--data", "d", "--json", cwd=tmp_path).stdout)
    (output,) = job["outputs"]
    assert output["problem"].startswith("[output_unwritable]")
    done = command(*arguments(shop, tmp_path, 'to = ["new.jsonl"]', *options), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run 1: its output cannot be written [output_unwritable]" in done.stderr
    assert len(items(tmp_path / "d" / "new.jsonl")) > 0
    (tmp_path / "d" / "old.jsonl").rmdir()
    done = command("crawl", "--resume", "--data", "d", "--workers", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(items(tmp_path / "d" / "old.jsonl")) == len(items(tmp_path / "d" / "new.jsonl"))
