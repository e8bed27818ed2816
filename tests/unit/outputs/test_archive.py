"""Archives of old runs, and the loop that removes runs, beside a master and a store in memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.crawling import until
from tests.unit.desk_tools import FAILED
from tests.unit.machine_tools import UTC, LeaderStory, result_of, urls
from zcrawl.errors import Fenced, StoreUnavailable
from zcrawl.master.driver.archive import archive_places
from zcrawl.master.driver.retention import RetentionLoop
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.spec import Retention
from zcrawl.model.states import Kept, RunState
from zcrawl.store.commands import Command, CommandOutcome, NoteOutput, RetryDead
from zcrawl.store.queries import (
    Failures,
    Items,
    Query,
    QueryOutcome,
    ReadFailed,
    ReadItems,
    Tallies,
    TallyRows,
)
from zcrawl.submit.output_rights import OutputRights
from zcrawl.testing.store.store import FakeStore
from zcrawl.testing.store.tables import FakeItem

PAGES = 3
PATIENCE_S = 30.0
FILES = ["failed.jsonl", "items.jsonl", "manifest.json"]


class Meddling:
    """A store that a test can meddle with: before a command, and after a query."""

    def __init__(self, inner: FakeStore) -> None:
        self.inner = inner
        self.before: Callable[[Command], None] = lambda command: None
        self.after: Callable[[Query, QueryOutcome], QueryOutcome] = lambda query, outcome: outcome

    def execute(self, command: Command) -> CommandOutcome:
        self.before(command)
        return self.inner.execute(command)

    def query(self, query: Query) -> QueryOutcome:
        return self.after(query, self.inner.query(query))

    def close(self) -> None:
        pass


class Scene:
    """A leader with runs of one job, and the loop that removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.story = LeaderStory().elect()
        self.story.join(slots=50)
        self.store = Meddling(self.story.store)
        self.threads = StoreThreads(self.store, lambda name, detail, **fields: None)
        self.notes: list[tuple[str, str]] = []
        self.requests: list[ClientRequest] = []
        self.epoch = 1
        self.looks = 0  # how often a loop has looked whether it leads
        self.loops: list[RetentionLoop] = []

    def loop(
        self, defaults: Retention | None = None, rights: OutputRights | None = None
    ) -> RetentionLoop:
        defaults = defaults or Retention()
        rights = rights or OutputRights()
        loop = RetentionLoop(
            self.threads,
            self.request,
            self.look,
            lambda name, detail, **fields: self.notes.append((name, detail)),
            lambda defaults: archive_places(
                self.folder, self.folder / "outputs", rights, defaults.archive
            ),
            lambda: UTC + self.story.now,
            defaults=defaults,
            master="m1",
        )
        self.loops.append(loop)
        return loop

    def look(self) -> int:
        self.looks += 1
        return self.epoch

    async def request(self, request: ClientRequest) -> Reply:
        self.requests.append(request)
        reply = self.story.ask(request.op, request.id, **request.args)
        assert reply is not None
        return reply

    def crawl(self, failing: int = 0, **retention: Any) -> int:
        """A run that has ended, with three pages and some failures; return its number."""
        spec = {
            "name": "the docs/1",
            "politeness": {"robots": False, "rate": 0, "concurrency": 99},
            "fetch": {"retries": 0},
            "retention": retention,
        }
        before = len(self.story.assigned())
        seeds = urls(PAGES + failing)
        run = int(self.story.submit(*seeds, spec=spec, mode="update")["run"])
        self.story.tick()
        fresh = self.story.assigned()[before:]
        for number, assignment in enumerate(fresh):
            changes: dict[str, Any] = FAILED if number >= PAGES else {}
            self.story.report(result_of(assignment, **changes))
        assert self.story.store.tables.runs[run].state.ended
        return run

    def store_retention(self, **retention: Any) -> None:
        """As a leader with other rights has stored it."""
        for job in self.story.store.tables.jobs.values():
            job.spec = msgspec.json.encode({"name": job.name, "retention": retention})

    async def remove(self, loop: RetentionLoop) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await loop._remove(None, self.epoch)

    def runs(self) -> dict[int, RunState]:
        rows = self.story.store.runs()
        return {row.id: row.state for row in rows if row.state is not RunState.DELETED}

    def files(self, run: int, where: str = "outputs/old") -> dict[str, bytes]:
        folder = self.folder / where / "the_docs_1" / f"run-{run}"
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))}

    def asides(self) -> list[Path]:
        return [path for path in self.folder.rglob(".*") if path.name.endswith(".part")]

    def kept(self, run: int) -> list[tuple[int, str]]:
        rows = self.story.store.query(Tallies(run))
        assert isinstance(rows, TallyRows)
        return [(row.run, row.problem) for row in rows.not_removed]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    yield made
    for loop in made.loops:
        await loop.close()
    await made.threads.close()


