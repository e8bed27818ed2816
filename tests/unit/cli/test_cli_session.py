"""One crawl from submission to summary, on a cluster that is played by the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zcrawl.cli import crawl_session
from zcrawl.cli.crawl_session import CrawlRun, CrawlTarget, closing_lines, exit_code
from zcrawl.cli.interrupt import Interrupt, resume_command
from zcrawl.cli.specs import prepare
from zcrawl.errors import RefusedError, StoreError, ZcrawlError
from zcrawl.model.snapshot import EmbeddedSnapshot

OK = {"state": "ok", "error": None, "since_s": 0.0}
RUNNING = {"state": "running"}
DONE: dict[str, Any] = {"state": "completed", "pages": 3, "items": 3}


def row(run: int = 7, **values: Any) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("pages", "items", "failed", "skipped", "queued", "in_flight", "admitted", "bytes"), 0
    )
    base = {"run": run, "job": 3, "name": "x", "state": "running", "reason": "", "seconds": 2.0}
    return {**base, **counts, "unchanged": 0, "pages_per_second": 1.5, **values}


class FakeCluster:
    """Answers from a script: each snapshot is the next of `story`, the last one stays."""

    def __init__(self, *story: list[dict[str, Any]], store: Mapping[str, Any] = OK) -> None:
        self.story = list(story)
        self.store = store
        self.mishaps = {"total": 0, "in_row": 0, "last": ""}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.calls: list[str] = []
        self.jobs: list[dict[str, Any]] = []
        self.refuse_seeds_after = 10**9
        self.newest = 0
        self.on_snapshot: Callable[[], None] = lambda: None

    def snapshot(self) -> EmbeddedSnapshot:
        self.on_snapshot()
        rows = self.story.pop(0) if len(self.story) > 1 else self.story[0]
        rest = {"workers": [], "statuses": {}, "failed": {}, "mishaps": self.mishaps}
        shot = {"leader": "m1", "epoch": 1, "runs": rows, "store": self.store, **rest}
        return msgspec.convert(shot, EmbeddedSnapshot)

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((op, args))
        match op:
            case "submit":
                return {"job": 3, "run": 7}
            case "jobs":
                return {"jobs": self.jobs}
            case "job":
                last = self.story[-1][0]
                reasons: dict[str, Any] = {
                    "failed_reasons": {},
                    "skipped_reasons": {},
                    "statuses": {},
                }
                return {**last, **reasons, "runs": [last]}
            case "act":
                return {"run": self.newest or args["run"]}
            case "add_seeds" if len(self.seeds()) > self.refuse_seeds_after:
                raise RefusedError("ended", code="run_ended")
        return {}

    def seeds(self) -> list[dict[str, Any]]:
        return [args for op, args in self.requests if op == "add_seeds"]

    async def drain(self, timeout_s: float) -> None:
        self.calls.append("drain")

    async def flush_outputs(self, runs: object = ()) -> None:
        self.calls.append("flush")


class Recorder:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shown = 0

    def show(self, snapshot: EmbeddedSnapshot, runs: Collection[int]) -> None:
        self.shown += 1

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_session, "POLL_S", 0)


def plan(
    tmp_path: Path, *, resume: bool = False, as_json: bool = False, seeds: int = 0
) -> CrawlTarget:
    out = (str(tmp_path / "x-{run}.jsonl"), "jsonl")
    if resume:
        return CrawlTarget(tmp_path, None, None, as_json)
    file = tmp_path / "seeds.txt"
    file.write_text("".join(f"https://x/{n}\n" for n in range(seeds)))
    submission = prepare(["https://x/"], None, str(file), {})
    return CrawlTarget(tmp_path, submission, out, as_json)


async def crawl(cluster: FakeCluster, of: CrawlTarget) -> tuple[int, list[str]]:
    recorder = Recorder()
    interrupt = Interrupt(lambda: "")
    code = await CrawlRun(cluster, of, recorder, interrupt).run()
    return code, recorder.notes


async def test_a_crawl_submits_waits_flushes_and_tells_where_the_items_are(tmp_path: Path) -> None:
    """The whole way of a crawl that goes well."""
    cluster = FakeCluster([], [row()], [row(**DONE)])
    code, notes = await crawl(cluster, plan(tmp_path))
    assert code == 0
    op, args = cluster.requests[0]
    assert op == "submit"
    assert args["mode"] == "update"
    assert args["seeds"] == ["https://x/"]
    assert args["seeding"] is False
    assert args["output"] == [str(tmp_path / "x-{run}.jsonl"), "jsonl"]
    assert cluster.calls == ["flush"]
    assert "3 pages, 0 failed, 0 skipped in 2.0 s, 1.5 pages/s" in notes[0]
    assert notes[1] == f"3 items in {tmp_path / 'x-7.jsonl'}"
    own = msgspec.structs.replace(plan(tmp_path), output=("books-{run}.csv", "csv"))
    _, notes = await crawl(FakeCluster([], [row()], [row(**DONE)]), own)
    assert notes[1] == f"3 items in {tmp_path / 'books-7.csv'}", "a job's own is in the data folder"


async def test_the_last_line_with_json_is_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is narrated."""
    code, notes = await crawl(FakeCluster([row()], [row(**DONE)]), plan(tmp_path, as_json=True))
    assert code == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["pages"] == 3
    assert not any("pages" in note for note in notes)


