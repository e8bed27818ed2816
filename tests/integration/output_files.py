"""Reads the output files of a test cluster: those that `job` names, on the disk that it names."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.crawling import wait_until
from tests.servers.page_site import PageSite
from zcrawl.submit.outputs import part_path

if TYPE_CHECKING:
    from tests.integration.cluster import Cluster


def urls_in(form: str, data: bytes) -> list[str]:
    match form:
        case "jsonl":
            return [json.loads(line)["url"] for line in data.splitlines()]
        case "csv":
            return [row["url"] for row in csv.DictReader(io.StringIO(data.decode()))]
        case "parquet":
            import pyarrow.parquet

            return list(pyarrow.parquet.read_table(io.BytesIO(data))["url"].to_pylist())
        case _:
            from warcio.archiveiterator import ArchiveIterator

            records = ArchiveIterator(io.BytesIO(data), check_digests="raise")
            pairs = [(record.rec_type, record.rec_headers["WARC-Target-URI"]) for record in records]
            return [url for kind, url in pairs if kind == "response"]


def outputs_of(made: Cluster, job: int) -> dict[str, dict[str, Any]]:
    """What `job` says of each, by format."""
    return {output["format"]: output for output in made.job(job)["outputs"]}


def files_of(made: Cluster, output: dict[str, Any], rotates: bool) -> list[Path]:
    """All complete parts, each on the disk of its master."""
    files = []
    for place in output["places"]:
        last = Path(place["file"])
        if place["master"] and not output["path"].startswith("/"):
            assert last.is_relative_to(made.folder / place["master"]), place
        for part in range(place["first"], place["last"] + 1):
            name = Path(part_path(output["path"], part, rotates)).name
            files.append(last if part == place["last"] else last.parent / name)
    return files


def verify_files(made: Cluster, job: int, site: PageSite, *, rotates: bool = False) -> None:
    """Each item once in the files that `job` names, whatever happened."""
    expected = Counter(site.urls())
    for form, output in outputs_of(made, job).items():
        files = files_of(made, output, rotates)
        assert len(files) == output["parts"], output
        urls = Counter(url for file in files for url in urls_in(form, file.read_bytes()))
        assert urls == expected, f"{form}: an item is missing or there twice"


def wait_written(made: Cluster, job: int, run: int) -> None:
    """All that is committed is in complete files; asked of the database."""

    def written() -> bool:
        rows = made.rows(
            "SELECT progress, item_cursor, (SELECT MAX(id) FROM items WHERE items.run = o.run AND "
            "kind = IF(o.format = 'warc', 3, 0)) FROM outputs o WHERE run = %s",
            run,
        )
        return all(
            cursor == last and "pieces" not in json.loads(bytes(progress or b'{"pieces":[]}'))
            for progress, cursor, last in rows
        )

    try:
        wait_until(written)
    except AssertionError:
        logs = "\n".join(f"== {node.name}\n{node.text()[-1500:]}" for node in made.masters.values())
        raise AssertionError(f"not written: {outputs_of(made, job)}\n{logs}") from None