async def test_an_old_run_is_archived_with_a_manifest_and_deleted(scene: Scene) -> None:
    """The manifest names the other files with their sizes, rows and hashes; the newest stays."""
    first = scene.crawl(2, keep_runs=1, archive="old")
    second = scene.crawl(0, keep_runs=1, archive="old")
    await scene.remove(scene.loop())
    assert list(scene.runs()) == [second]
    files = scene.files(first)
    assert list(files) == FILES
    manifest = json.loads(files["manifest.json"])
    assert (manifest["run"], manifest["name"], manifest["state"]) == (
        first,
        "the docs/1",
        "completed",
    )
    assert manifest["failed_reasons"] == {"dns": 2}
    assert manifest["counters"]["items"] == PAGES
    assert manifest["shares"] == {"w1": PAGES + 2}
    described = {file["name"]: file for file in manifest["files"]}
    assert [described[name]["rows"] for name in FILES[:2]] == [2, PAGES]
    for name in FILES[:2]:
        assert described[name]["bytes"] == len(files[name])
        assert described[name]["sha256"] == hashlib.sha256(files[name]).hexdigest()
    assert [json.loads(line)["reason"] for line in files["failed.jsonl"].splitlines()] == [
        "dns"
    ] * 2
    assert scene.asides() == []
    assert [(request.by, request.op) for request in scene.requests] == [("retention", "act")]


async def test_rejected_items_are_archived_with_their_reasons(scene: Scene) -> None:
    """In a file of their own, which a run without any does not have; the manifest counts them."""
    first = scene.crawl(0, keep_runs=1, archive="old")
    scene.crawl(0, keep_runs=1, archive="old")
    tables = scene.story.store.tables
    item = next(iter(tables.items[first].values()))
    data = b'{"reason": "schema: price", "item": {"price": "n/a"}}'
    id = tables.next_id("items")
    tables.items[first][id] = FakeItem(id, first, item.seq, data, Kept.REJECTED)
    tables.tally(first, "rejected", "schema: price", 1)
    await scene.remove(scene.loop())
    files = scene.files(first)
    assert list(files) == ["failed.jsonl", "items.jsonl", "manifest.json", "rejected.jsonl"]
    assert json.loads(files["rejected.jsonl"])["item"] == {"price": "n/a"}
    manifest = json.loads(files["manifest.json"])
    assert manifest["rejected_items"] == {"schema: price": 1}
    assert manifest["examples"].keys() == {"failed", "skipped", "rejected"}
    assert [file["rows"] for file in manifest["files"]] == [PAGES, 0, 1]


async def test_a_run_without_an_archive_is_only_deleted(scene: Scene) -> None:
    """By the masters' own values, too."""
    runs = [scene.crawl() for _ in range(3)]
    await scene.remove(scene.loop(Retention(keep_runs=1)))
    assert list(scene.runs()) == runs[2:]
    assert [name for name, _ in scene.notes] == []


@pytest.mark.parametrize("kind", [ReadItems, ReadFailed])
async def test_an_archive_that_lacks_rows_is_not_published(scene: Scene, kind: type[Query]) -> None:
    """As when a leader was paused and the next one removes the rows already: the run is kept, and
    an archive that is complete is not replaced."""
    first = scene.crawl(1, keep_runs=1, archive="old")
    scene.crawl(1, keep_runs=1, archive="old")
    complete = {"items.jsonl": b"complete", "failed.jsonl": b"complete"}
    folder = scene.folder / "outputs/old/the_docs_1" / f"run-{first}"
    folder.mkdir(parents=True)
    for name, data in complete.items():
        (folder / name).write_bytes(data)

    def lose(query: Query, outcome: QueryOutcome) -> QueryOutcome:
        if not isinstance(query, kind):
            return outcome
        return Items([]) if isinstance(query, ReadItems) else Failures([])

    scene.store.after = lose
    await scene.remove(scene.loop())
    assert len(scene.runs()) == 2
    lacking = "items.jsonl" if kind is ReadItems else "failed.jsonl"
    assert scene.files(first)[lacking] == b"complete"
    assert "manifest.json" not in scene.files(first)
    ((run, problem),) = scene.kept(first)
    assert run == first
    assert problem.startswith("[archive_incomplete] ")
    assert scene.asides() == []
    scene.store.after = lambda query, outcome: outcome
    await scene.remove(scene.loop())
    assert len(scene.runs()) == 1


