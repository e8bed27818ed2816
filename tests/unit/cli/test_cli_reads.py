"""Reading without a cluster: jobs, one job, export; and moving bytes in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zcrawl.cli import connect
from zcrawl.cli.base import Settings, load_settings
from zcrawl.cli.commands.export import write_file
from zcrawl.cli.commands.jobs import readable
from zcrawl.errors import RefusedError, UnreachableError, UsageError, ZcrawlError
from zcrawl.model.rows import RunCounters, RunRow
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import Kept, RequestState, RunState
from zcrawl.outputs.files import exports
from zcrawl.outputs.files.exports import Source, chunks_of
from zcrawl.runtime.threads import in_daemon_thread
from zcrawl.store.queries import (
    ChainRuns,
    FailedRow,
    Failures,
    FindJob,
    ItemRow,
    Items,
    JobList,
    JobRow,
    ListJobs,
    ReadChain,
    ReadFailed,
    ReadItems,
    Tallies,
    TallyRows,
)
from zcrawl.submit.read import to_json

SPEC = to_json(JobSpec(name="x", seeds=("https://x/",)))
COUNTERS = RunCounters(admitted=3, done=2, failed=1, items=2, bytes=10)
RUN = RunRow(7, 3, "x", RunState.COMPLETED, "", SPEC, ("x",), False, COUNTERS, 100.0, 100.0, 110.0)
JOB = JobRow(3, "x", SPEC, 100.0, [RUN])


class StubStore:
    """A store of one job with `items` items and one failure."""

    def __init__(self, items: int = 5) -> None:
        self.items = [ItemRow(n, b'{"url":"https://x/%d"}' % n) for n in range(1, items + 1)]
        self.closed = False

    def query(self, query: Any) -> Any:
        match query:
            case ListJobs():
                return JobList([JOB])
            case FindJob(ref):
                return JobList([JOB] if ref in ("3", "x") else [])
            case Tallies():
                return TallyRows({200: 2, 404: 1}, {"http_404": 1}, {})
            case ReadItems(_, after, limit):
                return Items([row for row in self.items if row.id > after][:limit])
            case ReadFailed(_, after, _):
                dead, skipped = RequestState.DEAD, RequestState.SKIPPED
                rows = [
                    FailedRow(1, "https://x/a,b", dead, "http_404", 404, 1, 1, "https://x/"),
                    FailedRow(2, 'https://x/"', skipped, "robots", 0, 0, 0, None),
                ]
                return Failures([row for row in rows if row.seq > after][:1])
        if isinstance(query, ReadChain):
            return ChainRuns([])
        raise AssertionError(query)

    def execute(self, command: Any) -> Any:
        raise AssertionError("views write nothing")

    def close(self) -> None:
        self.closed = True


def at(data: Path) -> Settings:
    return load_settings(None, {"data.dir": str(data)})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StubStore:
    stub = StubStore()
    monkeypatch.setattr(connect, "is_live", lambda settings: False)
    monkeypatch.setattr(connect, "open_database", lambda settings: stub)
    return stub


async def test_without_a_cluster_jobs_come_from_the_database(
    store: StubStore, tmp_path: Path
) -> None:
    """Looking at what was crawled needs no master, and leaves nothing open."""
    (view,) = (await connect.jobs(at(tmp_path)))["jobs"]
    assert (view["job"], view["state"], view["pages"]) == (3, "completed", 2)
    assert store.closed


async def test_one_job_is_found_by_id_and_by_name(store: StubStore, tmp_path: Path) -> None:
    """With its tallies."""
    for ref in ("3", "x"):
        view = await connect.job(at(tmp_path), ref)
        assert view["failed_reasons"] == {"http_404": 1}
    with pytest.raises(RefusedError) as caught:
        await connect.job(at(tmp_path), "nope")
    assert caught.value.code == "no_such_job"


async def test_a_run_that_nobody_runs_is_not_running(
    store: StubStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process cannot store that it stopped; the reader shows it, also for older runs."""
    replace = msgspec.structs.replace
    left = replace(RUN, state=RunState.RUNNING, ended_at=0.0)
    runs = [replace(RUN, id=9, state=RunState.PAUSED), left, replace(RUN, id=5)]
    monkeypatch.setattr(__name__ + ".JOB", replace(JOB, runs=runs))
    view = await connect.job(at(tmp_path), "x", 7)
    assert (view["run"], view["state"], view["reason"]) == (
        *(7, "stopped"),
        "nobody runs it; --resume",
    )
    assert [run["state"] for run in view["runs"]] == ["paused", "stopped", "completed"]
    monkeypatch.setattr(__name__ + ".JOB", replace(JOB, runs=[left]))
    (view,) = (await connect.jobs(at(tmp_path)))["jobs"]
    assert view["state"] == "stopped"
    with pytest.raises(RefusedError) as caught:
        await connect.job(at(tmp_path), "x", 8)
    assert caught.value.code == "no_such_run"