async def test_a_run_that_left_the_snapshot_has_ended(tmp_path: Path) -> None:
    """Snapshots forget old runs; before the first sight of it a missing run is only late."""
    cluster = FakeCluster([], [], [row()], [row(run=9)])
    cluster_job = row(**DONE)

    async def ask(op: str, args: dict[str, Any]) -> dict[str, Any]:
        if op == "submit":
            return {"job": 3, "run": 7}
        reasons: dict[str, Any] = {"failed_reasons": {}, "skipped_reasons": {}}
        return {**cluster_job, **reasons, "runs": [cluster_job]}

    cluster.ask = ask  # type: ignore[method-assign]
    code, _ = await crawl(cluster, plan(tmp_path))
    assert code == 0


async def test_unfinished_runs_are_told_with_the_command_that_goes_on(tmp_path: Path) -> None:
    """A new crawl in the same folder pauses old ones, and does not keep that to itself."""
    cluster = FakeCluster([row(run=5, name="old", state="paused")], [row()], [row(**DONE)])
    _, notes = await crawl(cluster, plan(tmp_path))
    assert notes[0] == f"unfinished and paused: old; continue with `{resume_command(tmp_path)}`"


async def test_one_interrupt_drains_saves_and_prints_the_command_that_resumes(
    tmp_path: Path,
) -> None:
    """Exit 130, and nothing that was in flight is thrown away."""
    cluster = FakeCluster([row(in_flight=4)])
    recorder, interrupt = Recorder(), Interrupt(lambda: "")
    cluster.on_snapshot = interrupt.requested.set
    code = await CrawlRun(cluster, plan(tmp_path), recorder, interrupt).run()
    assert code == 130
    assert cluster.calls == ["drain", "flush"]
    assert "finishing 4 requests in flight; press Ctrl-C again to stop now" in recorder.notes
    assert recorder.notes[-1] == f"saved; continue with: zcrawl crawl --resume --data {tmp_path}"


async def test_a_store_that_keeps_failing_stops_the_crawl_by_its_name(tmp_path: Path) -> None:
    """A full disk is exit 1 with its code, after the command to continue was printed."""
    store = {"state": "retrying", "error": "disk_full", "since_s": 10.5}
    recorder = Recorder()
    session = CrawlRun(
        FakeCluster([row()], store=store), plan(tmp_path), recorder, Interrupt(lambda: "")
    )
    with pytest.raises(StoreError) as caught:
        await session.run()
    assert caught.value.code == "disk_full"
    assert caught.value.exit_code == 1
    assert recorder.notes[-1] == f"continue with: {resume_command(tmp_path)}"


async def test_a_leader_that_fails_at_every_try_stops_the_crawl_by_its_name(tmp_path: Path) -> None:
    """A bug would let it wait for ever. A few failures are cured by a reload, and stop nothing."""
    cluster, recorder = FakeCluster([row()], [row(**DONE)]), Recorder()
    cluster.mishaps = {"total": 9, "in_row": 5, "last": "KeyError: 7"}
    assert (await crawl(cluster, plan(tmp_path)))[0] == 0
    cluster = FakeCluster([row()])
    cluster.mishaps = {"total": 9, "in_row": 6, "last": "KeyError: 7"}
    session = CrawlRun(cluster, plan(tmp_path), recorder, Interrupt(lambda: ""))
    with pytest.raises(ZcrawlError, match=r"6 times in a row .* KeyError: 7") as caught:
        await session.run()
    assert (caught.value.code, caught.value.exit_code) == ("machine_error", 1)
    assert recorder.notes[-1] == f"continue with: {resume_command(tmp_path)}"


async def test_a_store_that_fails_for_a_moment_stops_nothing(tmp_path: Path) -> None:
    """Ten seconds of patience."""
    store = {"state": "retrying", "error": "disk_full", "since_s": 9.5}
    code, _ = await crawl(FakeCluster([row()], [row(**DONE)], store=store), plan(tmp_path))
    assert code == 0


async def test_more_seeds_follow_in_chunks_and_the_list_is_closed(tmp_path: Path) -> None:
    """The first thousand come with the submission, the others behind it, then `last`."""
    cluster = FakeCluster([row()])

    def end_when_closed() -> None:
        if cluster.seeds() and cluster.seeds()[-1]["last"]:
            cluster.story = [[row(**DONE)]]

    cluster.on_snapshot = end_when_closed
    code, _ = await crawl(cluster, plan(tmp_path, seeds=2_500))
    assert code == 0
    assert [(len(args["seeds"]), args["last"]) for args in cluster.seeds()] == [
        (1000, False),
        (501, False),
        (0, True),
    ]