async def test_a_leader_that_was_replaced_publishes_nothing_and_deletes_nothing(
    scene: Scene,
) -> None:
    """It does not know it yet: the store refuses the command before the rename."""
    first = scene.crawl(0, keep_runs=1, archive="old")
    scene.crawl(0, keep_runs=1, archive="old")

    def take_over(query: Query, outcome: QueryOutcome) -> QueryOutcome:
        if isinstance(query, ReadItems):
            scene.store.after = lambda query, outcome: outcome
            LeaderStory(scene.story.store, "m2").elect()
        return outcome

    scene.store.after = take_over
    with pytest.raises(Fenced):
        await scene.remove(scene.loop())
    assert scene.files(first) == {}
    assert len(scene.runs()) == 2
    assert scene.requests == []
    assert scene.asides() == []


async def test_a_master_that_does_not_lead_any_more_stops_reading(scene: Scene) -> None:
    """Also in the middle of a run, by its own epoch."""
    first = scene.crawl(0, keep_runs=1, archive="old")
    scene.crawl(0, keep_runs=1, archive="old")

    def depose(query: Query, outcome: QueryOutcome) -> QueryOutcome:
        if isinstance(query, ReadItems):
            scene.epoch = 0
        return outcome

    scene.store.after = depose
    with pytest.raises(Fenced):
        await scene.loop()._remove(None, 1)
    assert scene.files(first) == {}
    assert len(scene.runs()) == 2


async def test_the_next_leader_archives_again_and_deletes_once(scene: Scene) -> None:
    """After a leader that died between archive and delete; a delete that was carried out and asked
    for once more has no second effect."""
    first = scene.crawl(1, keep_runs=1, archive="old")
    scene.crawl(1, keep_runs=1, archive="old")
    real, died = scene.request, []

    async def die(request: ClientRequest) -> Reply:
        died.append(request)
        raise StoreUnavailable("killed")

    scene.request = die  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await scene.remove(scene.loop())
    before = scene.files(first)
    assert list(before) == FILES
    assert len(scene.runs()) == 2
    scene.request = real  # type: ignore[method-assign]
    await scene.remove(scene.loop())
    after = scene.files(first)
    assert [after[name] for name in FILES[:2]] == [before[name] for name in FILES[:2]]
    assert list(scene.runs()) == [first + 1]
    assert scene.requests == died  # the same request, by its id
    again = await scene.request(died[0])
    assert again.ok
    assert again.data["changed"] == 1


@pytest.mark.parametrize(
    ("fence", "notes"), [(1, ["archive_failed"]), (3, ["run_archived", "retention_changed"])]
)
async def test_a_run_that_a_retry_reopens_is_not_deleted(
    scene: Scene, fence: int, notes: list[str]
) -> None:
    """While its archive is written: it lacks rows then. After it: the delete names the end that the
    archive is of."""
    first = scene.crawl(1, keep_runs=1, archive="old")
    scene.crawl(1, keep_runs=1, archive="old")

    fences = 0

    def reopen(command: Command) -> None:
        nonlocal fences
        fences += isinstance(command, NoteOutput)
        if fences == fence:
            scene.store.before = lambda command: None
            scene.story.now += 5
            reply = scene.story.ask("act", ref="1", action="retry", run=first)
            assert reply is not None
            assert reply.ok

    scene.store.before = reopen
    await scene.remove(scene.loop())
    assert scene.runs()[first] is RunState.RUNNING
    assert [name for name, _ in scene.notes] == notes
    assert RetryDead in [kind for _, kind in scene.story.store.history]


@pytest.mark.parametrize(
    ("archive", "code"),
    [("/tmp/elsewhere", "path_not_allowed"), ("s3://other/x", "path_not_allowed")],
)
async def test_a_job_that_was_stored_under_other_rights_is_not_archived(
    scene: Scene, archive: str, code: str
) -> None:
    """The place is judged again when it is written; the run stays and its job names the reason."""
    first = scene.crawl()
    scene.crawl()
    scene.store_retention(keep_runs=1, archive=archive)
    await scene.remove(scene.loop())
    assert len(scene.runs()) == 2
    ((_, problem),) = scene.kept(first)
    assert problem.startswith(f"[{code}] archive {archive!r} is not allowed here")
    assert scene.notes[0][0] == "archive_failed"


async def test_a_link_below_an_allowed_folder_is_not_followed(scene: Scene) -> None:
    """Otherwise a job could have files written anywhere."""
    elsewhere = scene.folder / "elsewhere"
    elsewhere.mkdir()
    (scene.folder / "outputs").mkdir()
    (scene.folder / "outputs" / "old").symlink_to(elsewhere)
    first = scene.crawl(0, keep_runs=1, archive="old")
    scene.crawl(0, keep_runs=1, archive="old")
    await scene.remove(scene.loop())
    assert list(elsewhere.iterdir()) == []
    assert "symbolic link" in scene.kept(first)[0][1]