async def test_what_only_a_cluster_knows_needs_one(store: StubStore, tmp_path: Path) -> None:
    """Exit 3, with the command that starts a cluster."""
    with pytest.raises(UnreachableError, match="zcrawl up --data"):
        async with connect.running(at(tmp_path)):
            pass


async def test_a_job_is_shown_to_people_without_what_is_empty(
    store: StubStore, tmp_path: Path
) -> None:
    """The same facts as the JSON, in words."""
    lines = readable(await connect.job(at(tmp_path), "x"))
    assert lines["job"] == "3 x"
    assert lines["  reasons"] == "http_404 × 1"
    assert lines["seeds"] == "https://x/"
    assert "workers" not in lines


def source(store: StubStore, kind: Kept | None = Kept.ITEM) -> Source:
    return Source(store, 7, b'{"name":"x"}', kind)


def test_items_are_exported_batch_by_batch(
    store: StubStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory holds one batch; every item comes once, in order."""
    monkeypatch.setattr(exports, "BATCH", 2)
    chunks = list(chunks_of(source(store), "jsonl"))
    assert [chunk.count(b"\n") for chunk in chunks] == [2, 2, 1]
    urls = [json.loads(text)["url"] for text in b"".join(chunks).splitlines()]
    assert urls == [f"https://x/{n}" for n in range(1, 6)]


def test_items_as_csv_have_one_header(store: StubStore) -> None:
    """However many batches there are, and even without a single item."""
    lines = b"".join(chunks_of(source(store), "csv")).splitlines()
    assert len(lines) == 6
    assert lines[0].startswith(b"url")
    assert b"".join(chunks_of(source(StubStore(0)), "csv")).startswith(b"url,")


def test_failures_are_exported_with_state_status_and_reason(store: StubStore) -> None:
    """As JSON lines and as CSV, quoted where a URL needs it."""
    output = b"".join(chunks_of(source(store, None), "jsonl"))
    records = [json.loads(line) for line in output.splitlines()]
    assert [(r["state"], r["reason"], r["status"]) for r in records] == [
        ("dead", "http_404", 404),
        ("skipped", "robots", 0),
    ]
    assert b"".join(chunks_of(source(store, None), "csv")).decode().split("\r\n") == [
        "url,state,reason,status,attempts,depth,parent,detail",
        '"https://x/a,b",dead,http_404,404,1,1,https://x/,',
        '"https://x/""",skipped,robots,0,0,0,,',
        "",
    ]


def test_a_file_appears_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    """A failure half-way leaves the old file and no rubbish."""
    path = tmp_path / "x.jsonl"
    assert write_file(path, lambda aside: aside.write_bytes(b"old\n")) == 4

    def failing(aside: Path) -> None:
        aside.write_bytes(b"new\n")
        raise OSError(28, "No space left on device")

    with pytest.raises(ZcrawlError) as caught:
        write_file(path, failing)
    assert caught.value.code == "disk_full"
    assert caught.value.exit_code == 1
    assert path.read_bytes() == b"old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    """The folder's name was mistyped, most likely."""
    with pytest.raises(UsageError, match=r"the folder .*/no does not exist; make it"):
        write_file(tmp_path / "no" / "x.jsonl", lambda aside: aside.write_bytes(b""))


async def test_a_call_in_a_daemon_thread_gives_its_result_or_its_error() -> None:
    """Like asyncio.to_thread, without keeping the process alive."""

    def fail() -> None:
        raise UsageError("no")

    assert await in_daemon_thread(lambda: 5) == 5
    with pytest.raises(UsageError):
        await in_daemon_thread(fail)