async def test_seeds_that_come_after_the_end_are_no_error(tmp_path: Path) -> None:
    """With max_pages a run may be over before its seeds are."""
    cluster = FakeCluster([row()])
    cluster.refuse_seeds_after = 0

    def end() -> None:
        if cluster.seeds():
            cluster.story = [[row(**DONE)]]

    cluster.on_snapshot = end
    code, _ = await crawl(cluster, plan(tmp_path, seeds=2_500))
    assert code == 0


async def test_resume_goes_on_with_every_unfinished_run(tmp_path: Path) -> None:
    """Paused ones are resumed, open seed lists closed, ended runs left alone."""
    cluster = FakeCluster([row()], [row(**DONE)])
    cluster.jobs = [
        {"job": 3, "runs": [row(7, state="paused"), row(6, state="completed")]},
        {"job": 4, "runs": [row(9, state="cancelled")]},
    ]
    code, _ = await crawl(cluster, plan(tmp_path, resume=True))
    assert code == 0
    assert ("act", {"ref": "3", "action": "resume", "run": 7}) in cluster.requests
    assert [args["run"] for args in cluster.seeds()] == [7]


async def test_a_run_that_stays_paused_is_told_and_not_waited_for(tmp_path: Path) -> None:
    """Waiting for it would never end."""
    cluster = FakeCluster([row(6, state="paused")])
    cluster.jobs = [{"job": 3, "runs": [row(6, state="paused")]}]
    cluster.newest = 7
    code, notes = await crawl(cluster, plan(tmp_path, resume=True))
    assert code == 0
    assert notes[0] == "job 3, run 6 stays paused: a newer run of it exists"


async def test_nothing_to_resume_is_said_and_is_no_error(tmp_path: Path) -> None:
    """Exit 0: there is nothing left to do."""
    code, notes = await crawl(FakeCluster([]), plan(tmp_path, resume=True))
    assert code == 0
    assert notes == [f"nothing to resume in {tmp_path}"]


async def test_nothing_to_resume_is_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that reads the last line finds one."""
    await crawl(FakeCluster([]), plan(tmp_path, resume=True, as_json=True))
    assert json.loads(capsys.readouterr().out) == {"state": "nothing_to_resume"}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"state": "completed", "pages": 1, "failed": 9}, 0),
        ({"state": "completed", "pages": 0, "failed": 0, "skipped": 1}, 0),
        ({"state": "failed", "pages": 5}, 1),
        ({"state": "cancelled", "pages": 5}, 1),
    ],
)
def test_the_exit_code_tells_whether_the_crawl_could_be_done(
    values: dict[str, Any], code: int
) -> None:
    """The state of the run decides, as for `submit --wait` and `job`."""
    assert exit_code(row(**values)) == code


def test_the_closing_lines_tell_why_pages_are_missing() -> None:
    """Reasons by frequency."""
    view = row(state="completed", reason="max_pages", failed=4)
    view |= {"failed_reasons": {"dns": 1, "http_404": 3}, "skipped_reasons": {"robots": 2}}
    lines = closing_lines(view, None)
    assert "completed (max_pages)" in lines[0]
    assert lines[1:3] == ["failed: http_404 × 3, dns × 1", "skipped: robots × 2"]
    assert "--no-robots" in lines[3]


def test_the_closing_lines_name_fields_that_were_never_filled() -> None:
    """A selector that matches nothing is the most usual mistake in a job file."""
    view = row(state="completed") | {"failed_reasons": {}, "skipped_reasons": {}}
    view["fields"] = {
        "title": {"filled": 3, "empty": 0, "failed": 0, "percent": 100.0},
        "price": {"filled": 0, "empty": 3, "failed": 0, "percent": 0.0},
    }
    assert any(line.startswith("never filled: price;") for line in closing_lines(view, None))


def test_the_closing_lines_tell_why_items_are_missing() -> None:
    """A schema and a middleware may each have set items aside."""
    view = row(state="completed") | {"failed_reasons": {}, "skipped_reasons": {}}
    view["rejected_items"] = {"schema: price": 1, "dropped by middleware stamp: old": 2}
    line = "items set aside: dropped by middleware stamp: old × 2, schema: price × 1"
    assert line in closing_lines(view, None)


def test_the_closing_lines_tell_which_links_were_left_out() -> None:
    """A depth that ended a crawl early is named as such: its pages are missing."""
    view = row(state="completed") | {"failed_reasons": {}, "skipped_reasons": {}}
    view["dropped"] = {"out_of_scope_host": 4}
    assert "links not followed: out_of_scope_host × 4" in closing_lines(view, None)
    view["dropped"] |= {"too_deep": 38}
    (line,) = [line for line in closing_lines(view, None) if "too_deep" in line]
    assert "too_deep × 38, out_of_scope_host × 4" in line
    assert "scope.max_depth" in line


@pytest.mark.parametrize("where", ["x.parquet", "s3://b/x.csv", "x.jsonl"])
def test_a_run_without_items_has_its_file_and_says_so(where: str) -> None:
    """Of every format, wherever it lies."""
    view = row(state="completed", items=0) | {"failed_reasons": {}, "skipped_reasons": {}}
    assert closing_lines(view, where)[-1] == f"0 items in {where}"