async def test_the_masters_archive_needs_no_other_right(scene: Scene) -> None:
    """It is the operator's own, and a job's archive gains nothing by it."""
    place = str(scene.folder / "theirs")
    first = scene.crawl()
    scene.crawl()
    await scene.remove(scene.loop(Retention(keep_runs=1, archive=place)))
    assert list(scene.files(first, "theirs")) == FILES
    other = scene.crawl()
    scene.store_retention(keep_runs=1, archive=place)
    await scene.remove(scene.loop(Retention(archive=place)))
    assert "path_not_allowed" in scene.kept(other)[0][1]
    assert list(scene.runs()) == [first + 1, other]


async def test_an_allowed_folder_may_be_the_archive_itself(scene: Scene) -> None:
    """The entry of the configuration, not only a folder below it."""
    place = scene.folder / "theirs"
    first = scene.crawl()
    scene.crawl()
    scene.store_retention(keep_runs=1, archive=f"{place}/")
    await scene.remove(scene.loop(rights=OutputRights((str(place),))))
    assert list(scene.files(first, "theirs")) == FILES


async def test_a_place_that_fails_is_given_up_until_the_next_time(scene: Scene) -> None:
    """After three failures in a row; all its runs name the problem, and are tried again."""
    (scene.folder / "outputs").mkdir()
    (scene.folder / "outputs" / "old").write_text("a file")
    runs = [scene.crawl(0, keep_runs=1, archive="old") for _ in range(7)]
    await scene.remove(scene.loop())
    assert len([name for name, _ in scene.notes if name == "archive_failed"]) == 3
    assert sorted(run for run, _ in scene.kept(runs[0])) == runs[:6]
    assert len(scene.runs()) == 7
    (scene.folder / "outputs" / "old").unlink()
    await scene.remove(scene.loop())
    assert list(scene.runs()) == runs[6:]


async def test_a_run_waits_for_its_outputs(scene: Scene) -> None:
    """Its rows are still needed."""
    spec = {"name": "x", "retention": {"keep_runs": 1}, "output": {"to": ["x-{run}.jsonl"]}}
    for _ in range(2):
        run = scene.story.submit(*urls(1), spec=spec, mode="update")["run"]
        scene.story.ask("act", ref="x", action="cancel", run=run)
    await scene.remove(scene.loop())
    assert len(scene.runs()) == 2
    assert [name for name, _ in scene.notes] == ["retention_waits"]


async def test_many_runs_are_read_in_parts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at once, also when the first of them stay."""
    monkeypatch.setattr("zcrawl.master.driver.retention.BATCH", 2)
    spec = {"name": "x", "retention": {"keep_runs": 1}, "output": {"to": ["x-{run}.jsonl"]}}
    for _ in range(3):
        run = scene.story.submit(*urls(1), spec=spec, mode="update")["run"]
        scene.story.ask("act", ref="x", action="cancel", run=run)
    runs = [scene.crawl(0, keep_runs=1) for _ in range(6)]
    await scene.remove(scene.loop())
    assert list(scene.runs()) == [1, 2, 3, runs[5]]
    assert len(scene.requests) == 5
    assert [name for name, _ in scene.notes] == ["retention_waits"]
    assert scene.notes[0][1].endswith(", and 1 more")


async def test_it_looks_from_time_to_time_and_only_while_it_leads(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower removes nothing; it looks again soon, because it may lead then."""
    monkeypatch.setattr("zcrawl.master.driver.retention.FIRST_S", 0.01)
    queries: list[Query] = []

    def count(query: Query, outcome: QueryOutcome) -> QueryOutcome:
        queries.append(query)
        return outcome

    runs = [scene.crawl(0, keep_runs=1) for _ in range(2)]
    scene.epoch, scene.store.after = 0, count
    scene.loop().start()
    await until(lambda: scene.looks > 3)
    assert queries == []
    scene.epoch = 1
    await until(lambda: list(scene.runs()) == runs[1:])


async def test_it_looks_at_once_when_a_person_asks(scene: Scene) -> None:
    """At the runs of the named job; errors of the store do not end it."""
    runs = [scene.crawl(0, keep_runs=1) for _ in range(2)]
    loop = scene.loop()
    loop.start()

    def fail(query: Query, outcome: QueryOutcome) -> QueryOutcome:
        raise StoreUnavailable("the store is away")

    scene.store.after = fail
    loop.prune(1)
    await until(lambda: [name for name, _ in scene.notes] == ["retention_store_unavailable"])
    scene.store.after = lambda query, outcome: outcome
    loop.prune(7)
    loop.prune(1)
    await until(lambda: list(scene.runs()) == runs[1:])
